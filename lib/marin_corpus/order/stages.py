"""A run as a row of batches, and its mixture as a row of segments in which the proportions are constant.

Segments begin where a stage of the configuration changes the weights and where a component has been read as often as
its cap allows. Each carries how much of every component was read before, so that reading goes on where it stopped.
Both are found from the front: what comes later changes nothing that lies before it.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from marin_corpus.order.mixture import BlockMixture, block_counts
from marin_corpus.order.permutation import key_of


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """From data batch number `start_batch` on, which begins with sequence `start`, batches hold `size` sequences."""

    start_batch: int
    start: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Which sequences a data batch holds."""

    sizes: tuple[BatchSize, ...]

    @classmethod
    def of(cls, sizes: Sequence[tuple[int, int]]) -> "Batches":
        """From (first batch, sequences a batch), the first of batch 0, in rising order."""
        found = [BatchSize(start_batch=0, start=0, size=sizes[0][1])]
        for batch, size in sizes[1:]:
            last = found[-1]
            start = last.start + (batch - last.start_batch) * last.size
            found.append(BatchSize(start_batch=batch, start=start, size=size))
        return cls(sizes=tuple(found))

    def span(self, batch: int) -> tuple[int, int]:
        """First sequence of a batch, and how many it holds."""
        part = self.sizes[bisect_right(self.sizes, batch, key=lambda s: s.start_batch) - 1]
        return part.start + (batch - part.start_batch) * part.size, part.size

    def batch_at(self, sequence: int) -> int:
        """The batch that holds a sequence."""
        part = self.sizes[bisect_right(self.sizes, sequence, key=lambda s: s.start) - 1]
        return part.start_batch + (sequence - part.start) // part.size


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Sequences from `start` on, in one mixture. `drawn` of each component (by number) were read before."""

    start: int
    mixture: BlockMixture
    drawn: tuple[int, ...]
    reason: str

    def drawn_before(self, sequence: int) -> tuple[int, ...]:
        """How many of each component are read before a sequence of this segment."""
        here = self.mixture.drawn_before(sequence - self.start)
        return tuple(before + here.get(c, 0) for c, before in enumerate(self.drawn))


@dataclass(frozen=True, kw_only=True)
class Segments:
    """All segments; the last one has no end unless `end` is given, where nothing remains to be read."""

    segments: tuple[Segment, ...]
    end: int | None

    def index_of(self, sequence: int) -> int:
        return bisect_right(self.segments, sequence, key=lambda s: s.start) - 1

    def drawn_before(self, sequence: int) -> tuple[int, ...]:
        """How many of each component all sequences before this one take."""
        return self.segments[self.index_of(sequence)].drawn_before(sequence)


def make_segments(
    stages: Sequence[tuple[int, Mapping[str, Fraction]]],
    *,
    names: Sequence[str],
    limits: Sequence[int | None],
    seed: int,
) -> Segments:
    """Segments from (first sequence, weights above zero) of each stage and the most that may be read of each component.

    `names` gives components their numbers; stages begin at 0 and rise; limits are at least 1.
    """
    number = {name: c for c, name in enumerate(names)}
    drawn = tuple(0 for _ in names)
    segments: list[Segment] = []
    for at, (start, weights) in enumerate(stages):
        end = stages[at + 1][0] if at + 1 < len(stages) else None
        reason = "start" if at == 0 else "stage"
        while end is None or start < end:
            left = {name: w for name, w in weights.items() if drawn[number[name]] != limits[number[name]]}
            if not left:
                return Segments(segments=tuple(segments), end=start)
            counts = block_counts(left)
            mixture = BlockMixture(
                components=tuple(number[name] for name in counts),
                counts=tuple(counts.values()),
                key=key_of("mixture", seed, start),
            )
            segment = Segment(start=start, mixture=mixture, drawn=drawn, reason=reason)
            segments.append(segment)
            cut, component = _first_exhausted(segment, limits)
            if cut is None or (end is not None and end <= cut):
                drawn = segment.drawn_before(end) if end is not None else drawn
                break
            start, drawn, reason = cut, segment.drawn_before(cut), f"{names[component]} ends"
    return Segments(segments=tuple(segments), end=None)


def _first_exhausted(segment: Segment, limits: Sequence[int | None]) -> tuple[int | None, int]:
    """Just behind the sequence that is the last one allowed of its component, and that component."""
    ends = [
        (segment.start + segment.mixture.place_of(c, limit - segment.drawn[c] - 1) + 1, c)
        for c in segment.mixture.components
        if (limit := limits[c]) is not None
    ]
    return min(ends, default=(None, -1))

"""The batches of a run: step number in, arrays out, with no state between.

loader = Loader({"speeches": store}, LoaderConfig(...))
print(loader.plan(num_steps=1000))
batch = loader.batch(17)                      # the same today, tomorrow and on any number of processes
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import xxhash

from marin_corpus.errors import BadConfig
from marin_corpus.loader.build import check_stores, component_of, reader_of, stages_of
from marin_corpus.loader.config import LoaderConfig
from marin_corpus.loader.peek import Decoder, PeekedRow, peek_rows
from marin_corpus.loader.prefetch import BatchIterator
from marin_corpus.loader.rows import Batch, Reader, Tokens, new_batch
from marin_corpus.order.mixture import MIXTURE_BLOCK
from marin_corpus.order.order import Draws, Order
from marin_corpus.order.permutation import Integers
from marin_corpus.order.plan import Change, ComponentPlan, Plan


class Loader:
    """Batches of sequences from token stores, in the order that a configuration and the stores' sizes determine.

    A batch is a dict of arrays [rows of this process, sequence_length]: `tokens`, `targets`, `segment_ids`,
    `positions` (int32) and `loss_weights` (float32, of the targets). Attention belongs inside of equal segment ids;
    0 is padding. Arrays that are the same in every batch are shared and read-only.

    Steps are training steps. `skipped` are numbers of data batches that are left out, rising: training step t reads
    the t-th data batch that is not among them, and everything else is unaffected.

    Errors: Mismatch when stores are missing, unnamed or of different tokenizers; BadInput when a store holds no whole
    sequence; BadConfig when the configuration cannot be honoured.
    """

    def __init__(self, stores: Mapping[str, Tokens], config: LoaderConfig):
        self.config = config
        check_stores(stores, config)
        by_name = {component.name: component for component in config.components}
        # Numbered by name, as in the order.
        self.names = tuple(sorted(by_name))
        self.readers: tuple[Reader, ...] = tuple(reader_of(stores[name], config) for name in self.names)
        self._batches, stages = stages_of(config, {name: stores[name].num_tokens for name in self.names})
        self.order = Order(
            [component_of(by_name[n], r, config) for n, r in zip(self.names, self.readers, strict=True)],
            stages,
            seed=config.seed,
            shuffle=config.shuffle,
        )
        self._varies = any(reader.varies for reader in self.readers)

    def batch(self, step: int, *, process_index: int = 0, process_count: int = 1, skipped: Sequence[int] = ()) -> Batch:
        """Rows of this process of a step's batch; the rows of all processes, in their order, are the global batch."""
        return self.sequences(self.indices(step, process_index, process_count, skipped))

    def indices(
        self, step: int, process_index: int = 0, process_count: int = 1, skipped: Sequence[int] = ()
    ) -> Integers:
        """Which sequences of the run a process reads at a step."""
        for part in self._batches.sizes:
            if process_count < 1 or part.size % process_count:
                raise BadConfig(
                    f"Loader: global_batch_size={part.size} cannot be divided among process_count={process_count}"
                )
        if not 0 <= process_index < process_count:
            raise BadConfig(f"Loader: process_index={process_index} must be at least 0 and below {process_count}")
        start, size = self._batches.span(data_batch_of(step, skipped))
        self._check_end(step, skipped)
        rows = size // process_count
        return np.arange(start + process_index * rows, start + (process_index + 1) * rows)

    def global_batch_size(self, step: int, *, skipped: Sequence[int] = ()) -> int:
        """Sequences of a step's batch, of all processes together."""
        return self._batches.span(data_batch_of(step, skipped))[1]

    def sequences(self, indices: Integers) -> Batch:
        """Sequences of the run by their numbers [n], as arrays [n, sequence_length]."""
        batch = new_batch(len(indices), self.config.sequence_length, varies=self._varies)
        for component, rows, sequences in self._by_component(self.order.locate(indices)):
            self.readers[component].fill(batch, rows, sequences)
        return batch

    def prefetch(self, indices: Integers) -> None:
        """Have the stores fetch what these sequences of the run need."""
        for component, _, sequences in self._by_component(self.order.locate(indices)):
            self.readers[component].prefetch(sequences)

    def iterate(
        self,
        start_step: int = 0,
        *,
        stop_step: int | None = None,
        process_index: int = 0,
        process_count: int = 1,
        skipped: Sequence[int] = (),
        depth: int = 2,
    ) -> BatchIterator:
        """Batches from `start_step` on, read ahead by a thread that keeps `depth` of them ready. Close it when done."""

        def indices(step: int) -> Integers:
            return self.indices(step, process_index, process_count, skipped)

        return BatchIterator(
            indices=indices,
            read=self.sequences,
            prefetch=self.prefetch,
            start_step=start_step,
            stop_step=stop_step,
            depth=depth,
        )

    def peek(
        self, step: int, *, row: int | None = None, tokenizer: Decoder | None = None, skipped: Sequence[int] = ()
    ) -> list[PeekedRow]:
        """What the rows of a step's global batch hold, or one of them: component, epoch, and documents by id.

        With a tokenizer (anything that has decode(ids)) their text too. `print(*loader.peek(step), sep="\\n")`.
        """
        indices = self.indices(step, skipped=skipped)
        if row is not None and not 0 <= row < len(indices):
            raise BadConfig(f"peek: row={row} must be at least 0 and below {len(indices)}")
        chosen = np.arange(len(indices)) if row is None else np.array([row])
        draws = self.order.locate(indices[chosen])
        return peek_rows(chosen.tolist(), draws, names=self.names, readers=self.readers, tokenizer=tokenizer)

    def _by_component(self, draws: Draws) -> list[tuple[int, slice | Integers, Integers]]:
        """Component, rows and sequence numbers of all draws of it."""
        if len(self.readers) == 1:
            return [(0, slice(None), draws.sequence)]
        found: list[tuple[int, slice | Integers, Integers]] = []
        for component in range(len(self.readers)):
            rows = np.flatnonzero(draws.component == component)
            if len(rows):
                found.append((component, rows, draws.sequence[rows]))
        return found

    def _check_end(self, step: int, skipped: Sequence[int]) -> None:
        """Refuse a step behind the last sequence that all caps together allow."""
        end = self.order.segments.end
        if end is None or sum(self._batches.span(data_batch_of(step, skipped))) <= end:
            return
        whole = self._batches.batch_at(end)
        steps = whole - sum(batch < whole for batch in skipped)
        raise BadConfig(
            f"step {step} has no data: all components end before step {steps} is filled, after {end:,} sequences",
            why="each of them has been read max_epochs times",
            next=f"train at most {steps} steps, raise max_epochs, or add data",
        )

    def plan(self, num_steps: int, *, skipped: Sequence[int] = ()) -> Plan:
        """What `num_steps` steps read; its text is a table. BadConfig if the data ends before, naming the step."""
        if num_steps < 1:
            raise BadConfig(f"plan: num_steps={num_steps} must be at least 1")
        self._check_end(num_steps - 1, skipped)
        total = sum(self._batches.span(data_batch_of(num_steps - 1, skipped)))
        drawn = self.order.segments.drawn_before(total)
        components = []
        for component, reader, draws in zip(self.order.components, self.readers, drawn, strict=True):
            report = reader.packing.report()
            positions = reader.packing.num_sequences * self.config.sequence_length
            components.append(
                ComponentPlan(
                    name=component.name,
                    tokens=reader.store.num_tokens,
                    sequences=component.available,
                    used_sequences=component.used,
                    drawn_sequences=draws,
                    share=draws / total,
                    tail=report["tail"],
                    padding=report["padding"] / positions,
                )
            )
        return Plan(
            num_steps=num_steps,
            num_sequences=total,
            sequence_length=self.config.sequence_length,
            components=tuple(components),
            changes=tuple(self._changes(total)),
            batch_sizes=tuple((part.start_batch, part.size) for part in self._batches.sizes if part.start < total),
            block=MIXTURE_BLOCK,
        )

    def _changes(self, before: int) -> list[Change]:
        return [
            Change(
                step=self._batches.batch_at(segment.start),
                sequence=segment.start,
                reason=segment.reason,
                counts={
                    self.names[c]: n for c, n in zip(segment.mixture.components, segment.mixture.counts, strict=True)
                },
            )
            for segment in self.order.segments.segments
            if segment.start < before
        ]

    def fingerprint(self, step: int, *, skipped: Sequence[int] = ()) -> str:
        """Names all that determined the batches before `step`: equal as long as they are equal.

        Kept beside a checkpoint of that step, it tells a resumed run whether its past is still the same. Stages that
        begin later, and components first read later, do not count; neither does where the stores lie.
        """
        before = 0
        if step > 0:
            self._check_end(step - 1, skipped)
            before = sum(self._batches.span(data_batch_of(step - 1, skipped)))
        drawn = self.order.segments.drawn_before(before)
        config = self.config
        data = [
            [c.name, c.available, c.used, xxhash.xxh3_128_hexdigest(reader.store.manifest.encode())]
            for c, reader, draws in zip(self.order.components, self.readers, drawn, strict=True)
            if draws
        ]
        shuffle = config.shuffle and [config.shuffle.block_sequences, config.shuffle.window_blocks]
        sizes = [[s.start_batch, s.size] for s in self._batches.sizes if s.start < before]
        changes = [[change.sequence, change.counts] for change in self._changes(before)]
        how = [config.seed, config.sequence_length, config.packing, config.segments, shuffle, MIXTURE_BLOCK]
        used = [s for s in skipped if self._batches.span(s)[0] < before]
        return xxhash.xxh3_128_hexdigest(json.dumps([data, how, sizes, changes, used], sort_keys=True).encode())


def data_batch_of(step: int, skipped: Sequence[int]) -> int:
    """The data batch that training step `step` reads: the step-th, from 0, that is not skipped (rising numbers)."""
    if step < 0:
        raise BadConfig(f"Loader: step={step} must be at least 0")
    if any(b <= a for a, b in zip((-1, *skipped), skipped, strict=False)):
        raise BadConfig(f"Loader: skipped={list(skipped)[:10]} must be rising numbers of data batches, from 0 on")
    for batch in skipped:
        if batch > step:
            break
        step += 1
    return step

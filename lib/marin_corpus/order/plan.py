"""What a run will read, told before it starts."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ComponentPlan:
    """One component over the whole run."""

    name: str
    tokens: int
    """In the store."""
    sequences: int
    """In the store."""
    used_sequences: int
    """Those that take part."""
    drawn_sequences: int
    share: float
    """Of all sequences drawn."""
    tail: int
    """Tokens that no sequence holds."""
    padding: float
    """Share of all its sequences' positions that hold no token."""

    @property
    def epochs(self) -> float:
        return self.drawn_sequences / self.used_sequences


@dataclass(frozen=True, kw_only=True)
class Change:
    """From a sequence on, another mixture."""

    step: int
    """The data batch that holds the sequence."""
    sequence: int
    reason: str
    """"start", "stage" or "<component> ends"."""
    counts: dict[str, int]
    """Sequences of each component in a block of the mixture."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A table of components, and the places where the mixture or the batch size changes."""

    num_steps: int
    num_sequences: int
    sequence_length: int
    components: tuple[ComponentPlan, ...]
    changes: tuple[Change, ...]
    batch_sizes: tuple[tuple[int, int], ...]
    """(first data batch, sequences in a batch)."""
    block: int
    """Sequences in a block of the mixture."""

    def __str__(self) -> str:
        head = ("component", "tokens", "sequences", "share", "drawn", "positions", "epochs", "last epoch", "left out")
        rows = [head]
        for c in self.components:
            used = "" if c.used_sequences == c.sequences else f" (of {c.sequences:,})"
            left = [f"{c.tail:,} tokens"] if c.tail else []
            left += [f"{c.padding:.2%} padding"] if c.padding else []
            rows.append(
                (
                    c.name,
                    f"{c.tokens:,}",
                    f"{c.used_sequences:,}{used}",
                    f"{c.share:.2%}",
                    f"{c.drawn_sequences:,}",
                    f"{c.drawn_sequences * self.sequence_length:,}",
                    f"{c.epochs:.2f}",
                    _last_epoch(c),
                    ", ".join(left) or "-",
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = [
            f"{self.num_steps:,} steps, {self.num_sequences:,} sequences of {self.sequence_length:,} positions, "
            f"{self.num_sequences * self.sequence_length:,} positions in all"
        ]
        lines += [
            "  ".join(x.ljust(w) if i == 0 else x.rjust(w) for i, (x, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        ]
        for step, size in self.batch_sizes:
            lines.append(f"step {step:,}: {size:,} sequences a batch")
        for change in self.changes:
            shares = ", ".join(f"{name} {count}" for name, count in change.counts.items())
            lines.append(f"step {change.step:,} ({change.reason}): of each {self.block:,} sequences {shares}")
        return "\n".join(lines)


def _last_epoch(component: ComponentPlan) -> str:
    """How much of the epoch the run ends in is read; all of it where the run ends with an epoch."""
    if not component.drawn_sequences:
        return "-"
    return f"{((component.drawn_sequences - 1) % component.used_sequences + 1) / component.used_sequences:.0%}"

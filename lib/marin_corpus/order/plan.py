"""What a run will read, told before it starts."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ComponentPlan:
    """One component over the whole run. `share` is of the sequences drawn.

    tokens, sequences: in the store; `used_sequences` of them take part. tail: tokens that no sequence holds. padding:
    share of all its sequences' positions that hold no token.
    """

    name: str
    tokens: int
    sequences: int
    used_sequences: int
    drawn_sequences: int
    share: float
    tail: int
    padding: float

    @property
    def epochs(self) -> float:
        return self.drawn_sequences / self.used_sequences


@dataclass(frozen=True, kw_only=True)
class Change:
    """From data batch `step` on (inside of it, if sequence is not its first), sequences a block of each component."""

    step: int
    sequence: int
    reason: str
    counts: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A table of components, and the places where the mixture or the batch size changes."""

    num_steps: int
    num_sequences: int
    sequence_length: int
    components: tuple[ComponentPlan, ...]
    changes: tuple[Change, ...]
    batch_sizes: tuple[tuple[int, int], ...]
    block: int

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

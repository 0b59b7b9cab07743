"""Two corpora from raw text to batches: cleaned, deduplicated, tokenized, mixed.

Run:       python experiments/exp002_corpus.py
Plan:      python experiments/exp002_corpus.py plan
Override:  python experiments/exp002_corpus.py --vocab_size 4096 --weights '{speeches: 1, bible: 1}'
Cost:      8 s on two cores, 1 s for a rerun; no network, no account
Result:    report.md: what was dropped and why, tokens of each corpus, what 200 steps would read, the first rows
"""

from dataclasses import dataclass, field

from marin_corpus.filters.rules import GOPHER_REPETITION

from marin_pipe import Step, StepContext, experiment, step
from marin_pipe.steps.artifacts import Documents
from marin_pipe.steps.dedup import find_near_duplicates
from marin_pipe.steps.filters import consolidate, heuristics
from marin_pipe.steps.sources import king_james_bible, state_of_the_union
from marin_pipe.steps.tokenizers import TokenizerFiles, train_bpe
from marin_pipe.steps.tokens import Tokens, tokenize
from marin_pipe.steps.transform import normalise


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """What to read, and how."""

    vocab_size: int = 8192
    min_words: int = 50
    """Shorter documents are dropped."""
    validation_fraction: float = 0.02
    sequence_length: int = 256
    weights: dict[str, float] = field(default_factory=lambda: {"speeches": 0.7, "bible": 0.3})
    """Share of each corpus in the sequences of a run."""
    num_steps: int = 200
    """Of the run that the report plans, with batches of 32 sequences."""


def clean(name: str, raw: Step[Documents], config: CorpusConfig) -> Step[Documents]:
    """Normalise, measure, find copies; drop by rules."""
    text = normalise(raw).named(f"exp002/{name}/text")
    facts = heuristics(text).named(f"exp002/{name}/heuristics")
    copies = find_near_duplicates(text).named(f"exp002/{name}/copies")
    drop = (
        ("too short", f"num_words < {config.min_words}"),
        ("near-duplicate", "near_duplicate"),
        *GOPHER_REPETITION,
    )
    return consolidate(text, attributes=(facts, copies), drop=drop).named(f"exp002/{name}/clean")


@step
def report_corpus(
    tokenizer: TokenizerFiles,
    clean: dict[str, Documents],
    tokens: dict[str, Tokens],
    *,
    sequence_length: int,
    weights: dict[str, float],
    num_steps: int,
    ctx: StepContext,
) -> None:
    """Write report.md."""
    from marin_corpus.loader.config import ComponentConfig, LoaderConfig
    from marin_corpus.loader.loader import Loader

    components = tuple(ComponentConfig(name=name, weight=weight) for name, weight in sorted(weights.items()))
    config = LoaderConfig(sequence_length=sequence_length, global_batch_size=32, components=components)
    loader = Loader({name: store.open("train") for name, store in tokens.items() if name in weights}, config)
    lines = ["# Corpora", ""]
    for name, documents in sorted(clean.items()):
        drops = ", ".join(f"{count} {reason}" for reason, count in documents.dropped.items() if count) or "none"
        lines.append(f"* {name}: {documents.num_documents} documents, {documents.text_bytes:,} bytes; dropped: {drops}")
    rows = loader.peek(0, tokenizer=tokenizer.open())[:4]
    lines += ["", "# Plan", "", "```", str(loader.plan(num_steps)), "```"]
    lines += ["", "# First rows", "", "```", *map(str, rows), "```"]
    (ctx.output / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def build(config: CorpusConfig) -> dict[str, Step[None]]:
    """Nothing runs here."""
    corpora = {
        name: clean(name, raw.named(f"exp002/{name}/raw"), config)
        for name, raw in (("speeches", state_of_the_union()), ("bible", king_james_bible()))
    }
    tokenizer = train_bpe(tuple(corpora.values()), vocab_size=config.vocab_size).named("exp002/tokenizer")
    tokens = {
        name: tokenize(documents, tokenizer=tokenizer, validation_fraction=config.validation_fraction).named(
            f"exp002/{name}/tokens"
        )
        for name, documents in corpora.items()
    }
    report = report_corpus(
        tokenizer,
        corpora,
        tokens,
        sequence_length=config.sequence_length,
        weights=config.weights,
        num_steps=config.num_steps,
    )
    return {"report": report.named("exp002/report")}


if __name__ == "__main__":
    experiment(build)

"""Every kind of data step in one experiment, for tests that kill it: `python corpus_pipeline.py ...`."""

from dataclasses import dataclass
from typing import Any

from marin_pipe import CPU, InputFiles, Step, experiment
from marin_pipe.steps.decontaminate import decontaminate, evaluation_items
from marin_pipe.steps.dedup import find_exact_duplicates, find_near_duplicates, find_repeated_paragraphs
from marin_pipe.steps.filters import consolidate, heuristics, language, pii
from marin_pipe.steps.quality import quality, train_quality_classifier
from marin_pipe.steps.sources import king_james_bible, read_documents
from marin_pipe.steps.tokenizers import byte_tokenizer, train_bpe
from marin_pipe.steps.tokens import tokenize
from marin_pipe.steps.transform import map_documents, normalise, split_documents


@dataclass(frozen=True, kw_only=True)
class Config:
    files: str = ""
    """A glob of text files that make several parts."""


def shorten(document: Any, options: Any) -> str | None:
    """The beginning of a text; none of a text with an odd number of characters."""
    return None if len(document.text) % 7 == 0 else document.text[: options["characters"]]


def build(config: Config) -> dict[str, Step]:
    two = CPU(count=2)
    raw = read_documents(InputFiles(config.files), source="files").on(two)
    text = normalise(split_documents(raw, max_characters=20_000).on(two)).on(two)
    shortened = map_documents(text, function=shorten, options={"characters": 10_000}).on(two)
    bible = king_james_bible()
    classifier = train_quality_classifier(positive=shortened, negative=bible)
    items = evaluation_items((bible,))
    attributes = (
        heuristics(shortened).on(two),
        language(shortened).on(two),
        pii(shortened).on(two),
        quality(shortened, classifier=classifier).on(two),
        find_exact_duplicates(shortened),
        find_near_duplicates(shortened),
        find_repeated_paragraphs(shortened),
        decontaminate(shortened, items=items).on(two),
    )
    drop = (("short", "num_words < 30"), ("copy", "exact_duplicate OR near_duplicate"), ("evaluation", "contaminated"))
    edits = ("email_spans", "repeated_paragraph_spans")
    clean = consolidate(shortened, attributes=attributes, drop=drop, edits=edits).on(two)
    tokenizer = train_bpe(clean, vocab_size=2048)
    return {
        "tokens": tokenize(clean, tokenizer=tokenizer, validation_fraction=0.1).on(two),
        "bytes": tokenize(bible, tokenizer=byte_tokenizer()).named("bytes"),
    }


if __name__ == "__main__":
    experiment(build)

"""From a configuration and stores to what the order is made of, refusing what does not fit."""

import math
from collections.abc import Mapping
from fractions import Fraction

from marin_corpus.errors import BadConfig, BadInput, Mismatch
from marin_corpus.loader.config import ComponentConfig, LoaderConfig
from marin_corpus.loader.rows import DocumentReader, Reader, Tokens, WindowReader
from marin_corpus.order.order import Component
from marin_corpus.order.packing import Windows, pack_documents
from marin_corpus.order.stages import Batches


def check_stores(stores: Mapping[str, Tokens], config: LoaderConfig) -> None:
    named = {component.name for component in config.components}
    if missing := sorted(named - set(stores)):
        raise Mismatch(
            f"component {missing[0]!r} has no store", next=f"stores are given for: {', '.join(sorted(stores)) or '-'}"
        )
    if unnamed := sorted(set(stores) - named):
        raise Mismatch(
            f"the store {unnamed[0]!r} is given and no component names it: it would not be read",
            next=f"add it to the components ({', '.join(sorted(named))}), or do not give it",
        )
    first = min(named)
    for name in sorted(named):
        if stores[name].tokenizer != stores[first].tokenizer:
            raise Mismatch(
                f"components {first!r} and {name!r} were made by different tokenizers",
                why=f"their tokenizers are {stores[first].tokenizer} and {stores[name].tokenizer}",
                next="tokenize both with one tokenizer",
            )


def reader_of(store: Tokens, config: LoaderConfig) -> Reader:
    if config.packing == "documents":
        return DocumentReader(store=store, packing=pack_documents(store.document_ends(), config.sequence_length))
    windows = Windows(num_tokens=store.num_tokens, sequence_length=config.sequence_length)
    return WindowReader(store=store, packing=windows, document_ends=store.document_ends() if config.segments else None)


def component_of(component: ComponentConfig, reader: Reader, config: LoaderConfig) -> Component:
    available = reader.packing.num_sequences
    if available == 0:
        raise BadInput(
            f"component {component.name!r} holds no sequence: {reader.store.num_tokens:,} tokens, and a sequence of "
            f"{config.sequence_length:,} positions needs "
            + (f"{config.sequence_length + 1:,}" if config.packing == "concatenate" else "a document of at least 2"),
            next="leave it out, give it more text, or shorten sequence_length",
        )
    used = available
    if config.simulated is not None:
        used = available * config.simulated.experiment_tokens // config.simulated.target_tokens
    if used == 0:
        raise BadConfig(
            f"simulated epochs use no sequence of component {component.name!r}, which has {available:,}",
            next="give it more text, shorten sequence_length, or leave it out",
        )
    limit = None if component.max_epochs is None else int(Fraction(component.max_epochs) * used)
    if limit == 0:
        raise BadConfig(
            f"component {component.name!r}: max_epochs={component.max_epochs} of {used:,} sequences is none",
            next="raise max_epochs, or leave the component out",
        )
    return Component(name=component.name, available=available, used=used, limit=limit)


def stages_of(
    config: LoaderConfig, num_tokens: Mapping[str, int]
) -> tuple[Batches, list[tuple[int, Mapping[str, Fraction]]]]:
    """Batch sizes, and (first sequence, weights) wherever weights are given."""
    sizes = [(0, config.global_batch_size)]
    mixtures: list[tuple[int, Mapping[str, Fraction]]] = [(0, _weights(config, num_tokens))]
    last = 0
    for stage in config.stages:
        batches = Batches.of(sizes)
        if stage.start_step is not None:
            first = stage.start_step
        else:
            assert stage.start_tokens is not None
            sequence = -(-stage.start_tokens // config.sequence_length)
            # A stage begins with a batch: the first before which so many were read.
            first = batches.batch_at(sequence - 1) + 1
        if first <= last:
            raise BadConfig(
                f"LoaderConfig: a stage begins at step {first}, which must be behind step {last} of the one before it"
            )
        last = first
        if stage.global_batch_size is not None:
            sizes.append((first, stage.global_batch_size))
        if stage.weights is not None:
            weights = {name: Fraction(weight) for name, weight in stage.weights.items() if weight > 0}
            if not weights:
                raise BadConfig(f"LoaderConfig: the stage that begins at step {first} gives no component a weight")
            mixtures.append((batches.span(first)[0], weights))
    return Batches.of(sizes), mixtures


def _weights(config: LoaderConfig, num_tokens: Mapping[str, int]) -> dict[str, Fraction]:
    if config.weights == "tokens":
        return {name: Fraction(tokens) for name, tokens in num_tokens.items() if tokens}
    if config.weights == "sqrt":
        return {name: Fraction(math.sqrt(tokens)) for name, tokens in num_tokens.items() if tokens}
    given = {c.name: Fraction(1 if c.weight is None else c.weight) for c in config.components}
    return {name: weight for name, weight in given.items() if weight > 0}

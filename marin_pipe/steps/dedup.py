"""Deduplication: exact, by paragraphs, and by resemblance.

`find_exact_duplicates`, `find_repeated_paragraphs` and `find_near_duplicates` compose the steps below; their results
are attributes, for `consolidate` to apply.
"""

from collections.abc import Sequence
from typing import Literal

from marin_pipe.execution.context import StepContext
from marin_pipe.execution.handle import Step
from marin_pipe.execution.markers import Artifact, Runtime
from marin_pipe.execution.step import step
from marin_pipe.steps.artifacts import Attributes, Documents
from marin_pipe.steps.documents import attributes_artifact
from marin_pipe.steps.output import StepOutput


class TextHashes(Artifact):
    """A hash of each document's, or each paragraph's, normal form, with their manifest `hashes.json`."""

    num_hashes: int


class Signatures(Artifact):
    """MinHash band keys of documents, with their manifest `signatures.json`."""

    num_documents: int
    num_without_shingles: int
    """Documents without a word."""


class NearDuplicates(Attributes):
    """Near-duplicates, with all comparisons in `pairs/` and borderline pairs in `report.json`."""

    num_without_shingles: int
    """Documents without a word; never duplicates here."""
    num_candidates: int
    """Documents that share a bucket with another."""
    num_pairs: int
    """Pairs compared by true Jaccard similarity."""
    num_similar_pairs: int
    num_rejected_pairs: int
    precision: float | None
    """Similar pairs / compared pairs."""
    num_duplicates: int
    num_spared: int
    """Documents that would be dropped without verification, and are kept."""
    num_undecided: int
    """Documents kept because too many different ones shared their bucket."""
    num_in_cut_clusters: int
    """Documents in clusters too large to compare as a whole."""
    cluster_sizes: dict[str, int]
    """Number of verified clusters by size."""
    candidate_cluster_sizes: dict[str, int]
    """Number of clusters of candidates by size."""


@step
def document_hashes(
    documents: Documents,
    *,
    ignore_case: bool = False,
    ignore_whitespace: bool = False,
    ignore_punctuation: bool = False,
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> TextHashes:
    """Hash each document, by default as it is; for `exact_duplicates`.

    Args:
        documents: what to hash.
        ignore_case: compare case-folded texts.
        ignore_whitespace: runs of whitespace count as one space, and those at the ends not at all.
        ignore_punctuation: punctuation does not count.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.dedup.hashes import HashConfig, NormalForm, write_hashes

    normal_form = NormalForm(
        ignore_case=ignore_case, ignore_whitespace=ignore_whitespace, ignore_punctuation=ignore_punctuation
    )
    config = HashConfig(unit="document", normal_form=normal_form)
    summaries = write_hashes(documents.open(), config, StepOutput(ctx, workers=workers))
    return TextHashes(num_hashes=sum(summary["num_hashes"] for summary in summaries))


@step
def paragraph_hashes(
    documents: Documents,
    *,
    min_characters: int = 40,
    ignore_case: bool = True,
    ignore_whitespace: bool = True,
    ignore_punctuation: bool = False,
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> TextHashes:
    """Hash each paragraph (a line, with the line ends after it); for `repeated_paragraphs`.

    Args:
        documents: what to hash.
        min_characters: shorter paragraphs, in the form that is compared, are left alone.
        ignore_case: compare case-folded paragraphs.
        ignore_whitespace: runs of whitespace count as one space, and those at the ends not at all.
        ignore_punctuation: punctuation does not count.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.dedup.hashes import HashConfig, NormalForm, write_hashes

    normal_form = NormalForm(
        ignore_case=ignore_case, ignore_whitespace=ignore_whitespace, ignore_punctuation=ignore_punctuation
    )
    config = HashConfig(unit="paragraph", normal_form=normal_form, min_characters=min_characters)
    summaries = write_hashes(documents.open(), config, StepOutput(ctx, workers=workers))
    return TextHashes(num_hashes=sum(summary["num_hashes"] for summary in summaries))


@step
def exact_duplicates(
    documents: Documents,
    *,
    hashes: TextHashes,
    against: tuple[TextHashes, ...] = (),
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Attributes:
    """Mark documents whose text occurs earlier in the set, or in other sets; see `find_exact_duplicates`.

    Args:
        documents: of equal ones the first is kept.
        hashes: theirs, by `document_hashes`.
        against: hashes, made in the same way, of sets that come before this one and stay as they are.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.dedup import exact
    from marin_corpus.dedup.hashes import HashSet

    opened = documents.open()
    summaries = exact.find_exact_duplicates(
        opened,
        HashSet.open(hashes.path),
        StepOutput(ctx, workers=workers),
        against=[HashSet.open(other.path) for other in against],
    )
    return attributes_artifact(opened, exact.SCHEMA.names, summaries)


@step
def repeated_paragraphs(
    documents: Documents, *, hashes: TextHashes, workers: Runtime[int | None] = None, ctx: StepContext
) -> Attributes:
    """Mark paragraphs that occur earlier in the set or in the same document; see `find_repeated_paragraphs`.

    Args:
        documents: of equal paragraphs the first in the whole set is kept.
        hashes: theirs, by `paragraph_hashes`.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.dedup import paragraphs
    from marin_corpus.dedup.hashes import HashSet

    opened = documents.open()
    summaries = paragraphs.find_repeated_paragraphs(opened, HashSet.open(hashes.path), StepOutput(ctx, workers=workers))
    return attributes_artifact(opened, paragraphs.SCHEMA.names, summaries)


@step
def minhash(
    documents: Documents,
    *,
    shingle_unit: Literal["word", "character"] = "word",
    shingle_size: int = 5,
    num_permutations: int = 112,
    num_bands: int = 14,
    max_characters: int = 500_000,
    seed: int = 0,
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> Signatures:
    """Compute the MinHash band keys of each document; for `near_duplicates`.

    Args:
        documents: what to sign.
        shingle_unit: "character" for scripts that write no spaces.
        shingle_size: words or characters in a shingle. A shorter text is one shingle.
        num_permutations: MinHash functions.
        num_bands: bands that they are cut into. Documents that agree in a whole band are compared.
        max_characters: only so much of the beginning of a text is compared; texts that differ after it alone count as
            equal.
        seed: of the MinHash functions.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.dedup.minhash import MinHashConfig
    from marin_corpus.dedup.shingles import ShingleConfig
    from marin_corpus.dedup.signatures import write_signatures

    config = MinHashConfig(
        shingles=ShingleConfig(unit=shingle_unit, size=shingle_size, max_characters=max_characters),
        num_permutations=num_permutations,
        num_bands=num_bands,
        seed=seed,
    )
    summaries = write_signatures(documents.open(), config, StepOutput(ctx, workers=workers))
    return Signatures(
        num_documents=sum(summary["num_documents"] for summary in summaries),
        num_without_shingles=sum(summary["num_without_shingles"] for summary in summaries),
    )


@step
def near_duplicates(
    documents: Documents,
    *,
    signatures: Signatures,
    min_jaccard: float = 0.8,
    max_kept_in_bucket: int = 100,
    group_shingles: int = 16 << 20,
    workers: Runtime[int | None] = None,
    ctx: StepContext,
) -> NearDuplicates:
    """Compare the candidates and mark the near-duplicates; see `find_near_duplicates`.

    Args:
        documents: of similar ones the first is kept.
        signatures: theirs, by `minhash`.
        min_jaccard: similarity of the sets of shingles from which on a document is a duplicate.
        max_kept_in_bucket: where more documents than this share a band and prove different, the rest of them are kept
            without comparison, and counted as undecided.
        group_shingles: shingles that a worker holds at a time, 8 bytes each. A larger cluster of candidates is cut, and
            the documents in it counted.
        workers: processes to use at once; None for as many as the step's cores.
        ctx: filled in by the engine.
    """
    from marin_corpus.dedup import near
    from marin_corpus.dedup.signatures import SignatureSet

    config = near.NearDuplicateConfig(
        min_jaccard=min_jaccard, max_kept_in_bucket=max_kept_in_bucket, group_shingles=group_shingles
    )
    found = near.find_near_duplicates(
        documents.open(), SignatureSet.open(signatures.path), config, StepOutput(ctx, workers=workers)
    )
    return NearDuplicates(
        columns=tuple(near.SCHEMA.names), sums={"near_duplicate": found.num_duplicates}, **vars(found)
    )


def find_exact_duplicates(
    documents: Step[Documents],
    *,
    against: Sequence[Step[Documents]] = (),
    ignore_case: bool = False,
    ignore_whitespace: bool = False,
    ignore_punctuation: bool = False,
) -> Step[Attributes]:
    """Documents whose text occurs earlier in the set, or anywhere in the sets that come `against` them.

    Attributes: `exact_duplicate`, and `exact_duplicate_of`, the id of the kept document or null.

    Args:
        documents: the documents; of equal ones the first is kept.
        against: earlier sets, which stay as they are.
        ignore_case: compare case-folded texts.
        ignore_whitespace: runs of whitespace count as one space, and those at the ends not at all.
        ignore_punctuation: punctuation does not count.
    """
    form = {
        "ignore_case": ignore_case,
        "ignore_whitespace": ignore_whitespace,
        "ignore_punctuation": ignore_punctuation,
    }
    earlier = tuple(document_hashes(other, **form) for other in against)
    return exact_duplicates(documents, hashes=document_hashes(documents, **form), against=earlier)


def find_repeated_paragraphs(
    documents: Step[Documents],
    *,
    min_characters: int = 40,
    ignore_case: bool = True,
    ignore_whitespace: bool = True,
    ignore_punctuation: bool = False,
) -> Step[Attributes]:
    """Paragraphs (lines, with the line ends after them) that occur earlier in the set or in the same document.

    Attributes: `repeated_paragraph_spans` (edits that remove them), `num_repeated_paragraphs`,
    `repeated_paragraph_characters` and `repeated_paragraph_fraction` (of the text's characters).

    Args:
        documents: the documents; of equal paragraphs the first in the whole set is kept.
        min_characters: shorter paragraphs, in their normal form, are left alone.
        ignore_case: compare case-folded paragraphs.
        ignore_whitespace: runs of whitespace count as one space, and those at the ends not at all.
        ignore_punctuation: punctuation does not count.
    """
    hashes = paragraph_hashes(
        documents,
        min_characters=min_characters,
        ignore_case=ignore_case,
        ignore_whitespace=ignore_whitespace,
        ignore_punctuation=ignore_punctuation,
    )
    return repeated_paragraphs(documents, hashes=hashes)


def find_near_duplicates(
    documents: Step[Documents],
    *,
    min_jaccard: float = 0.8,
    shingle_unit: Literal["word", "character"] = "word",
    shingle_size: int = 5,
    num_permutations: int = 112,
    num_bands: int = 14,
) -> Step[NearDuplicates]:
    """Documents that resemble a kept one before them: Jaccard similarity of their shingles at least `min_jaccard`.

    Attributes: `near_duplicate`, `near_duplicate_of` (the id of the kept document) and `near_duplicate_jaccard`.
    Every pair was compared; only which pairs are compared is left to chance: one of similarity s with probability
    1 - (1 - s^(num_permutations / num_bands))^num_bands.

    Args:
        documents: the documents; of similar ones the first is kept.
        min_jaccard: similarity from which on a document is a duplicate.
        shingle_unit: "character" for scripts that write no spaces.
        shingle_size: words or characters in a shingle. A shorter text is one shingle.
        num_permutations: MinHash functions.
        num_bands: bands that they are cut into. For a lower `min_jaccard` take more bands of fewer rows.
    """
    signatures = minhash(
        documents,
        shingle_unit=shingle_unit,
        shingle_size=shingle_size,
        num_permutations=num_permutations,
        num_bands=num_bands,
    )
    return near_duplicates(documents, signatures=signatures, min_jaccard=min_jaccard)

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marin_corpus.dedup import hashes as hashes_module
from marin_corpus.dedup.exact import find_exact_duplicates
from marin_corpus.dedup.hashes import HashConfig, HashSet, NormalForm, first_occurrences, write_hashes
from marin_corpus.documents.attributes import AttributeSet, read_attributes
from marin_corpus.documents.schema import document_id
from marin_corpus.errors import BadConfig, CorruptData, Mismatch
from marin_corpus.output import LocalOutput
from speeches import files_of, write_documents

TEXTS = ["a b", "c", "a b", "A  b!", "", "c", "d", "", "a b"]
LOOSE = NormalForm(ignore_case=True, ignore_whitespace=True, ignore_punctuation=True)


def hashed(folder, documents, normal_form=NormalForm(), unit="document", workers=1):  # noqa: B008  frozen
    write_hashes(documents, HashConfig(unit=unit, normal_form=normal_form), LocalOutput(folder, workers=workers))
    return HashSet.open(folder)


def attributes_of(folder, documents):
    opened = AttributeSet.open(folder)
    opened.check_made_for(documents)
    tables = [read_attributes(part).to_pylist() for part in opened.parts]
    return [(row["exact_duplicate"], row["exact_duplicate_of"]) for table in tables for row in table]


@pytest.mark.parametrize("num_parts", [1, 4])
@pytest.mark.parametrize("loose", [False, True])
def test_the_first_of_equal_documents_is_kept(tmp_path, num_parts, loose):
    documents = write_documents(tmp_path / "documents", TEXTS, num_parts=num_parts)
    hashes = hashed(tmp_path / "hashes", documents, LOOSE if loose else NormalForm())
    summaries = find_exact_duplicates(documents, hashes, LocalOutput(tmp_path / "found"))
    forms = ["ab", "c", "ab", "ab", "", "c", "d", "", "ab"] if loose else TEXTS
    seen: dict[str, str] = {}
    expected = []
    for form, text in zip(forms, TEXTS, strict=True):
        expected.append((form in seen, document_id(seen[form]) if form in seen else None))
        seen.setdefault(form, text)
    assert attributes_of(tmp_path / "found", documents) == expected
    assert sum(s["sums"]["exact_duplicate"] for s in summaries) == sum(duplicate for duplicate, _ in expected)


def test_what_occurs_in_an_earlier_set_is_a_duplicate_and_the_earlier_set_stays(tmp_path):
    earlier = write_documents(tmp_path / "earlier", ["C", "x", "x"], num_parts=2)
    documents = write_documents(tmp_path / "documents", ["c", "new", "X "])
    form = NormalForm(ignore_case=True, ignore_whitespace=True)
    find_exact_duplicates(
        documents,
        hashed(tmp_path / "hashes", documents, form),
        LocalOutput(tmp_path / "found"),
        against=[hashed(tmp_path / "earlier-hashes", earlier, form)],
    )
    expected = [(True, document_id("C")), (False, None), (True, document_id("x"))]
    assert attributes_of(tmp_path / "found", documents) == expected


@given(
    st.lists(st.sampled_from(["a", "b", "c", "dd", ""]), min_size=1, max_size=30), st.integers(1, 4), st.integers(1, 40)
)
def test_first_occurrences_do_not_depend_on_parts_or_passes(tmp_path_factory, texts, num_parts, hashes_per_pass):
    folder = tmp_path_factory.mktemp("firsts")
    documents = write_documents(folder / "documents", texts, num_parts=num_parts)
    hashes = hashed(folder / "hashes", documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashes_module, "_HASHES_PER_PASS", hashes_per_pass)
        assert first_occurrences(hashes.parts).tolist() == [texts.index(text) for text in texts]


@pytest.mark.parametrize(
    ("normal_form", "form"),
    [
        (NormalForm(ignore_case=True), "Straße, Straße  Straße".casefold()),
        (NormalForm(ignore_whitespace=True), "Straße, Straße Straße"),
        (NormalForm(ignore_punctuation=True), "Straße Straße  Straße"),
        (NormalForm(), "Straße, Straße  Straße"),
    ],
)
def test_each_part_of_the_normal_form(normal_form, form):
    assert normal_form.apply("Straße, Straße  Straße") == form


def test_marks_of_other_scripts_are_no_punctuation():
    assert NormalForm(ignore_punctuation=True).apply("हिन्दी। «да»—„e“") == "हिन्दी даe"  # noqa: RUF001


def test_bytes_do_not_depend_on_workers(tmp_path):
    documents = write_documents(tmp_path / "documents", TEXTS * 3, num_parts=3)
    for workers in (1, 2):
        hashes = hashed(tmp_path / f"hashes{workers}", documents, LOOSE, workers=workers)
        find_exact_duplicates(documents, hashes, LocalOutput(tmp_path / f"found{workers}", workers=workers))
    for name in ("hashes", "found"):
        assert files_of(tmp_path / f"{name}1") == files_of(tmp_path / f"{name}2")


def test_hashes_of_other_documents_units_and_forms_are_refused(tmp_path):
    documents = write_documents(tmp_path / "documents", TEXTS)
    other = write_documents(tmp_path / "other", TEXTS[:3])
    hashes = hashed(tmp_path / "hashes", documents)
    output = LocalOutput(tmp_path / "found")
    with pytest.raises(Mismatch, match="not made for the documents"):
        find_exact_duplicates(other, hashes, output)
    with pytest.raises(Mismatch, match="each paragraph"):
        find_exact_duplicates(documents, hashed(tmp_path / "paragraphs", documents, unit="paragraph"), output)
    with pytest.raises(Mismatch, match="another normal form"):
        find_exact_duplicates(documents, hashes, output, against=[hashed(tmp_path / "loose", other, LOOSE)])
    with pytest.raises(Mismatch, match=r"has no hashes\.json"):
        HashSet.open(tmp_path / "documents")
    assert not (tmp_path / "found").exists()


def test_a_short_or_missing_file_is_named(tmp_path):
    documents = write_documents(tmp_path / "documents", TEXTS)
    hashes = hashed(tmp_path / "hashes", documents)
    file = tmp_path / "hashes" / "part-00000.parquet.hashes"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptData, match=r"part-00000\.parquet\.hashes has 143 bytes\n.*says 144"):
        find_exact_duplicates(documents, hashes, LocalOutput(tmp_path / "found"))
    file.unlink()
    with pytest.raises(CorruptData, match=r"part-00000\.parquet\.hashes is missing"):
        find_exact_duplicates(documents, hashes, LocalOutput(tmp_path / "found"))


def test_a_set_without_documents(tmp_path):
    documents = write_documents(tmp_path / "documents", [])
    find_exact_duplicates(documents, hashed(tmp_path / "hashes", documents), LocalOutput(tmp_path / "found"))
    assert pq.read_table(tmp_path / "found" / "part-00000.parquet").num_rows == 0


@pytest.mark.parametrize("bad", [{"unit": "line"}, {"unit": "paragraph", "min_characters": -1}, {"min_characters": 3}])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(BadConfig, match=list(bad)[-1]):
        HashConfig(**{"unit": "document", **bad})

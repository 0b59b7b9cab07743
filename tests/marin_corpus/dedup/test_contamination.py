import json
import random
import re
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from marin_corpus import words as words_module
from marin_corpus.dedup import contamination, contamination_index
from marin_corpus.dedup.contamination import ContaminationConfig, find_contamination, scan
from marin_corpus.dedup.contamination_index import EvaluationIndex, IndexConfig, build_index
from marin_corpus.documents.attributes import AttributeSet, read_attributes
from marin_corpus.errors import BadConfig, Mismatch
from marin_corpus.output import LocalOutput
from marin_corpus.words import split_words
from speeches import files_of, speeches, verses, write_documents


def index_of(folder: Path, *sets: list[str], config: IndexConfig | None = None) -> EvaluationIndex:
    """An index of the sets "set0", "set1", ..., in `folder / "index"`."""
    documents = [write_documents(folder / f"items{i}", texts, source=f"set{i}") for i, texts in enumerate(sets)]
    build_index(documents, config or IndexConfig(), LocalOutput(folder / "index"))
    return EvaluationIndex(str(folder / "index"))


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [row for part in AttributeSet.open(folder).parts for row in read_attributes(part).to_pylist()]


def python_manual() -> list[str]:
    """Paragraphs of the language reference: long and short ones, with punctuation, code and recurring phrases."""
    found = [paragraph for text in topics.values() for paragraph in re.split(r"\n\s*\n", text)]
    return list(dict.fromkeys(paragraph for paragraph in found if len(split_words(paragraph)) >= 5))


def disguised(text: str, draw: random.Random) -> str:
    """The same words in other case, with other punctuation and spaces."""
    words = [draw.choice([str.upper, str.lower, str.title])(word.decode()) for word in split_words(text)]
    return "".join(word + draw.choice([" ", "  ", "\n", ", ", " - ", "\u2014", '" ', "; "]) for word in words)


def planted(text: str, pieces: list[str], draw: random.Random) -> str:
    """The text with pieces at random places between its words."""
    words = text.split(" ")
    for piece in pieces:
        words.insert(draw.randrange(len(words) + 1), f"\n{piece}\n")
    return " ".join(words)


def true_overlaps(text: str, items: list[str], config: IndexConfig) -> dict[int, float]:
    """Overlap of a text with each item, by sets of joined words; items are different."""
    owners: Counter[str] = Counter()
    ngrams: list[set[str]] = []
    for item in items:
        words = [word.decode() for word in split_words(item)]
        size = config.size_for(len(words))
        ngrams.append({" ".join(words[i : i + size]) for i in range(len(words) - size + 1 if size else 0)})
        owners.update(ngrams[-1])
    running = f" {' '.join(word.decode() for word in split_words(text))} "
    found = {}
    for number, mine in enumerate(ngrams):
        weight = sum(1 / owners[ngram] for ngram in mine if f" {ngram} " in running)
        if weight:
            found[number] = weight / sum(1 / owners[ngram] for ngram in mine)
    return found


def test_no_speech_and_no_scripture_holds_the_python_manual(tmp_path: Path) -> None:
    """16 MB of text against 1,600 items that are surely not in it."""
    index = index_of(tmp_path, python_manual())
    bible = verses()
    chapters = ["\n".join(bible[i : i + 30]) for i in range(0, len(bible), 30)]
    found = list(scan([*speeches(), *chapters], index, 0.5))
    assert len(found) > 1000
    assert sum(counts["num_searched"] for counts in index.sets.values()) > 1500
    assert not [match for matches in found for match in matches if match.contaminates]


def test_the_two_addresses_that_quote_scripture_at_length_are_found(tmp_path: Path) -> None:
    """Lincoln in 1862 and Clinton in 1999, of 249 addresses and 31,000 verses."""
    texts = speeches()
    index = index_of(tmp_path, verses())
    found = [number for number, matches in enumerate(scan(texts, index, 0.5)) if any(m.contaminates for m in matches)]
    quotations = (
        "One generation passeth away and another generation cometh",
        "the repairer of the breach, the restorer",
    )
    assert found == [number for number, text in enumerate(texts) if any(words in text for words in quotations)]
    assert len(found) == 2


def test_planted_items_are_found_and_nothing_else(tmp_path: Path) -> None:
    draw = random.Random(1)
    manual = python_manual()
    index = index_of(tmp_path, manual)
    number_of = {index.item(number)["text"]: number for number in range(index.num_items)}
    usable = [text for text in manual if text in number_of and index.searched_I[number_of[text]]]
    chosen = draw.sample(usable, 1500)
    # Within whole speeches, 50 KB on average; every second one stays clean.
    texts = speeches()
    plants: dict[int, list[str]] = {}
    for item in chosen:
        plants.setdefault(2 * draw.randrange(len(texts) // 2), []).append(item)
    dirty = [
        planted(text, [disguised(item, draw) for item in plants.get(number, [])], draw)
        for number, text in enumerate(texts)
    ]
    num_found, num_short = 0, 0
    for number, matches in enumerate(scan(dirty, index, 0.5)):
        contaminating = {match.item for match in matches if match.contaminates}
        wanted = {number_of[item] for item in plants.get(number, [])}
        assert bool(contaminating) == bool(wanted)
        num_found += len(wanted & contaminating)
        num_short += sum(len(split_words(index.item(item)["text"])) < 13 for item in wanted)
        # What is found besides is part of a planted item.
        held = " ".join(f"{b' '.join(split_words(item)).decode()} |" for item in plants.get(number, []))
        for extra in contaminating - wanted:
            assert max(true_overlaps(held, [index.item(extra)["text"]], IndexConfig()).values()) >= 0.5
    assert num_short > 100
    assert num_found >= 0.99 * sum(len(set(items)) for items in plants.values())


def test_three_quarters_of_an_item_are_found_and_a_third_is_not(tmp_path: Path) -> None:
    items = [verse for verse in verses()[20000:21000] if len(split_words(verse)) >= 20]
    index = index_of(tmp_path, items)
    speech = speeches(1999, 1999)[0]
    for part, contaminates in ((0.75, True), (0.33, False)):
        texts = []
        for item in items[:300]:
            words = [word.decode() for word in split_words(item)]
            begin = (len(words) - round(part * len(words))) // 2
            texts.append(
                f"{speech[:3000]} {' '.join(words[begin : begin + round(part * len(words))])} {speech[3000:6000]}"
            )
        flags = [any(match.contaminates for match in matches) for matches in scan(texts, index, 0.5)]
        assert sum(flag == contaminates for flag in flags) >= 0.99 * len(flags)


def test_one_changed_word_hides_no_long_item(tmp_path: Path) -> None:
    items = [verse for verse in verses() if len(split_words(verse)) >= 39][:200]
    index = index_of(tmp_path, items)
    texts = []
    for item in items:
        words = [word.decode() for word in split_words(item)]
        words[len(words) // 2] = "changed"
        texts.append(" ".join(words))
    for number, matches in enumerate(scan(texts, index, 0.5)):
        assert number in {match.item for match in matches if match.contaminates}


def test_overlaps_are_those_of_sets_of_words(tmp_path: Path) -> None:
    draw = random.Random(3)
    items = list({tuple(split_words(verse)): verse for verse in verses()[:250]}.values())
    index = index_of(tmp_path, items)
    texts = [
        planted(speech[:4000], [" ".join(item.split()[draw.randrange(5) :]) for item in draw.sample(items, 6)], draw)
        for speech in speeches(1950, 1990)[:25]
    ]
    for text, matches in zip(texts, scan(texts, index, 0.5), strict=True):
        expected = true_overlaps(text, items, IndexConfig())
        required = {number: 1.0 if len(split_words(items[number])) < 13 else 0.5 for number in expected}
        contaminating = {number for number, overlap in expected.items() if overlap >= required[number] - 1e-9}
        assert {match.item for match in matches if match.contaminates} == contaminating
        for match in matches:
            assert match.overlap == pytest.approx(expected[match.item], abs=1e-8)
        if not contaminating:
            assert max(match.overlap for match in matches) == pytest.approx(max(expected.values()), abs=1e-8)


def test_what_items_share_does_not_flag_clean_documents(tmp_path: Path) -> None:
    instructions = " ".join(speeches(1862, 1862)[0].split()[:60])
    own = [verse for verse in verses()[:400] if 9 <= len(split_words(verse)) <= 30][:40]
    items = [f"{instructions}\n{verse}" for verse in own]
    index = index_of(tmp_path, items)
    # The speech that the instructions are taken from is clean; with a whole item it is not.
    speech = speeches(1862, 1862)[0]
    clean, dirty = scan([speech, f"{speech}\n{items[7].upper()}"], index, 0.5)
    assert [match.contaminates for match in clean] == [False]
    assert [(match.item, match.contaminates) for match in dirty] == [(7, True)]


def test_equal_hashes_of_other_words_count_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With hashes of 8 bits nearly every n-gram of a speech seems to be one of an item."""
    whole = contamination_index.mix
    monkeypatch.setattr(contamination_index, "mix", lambda values: whole(values) & 0xFF00000000000000)
    index = index_of(tmp_path, verses()[:50], ["four score and seven years ago our fathers"])
    for matches in scan(speeches(1980, 1985), index, 0.5):
        assert not any(match.contaminates for match in matches)
        assert all(match.overlap < 0.5 for match in matches)
    (matches,) = scan(["four score and seven years ago our fathers"], index, 0.5)
    assert [match.contaminates for match in matches] == [True]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Twelve speeches in three parts, four of them with a verse; an index of two sets."""
    draw = random.Random(5)
    items = [verse for verse in verses()[3000:3400] if len(split_words(verse)) >= 8]
    index_of(tmp_path, items[:100], items[100:200])
    texts = [*(speech[:8000] for speech in speeches(1900, 1911)[:10]), "", "No item at all."]
    for number, item in ((0, items[3]), (4, items[150]), (5, items[151]), (9, items[3])):
        texts[number] = planted(texts[number], [disguised(item, draw)], draw)
    write_documents(tmp_path / "documents", texts, num_parts=3)
    return tmp_path


def run_on(corpus: Path, name: str, *, workers: int = 1, shown: int = 200) -> contamination.Contamination:
    documents = contamination.DocumentSet.open(corpus / "documents")
    config = ContaminationConfig(shown_matches=shown)
    return find_contamination(documents, str(corpus / "index"), config, LocalOutput(corpus / name, workers=workers))


def test_numbers_add_up(corpus: Path) -> None:
    found = run_on(corpus, "out")
    rows = rows_of(corpus / "out")
    assert [number for number, row in enumerate(rows) if row["contaminated"]] == [0, 4, 5, 9]
    assert found.num_documents == len(rows) == 12
    assert found.num_contaminated == sum(found.contaminated_by_set.values()) == 4
    assert found.contaminated_by_set == {"set0": 2, "set1": 2}
    assert found.items_found_by_set == {"set0": 1, "set1": 2}
    assert [rows[number]["contamination_set"] for number in (0, 4, 5, 9)] == ["set0", "set1", "set1", "set0"]
    assert rows[0]["contamination_overlap"] == 1.0
    assert rows[0]["contamination_item"] == rows[9]["contamination_item"]
    assert rows[10] == {
        "contaminated": False,
        "contamination_overlap": 0.0,
        "contamination_item": None,
        "contamination_set": None,
    }
    AttributeSet.open(corpus / "out").check_made_for(contamination.DocumentSet.open(corpus / "documents"))


def test_bytes_do_not_depend_on_workers(corpus: Path) -> None:
    run_on(corpus, "one")
    run_on(corpus, "three", workers=3)
    one = files_of(corpus / "one")
    assert set(one) == {*(f"part-{i:05d}.parquet" for i in range(3)), "attributes.json", "matches.jsonl", "report.md"}
    assert files_of(corpus / "three") == one


def test_report_shows_both_texts(corpus: Path) -> None:
    run_on(corpus, "out")
    lines = (corpus / "out/matches.jsonl").read_text(encoding="utf-8").splitlines()
    texts = {
        batch["id"][i].as_py(): batch["text"][i].as_py()
        for part in contamination.DocumentSet.open(corpus / "documents").parts
        for batch in contamination.read_batches(part)
        for i in range(batch.num_rows)
    }
    assert len(lines) == 4
    for match in map(json.loads, lines):
        text = texts[match["document"]]
        assert text[match["start"] :].startswith(match["passage"])
        marked = " ".join(match["passage"][start:end] for start, end in match["marks"])
        shown = " ".join(match["item_text"][start:end] for start, end in match["item_marks"])
        assert split_words(marked) == split_words(shown) == split_words(match["item_text"])
    report = (corpus / "out/report.md").read_text(encoding="utf-8")
    assert "4 of 12 documents" in report
    assert report.count("<mark>") >= 8
    # The item that two documents hold.
    assert "## Items in most documents" in report


def test_passages_of_long_documents_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_module, "_SEGMENT_CHARACTERS", 500)
    items = [verse for verse in verses()[:100] if len(split_words(verse)) > 20]
    index_of(tmp_path, items)
    texts = [planted(speech, [items[number]], random.Random(number)) for number, speech in enumerate(speeches()[:20])]
    documents = write_documents(tmp_path / "documents", texts)
    found = find_contamination(documents, str(tmp_path / "index"), ContaminationConfig(), LocalOutput(tmp_path / "out"))
    assert found.num_contaminated == 20
    lines = (tmp_path / "out/matches.jsonl").read_text(encoding="utf-8").splitlines()
    for number, match in enumerate(map(json.loads, lines)):
        assert match["item_text"] == items[number]
        assert items[number] in match["passage"]
        assert texts[number][match["start"] :].startswith(match["passage"])


def test_report_is_capped(corpus: Path) -> None:
    found = run_on(corpus, "out", shown=3)
    assert found.num_contaminated == 4
    parts = [json.loads(line)["part"] for line in (corpus / "out/matches.jsonl").read_text().splitlines()]
    assert parts == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert "3 of 4 contaminated documents" in (corpus / "out/report.md").read_text(encoding="utf-8")


def test_foreign_text_is_no_markup_in_the_report(tmp_path: Path) -> None:
    item = "<script>alert(1)</script> | one two\nthree *four* five six `seven` eight [nine](http://ten)"
    index_of(tmp_path, [item])
    documents = write_documents(tmp_path / "documents", [f"Before\n\n| {item} | after " + "and so on " * 400])
    find_contamination(documents, str(tmp_path / "index"), ContaminationConfig(), LocalOutput(tmp_path / "out"))
    report = (tmp_path / "out/report.md").read_text(encoding="utf-8")
    (row,) = [line for line in report.splitlines() if "script" in line]
    assert row.count("|") == 3
    assert "<" not in row.replace("<mark>", "").replace("</mark>", "")
    assert not set("*`[]") & set(row)
    assert len(report) < 5000


def test_a_wrong_index_is_refused_before_work(tmp_path: Path) -> None:
    documents = write_documents(tmp_path / "documents", ["text"])
    with pytest.raises(Mismatch, match="contamination index"):
        find_contamination(documents, documents.url, ContaminationConfig(), LocalOutput(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("field", "value"), [("threshold", 0.0), ("threshold", 1.5), ("shown_matches", -1)])
def test_wrong_settings_are_refused(field: str, value: float) -> None:
    with pytest.raises(BadConfig, match=f"{field}={value}"):
        ContaminationConfig(**{field: value})  # type: ignore[arg-type]

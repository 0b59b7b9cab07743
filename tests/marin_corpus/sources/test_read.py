"""Files become the documents they hold, whatever their format, their sizes and the number of workers."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.sources import plan
from marin_corpus.sources.config import ReadConfig
from source_files import compressed, contents, json_lines, read, rows, texts, write_parquet

RECORDS = [
    {"text": "plain", "url": "http://a", "n": 1},
    {"text": 'two\nlines, "quoted", and a comma', "url": "http://b", "n": 2},
    {"text": "e\u0301 \U0001f600 \u4e2d\u6587 \u2028 \x00", "url": "http://c", "n": 3},
    {"text": "  kept as it is\r\n", "url": "http://d", "n": 4},
]
TEXTS: list[Any] = [record["text"] for record in RECORDS]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


def csv_bytes(records: list[dict[str, Any]], path: Path) -> bytes:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]))
        writer.writeheader()
        writer.writerows(records)
    return path.read_bytes()


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz", "a.jsonl.zst", "a.JSONL"])
def test_json_lines(raw: Path, tmp_path: Path, name: str) -> None:
    data = json_lines(RECORDS)
    (raw / name).write_bytes(compressed(name, data))
    result = read(raw, tmp_path / "out")
    found = rows(tmp_path / "out")
    assert [row["text"] for row in found] == TEXTS
    assert [row["id"] for row in found] == [xxhash.xxh3_128(text.encode()).hexdigest() for text in TEXTS]
    assert {row["source"] for row in found} == {"test"}
    # `offset` finds the record again in the decompressed file.
    assert [json.loads(data[row["meta"]["offset"] :].split(b"\n")[0])["text"] for row in found] == TEXTS
    assert {row["meta"]["file"] for row in found} == {name}
    assert result.dropped == {}


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.csv.zst"])
def test_csv(raw: Path, tmp_path: Path, name: str) -> None:
    (raw / name).write_bytes(compressed(name, csv_bytes(RECORDS, tmp_path / "plain.csv")))
    read(raw, tmp_path / "out", meta_fields=("url", "n"))
    found = rows(tmp_path / "out")
    assert [row["text"] for row in found] == TEXTS
    # The second text takes two lines.
    assert [row["meta"]["line"] for row in found] == [2, 3, 5, 6]
    assert [row["meta"]["n"] for row in found] == ["1", "2", "3", "4"]


def test_parquet(raw: Path, tmp_path: Path) -> None:
    columns = {name: [record[name] for record in RECORDS] for name in ("text", "url", "n")}
    write_parquet(raw / "a.parquet", columns, row_group_size=3)
    read(raw, tmp_path / "out", meta_fields=("n", "url"))
    assert [(row["text"], row["meta"]) for row in rows(tmp_path / "out")] == [
        (record["text"], {"file": "a.parquet", "row": number, "n": number, "url": record["url"]})
        for number, record in enumerate(RECORDS, 1)
    ]


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary<values=string, indices=int8>"])
def test_every_type_of_text_in_parquet(raw: Path, tmp_path: Path, kind: str) -> None:
    types = {"string": pa.string(), "large_string": pa.large_string(), "string_view": pa.string_view()}
    write_parquet(raw / "a.parquet", {"text": pa.array(TEXTS, types.get(kind, pa.dictionary(pa.int8(), pa.string())))})
    read(raw, tmp_path / "out")
    assert texts(tmp_path / "out") == TEXTS


def test_values_of_parquet_in_meta(raw: Path, tmp_path: Path) -> None:
    from datetime import datetime
    from decimal import Decimal

    columns = {
        "text": ["a"],
        "when": pa.array([datetime(2026, 1, 2, 3, 4, 5)], pa.timestamp("us")),
        "price": [Decimal("1.50")],
        "score": [float("nan")],
        "tags": [["x", "y"]],
        "none": pa.array([None], pa.string()),
    }
    write_parquet(raw / "a.parquet", columns)
    read(raw, tmp_path / "out", meta_fields=("when", "price", "score", "tags", "none"))
    meta = rows(tmp_path / "out")[0]["meta"]
    assert meta["when"].startswith("2026-01-02 03:04:05")
    assert (meta["price"], meta["score"], meta["tags"], meta["none"]) == ("1.50", None, ["x", "y"], None)


@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.htm", "a.txt.gz", "a.html.zst"])
def test_a_text_or_page_is_one_document(raw: Path, tmp_path: Path, name: str) -> None:
    text = "<p>one</p>\r\n\n<p>zwei \u00fc</p>"
    (raw / "b").mkdir()
    (raw / "b" / name).write_bytes(compressed(name, b"\xef\xbb\xbf" + text.encode()))
    read(raw, tmp_path / "out")
    assert [(row["text"], row["meta"]) for row in rows(tmp_path / "out")] == [(text, {"file": f"b/{name}"})]


def test_files_come_in_the_order_of_their_names_and_formats_mix(raw: Path, tmp_path: Path) -> None:
    (raw / "c.txt").write_text("third")
    (raw / "a.jsonl").write_bytes(json_lines([{"text": "first"}]))
    (raw / "b.csv").write_text("text\nsecond\n")
    (raw / ".hidden.bin").write_text("not asked for")
    read(raw, tmp_path / "out")
    assert texts(tmp_path / "out") == ["first", "second", "third"]


def test_line_ends_byte_order_mark_and_a_last_line_without_end(raw: Path, tmp_path: Path) -> None:
    (raw / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n  \n{"text": "b"}\r\n{"text": "c"}')
    (raw / "b.csv").write_bytes(b'\xef\xbb\xbftext,n\r\nd,1\r\n\r\n"e\r\nf",2')
    read(raw, tmp_path / "out")
    assert texts(tmp_path / "out") == ["a", "b", "c", "d", "e\r\nf"]


def test_other_encodings(raw: Path, tmp_path: Path) -> None:
    (raw / "a.jsonl").write_bytes('{"text": "\u00e9t\u00e9"}\n'.encode("latin-1"))
    (raw / "b.txt").write_bytes("\u00fc".encode("latin-1"))
    read(raw, tmp_path / "out", encoding="latin-1")
    assert texts(tmp_path / "out") == ["\u00e9t\u00e9", "\u00fc"]
    (raw / "a.jsonl").unlink()
    (raw / "b.txt").write_bytes("\u00fc".encode("utf-16"))
    read(raw, tmp_path / "out", encoding="utf-16")
    assert texts(tmp_path / "out") == ["\u00fc"]


def test_dotted_names_and_a_key_with_dots(raw: Path, tmp_path: Path) -> None:
    records = [{"doc": {"body": {"raw": "inner"}}, "m": {"lang": "en"}}, {"doc.body.raw": "outer", "m": {}}]
    (raw / "a.jsonl").write_bytes(json_lines(records))
    read(raw, tmp_path / "out", text_field="doc.body.raw", meta_fields=("m.lang",))
    found = rows(tmp_path / "out")
    assert [row["text"] for row in found] == ["inner", "outer"]
    assert [row["meta"].get("m.lang") for row in found] == ["en", None]
    (raw / "a.jsonl").unlink()
    write_parquet(raw / "a.parquet", {"doc": [{"body": {"raw": "inner"}, "other": 1}]})
    read(raw, tmp_path / "out2", text_field="doc.body.raw")
    assert texts(tmp_path / "out2") == ["inner"]


def test_chats_are_read_alike_from_json_and_parquet(raw: Path, tmp_path: Path) -> None:
    chats = [
        [{"role": "user", "content": "h\u00ef"}, {"role": "assistant", "content": "hello"}],
        [{"content": "1+1?", "role": "user"}, {"content": "2", "role": "assistant"}],
    ]
    (raw / "a.jsonl").write_bytes(json_lines([{"messages": chat, "id": 1} for chat in chats]))
    read(raw, tmp_path / "json", json_fields=("messages",))
    (raw / "a.jsonl").unlink()
    write_parquet(raw / "a.parquet", {"messages": chats})
    read(raw, tmp_path / "parquet", json_fields=("messages",))
    assert texts(tmp_path / "json") == texts(tmp_path / "parquet")
    assert [json.loads(text) for text in texts(tmp_path / "json")] == [{"messages": chat} for chat in chats]


def test_prompt_and_completion(raw: Path, tmp_path: Path) -> None:
    (raw / "a.jsonl").write_bytes(json_lines([{"completion": "c", "prompt": "p"}, {"prompt": "", "completion": None}]))
    result = read(raw, tmp_path / "out", json_fields=("prompt", "completion"))
    assert texts(tmp_path / "out") == ['{"completion":"c","prompt":"p"}']
    assert result.dropped == {"empty": 1}


def test_empty_texts_are_left_out_and_counted(raw: Path, tmp_path: Path) -> None:
    records = [{"text": text} for text in ("", "a", " \n\t\u00a0", None, "b")]
    (raw / "a.jsonl").write_bytes(json_lines(records))
    result = read(raw, tmp_path / "out")
    assert texts(tmp_path / "out") == ["a", "b"]
    assert result.dropped == {"empty": 3}
    skipped = json.loads((tmp_path / "out" / "skipped.json").read_bytes())
    assert [(s["reason"], s["file"], s["line"]) for s in skipped["samples"]] == [
        ("empty", "a.jsonl", line) for line in (1, 3, 4)
    ]


BAD_LINES = {
    b"{": "invalid_json",
    b'{"text": NaN}': "invalid_json",
    b'{"text": "a", "x": 1e5, "y": -Infinity}': "invalid_json",
    b'{"text": ' + b"[" * 100_000: "invalid_json",
    b'{"text": ' + b"1" * 5000 + b"}": "invalid_json",
    b'["text"]': "not_an_object",
    b'{"txt": "a"}': "missing_field",
    b'{"text": 5}': "wrong_type",
    b'{"text": "\xff"}': "invalid_encoding",
    b'{"text": "\\ud800"}': "lone_surrogate",
    b'{"text": "' + b"a" * 300_000 + b'"}': "too_long",
}


def test_bad_records_can_be_skipped_and_are_counted_and_sampled(raw: Path, tmp_path: Path) -> None:
    good = b'{"text": "good"}\n'
    (raw / "a.jsonl").write_bytes(good + b"".join(line + b"\n" + good for line in BAD_LINES))
    result = read(raw, tmp_path / "out", on_bad_record="skip", max_record_bytes=200_000)
    assert texts(tmp_path / "out") == ["good"] * (len(BAD_LINES) + 1)
    reasons = list(BAD_LINES.values())
    assert result.dropped == {reason: reasons.count(reason) for reason in sorted(set(reasons))}
    skipped = json.loads((tmp_path / "out" / "skipped.json").read_bytes())
    assert skipped["counts"] == result.dropped
    assert [(s["line"], s["reason"]) for s in skipped["samples"]] == [
        (2 + 2 * index, reason) for index, reason in enumerate(reasons)
    ]


def test_samples_are_few(raw: Path, tmp_path: Path) -> None:
    (raw / "a.jsonl").write_bytes(b'{"text": "a"}\n' + b"{\n" * 1000)
    assert read(raw, tmp_path / "out", on_bad_record="skip").dropped == {"invalid_json": 1000}
    assert len(json.loads((tmp_path / "out" / "skipped.json").read_bytes())["samples"]) == 5


def test_skipping_in_csv_goes_on_with_the_next_row(raw: Path, tmp_path: Path) -> None:
    (raw / "a.csv").write_bytes(b'text,n\na,1\nb\n"c"x,3\nd\xff,4\n"e,\nf",5\n' + b"g" * 5000 + b",6\nh,7\n")
    result = read(raw, tmp_path / "out", on_bad_record="skip", max_record_bytes=1000)
    assert texts(tmp_path / "out") == ["a", "e,\nf", "h"]
    assert result.dropped == {"invalid_csv": 1, "invalid_encoding": 1, "ragged_row": 1, "too_long": 1}


def test_bytes_that_are_not_utf8_in_a_parquet_text(raw: Path, tmp_path: Path) -> None:
    offsets = pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0")
    write_parquet(raw / "a.parquet", {"text": pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"a\xffb"))})
    assert read(raw, tmp_path / "out", on_bad_record="skip").dropped == {"invalid_encoding": 1}
    assert [(row["text"], row["meta"]["row"]) for row in rows(tmp_path / "out")] == [("a", 1), ("b", 3)]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SHARD_BYTES", 4000)


@pytest.mark.usefixtures("small_shards")
def test_bytes_depend_neither_on_workers_nor_on_the_place(raw: Path, tmp_path: Path) -> None:
    records = [{"text": f"document {index} " + "x" * (index % 50), "n": index} for index in range(400)]
    (raw / "a.jsonl").write_bytes(json_lines(records[:150]))
    (raw / "b.jsonl.zst").write_bytes(compressed("b.zst", json_lines(records[150:250])))
    write_parquet(raw / "c.parquet", {"text": [r["text"] for r in records[250:]]}, row_group_size=40)
    outputs = []
    for workers in (1, 2, 5):
        read(raw, tmp_path / str(workers), workers=workers)
        outputs.append(contents(tmp_path / str(workers)))
    assert outputs[0] == outputs[1] == outputs[2]
    assert len(outputs[0]) > 5
    assert texts(tmp_path / "1") == [record["text"] for record in records]
    moved = tmp_path / "elsewhere"
    os.rename(raw, moved)
    read(moved, tmp_path / "again")
    assert contents(tmp_path / "again") == outputs[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": " "}, "source"),
        ({"json_fields": ("a",), "text_field": "b"}, "exclude each other"),
        ({"meta_fields": ("a", "a")}, "different"),
        ({"meta_fields": ("offset",)}, "offset"),
        ({"text_field": ""}, "text_field"),
        ({"encoding": "klingon"}, "klingon"),
        ({"encoding": "rot13"}, "rot13"),
        ({"max_record_bytes": 0}, "max_record_bytes=0"),
        ({"on_bad_record": "ignore"}, "on_bad_record='ignore'"),
    ],
)
def test_wrong_configurations(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        ReadConfig(**{"source": "x", **options})


def test_fields_of_files_that_have_none(raw: Path, tmp_path: Path) -> None:
    (raw / "a.txt").write_text("a")
    with pytest.raises(BadConfig, match=r"a\.txt has no fields"):
        read(raw, tmp_path / "out", meta_fields=("url",))
    (raw / "b.jsonl").write_bytes(json_lines(RECORDS))
    with pytest.raises(BadConfig, match=r"utf-16.*b\.jsonl"):
        read(raw, tmp_path / "out", encoding="utf-16")


def test_meta_fields_that_no_record_has_are_a_mistake(raw: Path, tmp_path: Path) -> None:
    (raw / "a.jsonl").write_bytes(json_lines(RECORDS))
    with pytest.raises(BadInput, match="'ulr'"):
        read(raw, tmp_path / "out", meta_fields=("url", "ulr"))
    assert not (tmp_path / "out" / "documents.json").exists()

"""Input that cannot be used: one error that names the file, the place and what to do; nothing published."""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.output import LocalOutput
from marin_corpus.sources import plan
from marin_corpus.sources.config import ReadConfig
from marin_corpus.sources.read import read_documents
from marin_corpus.sources.streams import SourceFile, find_files
from source_files import compressed, json_lines, read, texts, write_parquet

MANY = [{"text": f"{index} some text that does not repeat {index * 7919 % 10007}"} for index in range(2000)]
GOOD = b'{"text": "good"}\n'


def refused(raw: Path, out: Path, **options: Any) -> BadInput:
    with pytest.raises(BadInput) as caught:
        read(raw, out, **options)
    assert not (out / "documents.json").exists()
    assert caught.value.next, "an error says what to do"
    return caught.value


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


LINES: dict[str, tuple[bytes, str]] = {
    "invalid JSON": (
        b'{"text": "a" "b"}',
        'invalid JSON: Expecting \',\' delimiter at character 14: {"text": "a" "b"}',
    ),
    "more than one value": (b'{"text": "a"} {"text": "b"}', "Extra data at character 15"),
    "NaN": (b'{"text": "a", "score": NaN}', "NaN is no JSON value"),
    "an array": (b'[{"text": "a"}]', "not a JSON object"),
    "no field": (b'{"txt": "a", "url": "b"}', "no field 'text'; there is 'txt', 'url'"),
    "a number": (b'{"text": 5}', "'text' is a number, not text"),
    "an object": (b'{"text": {"a": 1}}', "'text' is an object, not text"),
    "a boolean": (b'{"text": true}', "'text' is a boolean, not text"),
    "invalid UTF-8": (b'{"text": "ab\xff"}', f"byte {6 * len(GOOD) + 12} of the file (0xff) is not valid utf-8"),
    "a surrogate": (b'{"text": "a\\ud800b"}', "the text holds half of a character, \\ud800"),
    "an escape": (b'{"text": "\\x"}', "Invalid \\escape"),
    "a control character": (b'{"text": "a\tb"}', "Invalid control character"),
}


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("name", ["deep/a.jsonl", "a.jsonl.gz"])
def test_a_bad_line_is_named(raw: Path, tmp_path: Path, kind: str, name: str) -> None:
    line, message = LINES[kind]
    (raw / name).parent.mkdir(exist_ok=True)
    (raw / name).write_bytes(compressed(name, GOOD * 6 + line + b"\n" + GOOD))
    error = refused(raw, tmp_path / "out")
    assert error.what.startswith(f"{name}, line 7: ")
    assert message in error.what
    assert 'on_bad_record="skip"' in error.next


def test_errors_cross_from_worker_processes(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SHARD_BYTES", 100)
    (raw / "a.jsonl").write_bytes(GOOD * 10)
    (raw / "b.jsonl").write_bytes(GOOD * 3 + b"{\n")
    error = refused(raw, tmp_path / "out", workers=2)
    assert error.what.startswith("b.jsonl, line 4: invalid JSON")
    assert 'on_bad_record="skip"' in error.next


def test_nesting_has_one_bound_however_deep_the_stack_is(raw: Path, tmp_path: Path) -> None:
    def line(depth: int) -> bytes:
        inner = b"[" * (depth - 1) + b"1e999" + b"]" * (depth - 1)
        return b'{"text": "%d", "m": ' % depth + inner + b"}\n"

    flat = b'{"text": "flat", "m": "' + b'[{\\"' * 500 + b'", "n": [' + b"{}, " * 500 + b"{}]}\n"
    (raw / "a.jsonl").write_bytes(line(200) + line(201) + line(100_000) + flat)
    options: dict[str, Any] = {"on_bad_record": "skip", "meta_fields": ("m",)}

    def below(frames: int, out: Path) -> list[str]:
        if frames:
            return below(frames - 1, out)
        assert read(raw, out, **options).dropped == {"invalid_json": 2}
        return texts(out)

    assert below(0, tmp_path / "0") == below(500, tmp_path / "500") == ["200", "flat"]
    assert "line 2: objects and arrays nest deeper than 200" in refused(raw, tmp_path / "out").what


def test_a_name_that_is_not_utf8(raw: Path, tmp_path: Path) -> None:
    (raw / "a.jsonl").write_bytes(GOOD)
    (raw / os.fsdecode(b"\xff.jsonl")).write_bytes(GOOD)
    assert r"'\udcff.jsonl' is not valid UTF-8" in refused(raw, tmp_path / "out", on_bad_record="skip").what


@pytest.mark.parametrize("encoding", ["undefined", "utf-8\0", "rot13", ""])
def test_an_encoding_that_is_none(encoding: str) -> None:
    with pytest.raises(BadConfig, match="encoding="):
        ReadConfig(source="x", encoding=encoding)


def test_a_pattern_that_is_no_glob(raw: Path) -> None:
    with pytest.raises(BadConfig, match=r"pattern='a\*\*b' is no glob"):
        find_files(raw, "a**b")


def test_a_surrogate_in_meta(raw: Path, tmp_path: Path) -> None:
    (raw / "a.jsonl").write_bytes(b'{"text": "a", "url": "\\udc00"}\n')
    assert "a field of meta holds half of a character" in refused(raw, tmp_path / "out", meta_fields=("url",)).what


def test_the_line_is_right_within_a_byte_range(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SHARD_BYTES", 5000)
    lines = json_lines(MANY).splitlines(keepends=True)
    for number in (1, 100, 1000, 1999, 2000):
        damaged = [*lines[: number - 1], b"oops\n", *lines[number:]]
        (raw / "a.jsonl").write_bytes(b"".join(damaged))
        assert len(plan.plan_shards(find_files(raw, "*"), ReadConfig(source="x"))) > 10
        assert f"a.jsonl, line {number}: invalid JSON" in refused(raw, tmp_path / "out").what


def test_long_lines_are_refused_in_bounded_memory(raw: Path, tmp_path: Path) -> None:
    import tracemalloc

    with (raw / "a.jsonl").open("wb") as file:
        file.write(GOOD)
        file.truncate(300 << 20)  # a line of NUL bytes that takes no disk
    tracemalloc.start()
    error = refused(raw, tmp_path / "out", max_record_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "a.jsonl, line 2: the line has" in error.what
    assert peak < 16 << 20
    (raw / "a.jsonl").unlink()
    (raw / "a.txt").write_bytes(b"a" * 2000)
    assert "a.txt: the file has more than 1000 bytes" in refused(raw, tmp_path / "out", max_record_bytes=1000).what


@pytest.mark.parametrize("skip", ["error", "skip"])
@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.csv.gz", "a.txt.zst"])
def test_truncated_and_damaged_files_are_never_skipped(raw: Path, tmp_path: Path, name: str, skip: str) -> None:
    plain = b"text\n" + b"".join(b"%d\n" % (i * 7919) for i in range(9000)) if "csv" in name else json_lines(MANY)
    whole = compressed(name, plain)
    (raw / "b.jsonl").write_bytes(GOOD)
    for length in (len(whole) - 1, len(whole) - 9, len(whole) // 2):
        (raw / name).write_bytes(whole[:length])
        error = refused(raw, tmp_path / "out", on_bad_record=skip)
        assert f"{name} is truncated" in error.what
        assert "again" in error.next
    (raw / name).write_bytes(whole + b"something else")
    assert f"{name} is damaged" in refused(raw, tmp_path / "out", on_bad_record=skip).what
    (raw / name).write_bytes(plain)
    assert f"{name} is damaged" in refused(raw, tmp_path / "out", on_bad_record=skip).what


def test_files_of_several_members_are_whole(raw: Path, tmp_path: Path) -> None:
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    one, two = json_lines(MANY[:3]), json_lines(MANY[3:5])
    (raw / "a.jsonl.gz").write_bytes(compressed(".gz", one) + compressed(".gz", two))
    (raw / "b.jsonl.zst").write_bytes(skippable + compressed(".zst", one) + skippable + compressed(".zst", two))
    read(raw, tmp_path / "out")
    assert texts(tmp_path / "out") == [record["text"] for record in MANY[:5]] * 2


def test_csv(raw: Path, tmp_path: Path) -> None:
    cases: dict[bytes, str] = {
        b"text,n\na,1\nb\n": "a.csv, line 3: the row has 1 fields, the header 2",
        b"text,n\na,1\nb,2,3\n": "a.csv, line 3: the row has 3 fields, the header 2",
        b'text,n\na,1\n"b"c,2\n': "a.csv, line 3: invalid CSV",
        b'text,n\na,1\n"b,2\nc,3\n': "a.csv, line 3: invalid CSV: unexpected end of data",
        b'text,n\n"a\nb",1\nc\xff,2\n': "a.csv, line 4: byte 16 of the file (0xff) is not valid utf-8",
        b"body,n\na,1\n": "a.csv has no column 'text'",
        b"text,text\na,1\n": "two columns are called 'text'",
        b"\n": "there is no header",
    }
    for data, message in cases.items():
        (raw / "a.csv").write_bytes(data)
        assert message in refused(raw, tmp_path / "out").what
    (raw / "a.csv").write_bytes(b"body,n\na,1\n")
    assert "it has body, n" in refused(raw, tmp_path / "out").why


def test_text_that_is_not_utf8(raw: Path, tmp_path: Path) -> None:
    (raw / "a.txt").write_bytes(b"one\ntwo\nthr\xe9e")
    assert "a.txt, line 3: byte 11 of the file (0xe9) is not valid utf-8" in refused(raw, tmp_path / "out").what


def test_parquet(raw: Path, tmp_path: Path) -> None:
    write_parquet(raw / "a.parquet", {"text": ["a"], "url": ["u"], "m": [{"x": 1}]})
    path = raw / "b.parquet"

    def case(columns: dict[str, Any], **options: Any) -> str:
        write_parquet(path, columns)
        return str(refused(raw, tmp_path / "out", **options))

    assert "b.parquet has no column 'text'\nit has body, url" in case({"body": ["a"], "url": ["u"]})
    assert "b.parquet: column 'text' has the type int64, not text" in case({"text": [1]})
    assert "b.parquet: column 'text' has the type binary, not text" in case({"text": [b"a"]})
    assert "b.parquet has no column 'url'\nit has text" in case({"text": ["a"]}, meta_fields=("url",))
    assert "it has m.y" in case({"text": ["a"], "m": [{"y": 1}]}, meta_fields=("m.x",))
    assert "holds bytes" in case({"text": ["a"], "url": [b"u"]}, meta_fields=("url",))
    nested = pa.array([[0]], pa.list_(pa.timestamp("ns")))
    far = pa.array([[1 << 50]], pa.list_(pa.timestamp("ms")))
    assert "row 1: a value of a column cannot be said in JSON" in case(
        {"text": ["a"], "url": far}, meta_fields=("url",)
    )
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"])
    pq.write_table(twice, path)
    assert "b.parquet: 2 columns are called 'text'" in refused(raw, tmp_path / "out").what
    assert "nanoseconds" in case({"text": ["a"], "url": nested}, meta_fields=("url",))
    whole = (raw / "a.parquet").read_bytes()
    for data in (whole[:-1], whole[: len(whole) // 2], b"PAR1", GOOD):
        path.write_bytes(data)
        assert "b.parquet is not a whole parquet file" in refused(raw, tmp_path / "out").what


def test_parquet_with_a_damaged_page(raw: Path, tmp_path: Path) -> None:
    write_parquet(raw / "a.parquet", {"text": [record["text"] for record in MANY]}, compression="zstd")
    data = bytearray((raw / "a.parquet").read_bytes())
    data[4:400] = bytes(396)
    (raw / "a.parquet").write_bytes(data)
    assert "a.parquet is damaged" in refused(raw, tmp_path / "out").what


def test_a_null_in_parquet_is_an_empty_text(raw: Path, tmp_path: Path) -> None:
    write_parquet(raw / "a.parquet", {"text": ["a", None, "b"]})
    assert read(raw, tmp_path / "out").dropped == {"empty": 1}
    assert texts(tmp_path / "out") == ["a", "b"]


def spy(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of shards that were begun."""
    begun: list[str] = []

    def run_shards(_self: LocalOutput, shards: dict[str, Any], _function: Callable[..., Any]) -> dict[str, Any]:
        begun.extend(shards)
        return {}

    monkeypatch.setattr(LocalOutput, "run_shards", run_shards)
    return begun


def test_what_can_be_seen_of_all_files_is_seen_before_any_work(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = spy(monkeypatch)
    (raw / "a.jsonl").write_bytes(GOOD)
    bad = {
        "z.jsonl": (b"", "z.jsonl is empty: it has 0 bytes"),
        "z.bin": (b"a", "z.bin: its suffix does not say"),
        "z": (b"a", "z: its suffix does not say"),
        "jsonl": (b"a", "jsonl: its suffix does not say"),
        "z.gz": (b"a", "z.gz: its suffix does not say"),
        "z.parquet.gz": (b"a", "z.parquet.gz: compressed parquet"),
        "z.parquet": (b"PAR1", "z.parquet is not a whole parquet file"),
        "z.csv": (b"a,b\n", "z.csv has no column 'text'"),
    }
    for name, (data, message) in bad.items():
        (raw / name).write_bytes(data)
        assert message in refused(raw, tmp_path / "out").what
        (raw / name).unlink()
    gone = [SourceFile(name="gone.jsonl", url=str(raw / "gone.jsonl"))]
    with pytest.raises(BadInput, match=r"gone\.jsonl: there is no such file"):
        read_documents(gone, ReadConfig(source="x"), LocalOutput(tmp_path / "out"))
    twice = [SourceFile(name="a.jsonl", url=str(raw / "a.jsonl"))] * 2
    with pytest.raises(BadInput, match=r"two files are called a\.jsonl"):
        read_documents(twice, ReadConfig(source="x"), LocalOutput(tmp_path / "out"))
    with pytest.raises(BadInput, match="there is no file to read"):
        read_documents([], ReadConfig(source="x"), LocalOutput(tmp_path / "out"))
    with pytest.raises(BadInput, match=r"no file below .* matches '\*\.json'"):
        find_files(raw, "*.json")
    assert begun == []


def test_the_format_can_be_given(raw: Path, tmp_path: Path) -> None:
    (raw / "a.json").write_bytes(GOOD)
    (raw / "b.data.gz").write_bytes(compressed(".gz", GOOD))
    assert 'format="jsonl"' in refused(raw, tmp_path / "out").next
    read(raw, tmp_path / "out", format="jsonl")
    assert texts(tmp_path / "out") == ["good", "good"]


def test_no_document_at_all_is_an_error_that_shows_why(raw: Path, tmp_path: Path) -> None:
    (raw / "a.jsonl").write_bytes(b'{"body": "a"}\n{"body": "b"}\n')
    error = refused(raw, tmp_path / "out", on_bad_record="skip")
    assert "2 missing_field" in error.what
    assert "there is 'body'" in error.why
    (raw / "a.jsonl").write_bytes(b"\n")
    assert "they hold no record" in refused(raw, tmp_path / "out").what


def test_a_file_that_changes_while_it_is_read(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (raw / "a.jsonl").write_bytes(GOOD)
    original = LocalOutput.run_shards

    def append_and_run(self: LocalOutput, *arguments: Any) -> dict[str, Any]:
        (raw / "a.jsonl").write_bytes(GOOD * 2)
        return original(self, *arguments)

    monkeypatch.setattr(LocalOutput, "run_shards", append_and_run)
    assert "a.jsonl has changed while it was read: 34 bytes instead of 17" in refused(raw, tmp_path / "out").what

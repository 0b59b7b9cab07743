"""Archives: whole ones unpack to what was packed; what would write elsewhere or fill the disk leaves nothing."""

import gzip
import io
import random
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.sources.archives import UnpackLimits, unpack

FILES = {"a.txt": b"first", "sub/b.txt": b"second " * 1000, "sub/deep/c.bin": bytes(range(256)), "empty": b""}
KINDS = ["zip", "tar", "tar.gz", "tgz", "tar.bz2", "tar.xz", "tar.zst"]


def tar_bytes(members: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def make(folder: Path, kind: str, files: dict[str, bytes]) -> Path:
    path = folder / f"archive.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path
    members = [(tarfile.TarInfo(name), content) for name, content in files.items()]
    if kind == "tar.zst":
        path.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(tar_bytes(members)))
        return path
    mode = {"tar": "w", "tar.gz": "w:gz", "tgz": "w:gz", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}[kind]
    path.write_bytes(tar_bytes(members, mode))
    return path


def unpacked(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_packed_comes_out(tmp_path: Path, kind: str) -> None:
    result = unpack(make(tmp_path, kind, FILES), tmp_path / "out")
    assert unpacked(tmp_path / "out") == FILES
    assert (result.num_files, result.num_bytes) == (4, sum(map(len, FILES.values())))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.6, 0.95])
def test_a_truncated_archive_leaves_nothing(tmp_path: Path, kind: str, kept: float) -> None:
    path = make(tmp_path, kind, {f"{number}.bin": bytes(range(256)) * number for number in range(1, 40)})
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    with pytest.raises(BadInput, match="damaged"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.bz2", "tar.xz", "tar.zst"])
@pytest.mark.parametrize("missing", [1, 4, 8])
def test_the_last_bytes_count(tmp_path: Path, kind: str, missing: int) -> None:
    """All members are there; but whether they are whole stands at the very end."""
    path = make(tmp_path, kind, {"data": random.Random(0).randbytes(100_000)})
    path.write_bytes(path.read_bytes()[:-missing])
    with pytest.raises(BadInput, match="damaged"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_damage_of_any_kind_is_said_to_be_the_archives(tmp_path: Path, kind: str) -> None:
    """Never an error of a library, nor half an archive; where there is a checksum, never other content."""
    content = make(tmp_path, kind, FILES | {"na\u00efve": b"name"}).read_bytes()
    draw = random.Random(0)
    for number in range(60):
        damaged = bytearray(content)
        at = draw.randrange(len(damaged))
        damaged[at : at + draw.randrange(9)] = draw.randbytes(draw.randrange(9))
        path = tmp_path / str(number) / f"archive.{kind}"
        path.parent.mkdir()
        path.write_bytes(damaged)
        try:
            unpack(path, path.parent / "out")
        except BadInput:
            assert list((path.parent / "out").iterdir()) == []
        else:
            if kind not in ("zip", "tar"):  # of names there is no checksum in a zip, nor of anything in a tar
                assert unpacked(path.parent / "out") == FILES | {"na\u00efve": b"name"}


@pytest.mark.parametrize("name", ["b", "c"])
@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_a_damaged_header_is_not_taken_for_the_end(tmp_path: Path, kind: str, name: str) -> None:
    content = bytearray(tar_bytes([(tarfile.TarInfo(each), b"") for each in "abc"]))
    content[512 * "abc".index(name)] ^= 1
    path = tmp_path / f"archive.{kind}"
    path.write_bytes(gzip.compress(content) if kind == "tar.gz" else content)
    with pytest.raises(BadInput, match="damaged"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_archives_joined_end_to_end_are_not_read_by_halves(tmp_path: Path) -> None:
    one, other = (tar_bytes([(tarfile.TarInfo(name), b"content")]) for name in ("one", "other"))
    (tmp_path / "archive.tar").write_bytes(one + other)
    with pytest.raises(BadInput, match="something follows its end"):
        unpack(tmp_path / "archive.tar", tmp_path / "out")


def test_other_names_in_a_tar_are_refused(tmp_path: Path) -> None:
    content = bytearray(tar_bytes([(tarfile.TarInfo("caf?"), b"")]))
    content[3] = 0xE9
    content[148:156] = b"%06o\0 " % (sum(content[:148]) + 8 * 32 + sum(content[156:512]))
    (tmp_path / "archive.tar").write_bytes(content)
    with pytest.raises(BadInput, match="not UTF-8"):
        unpack(tmp_path / "archive.tar", tmp_path / "out")


@pytest.mark.parametrize(("kind", "name"), [("zip", "."), ("tar", "."), ("tar", "")])
def test_a_file_without_a_name_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    with pytest.raises(BadInput, match="has no name"):
        unpack(make(tmp_path, kind, {name: b"content"}), tmp_path / "out")


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.xz", "tar.zst"])
def test_a_flipped_byte_is_noticed(tmp_path: Path, kind: str) -> None:
    path = make(tmp_path, kind, {"data": bytes(range(256)) * 400, "more": b"x" * 5000})
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"archive\."):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["../up.txt"], "outside of the folder"),
        (["/etc/absolute"], "outside of the folder"),
        (["sub/../../up.txt"], "outside of the folder"),
        (["C:/windows"], "outside of the folder"),
        (["a\nb"], "control characters"),
        (["x" * 300], "too long"),
        (["/".join(["dir"] * 1100)], "too long"),
        (["Read.me", "read.ME"], "differ in case only"),
        (["same", "same"], "are called 'same'"),
        (["\u00e9", "e\u0301"], "are called"),
        (["file", "file/below"], "which is a file"),
        (["file/below", "file"], "are called 'file'"),
    ],
)
def test_a_name_that_leads_elsewhere_or_twice_is_refused(
    tmp_path: Path, kind: str, names: list[str], message: str
) -> None:
    path = tmp_path / f"archive.{kind}"
    if kind == "zip":
        with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
            warnings.simplefilter("ignore")  # zipfile warns of equal names, which are the point
            for name in ["good", *names]:
                archive.writestr(zipfile.ZipInfo(name), b"content")
    else:
        path.write_bytes(tar_bytes([(tarfile.TarInfo(name), b"content") for name in ["good", *names]]))
    with pytest.raises(BadInput, match=message):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, "out"}


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("link")
    info.type, info.linkname = kind, "/etc/hostname"
    (tmp_path / "archive.tar").write_bytes(tar_bytes([(tarfile.TarInfo("good"), b""), (info, b"")]))
    with pytest.raises(BadInput, match="link, a device or a sparse file"):
        unpack(tmp_path / "archive.tar", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr(info, "/etc/hostname")
    with pytest.raises(BadInput, match="link or a device"):
        unpack(tmp_path / "archive.zip", tmp_path / "out")


@pytest.mark.parametrize("before", [[], [(tarfile.TarInfo("good"), b"content" * 1_000_000)]], ids=["first", "later"])
def test_a_header_without_end_is_refused(tmp_path: Path, before: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    """Python's reader would take it into memory whole."""
    info = tarfile.TarInfo("small")
    info.pax_headers = {"comment": "x" * 50_000_000}
    (tmp_path / "archive.tar.gz").write_bytes(tar_bytes([*before, (info, b"")], "w:gz"))
    with pytest.raises(BadInput, match="holds headers of more than"):
        unpack(tmp_path / "archive.tar.gz", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_methods_that_expand_without_bounds_are_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "archive.zip", "w", method) as archive:
        archive.writestr("zeros", b"\0" * 10_000)
    with pytest.raises(BadInput, match="packed by method"):
        unpack(tmp_path / "archive.zip", tmp_path / "out")


@pytest.mark.parametrize(
    ("stored", "message"),
    [("\u00e9t\u00e9".encode(), None), (b"\xe9t\xe9__", "is not UTF-8"), (b"a\0b__", "control characters")],
)
def test_names_in_a_zip_without_a_word_on_their_encoding(tmp_path: Path, stored: bytes, message: str | None) -> None:
    path = make(tmp_path, "zip", {"_" * 5: b"content"})
    path.write_bytes(path.read_bytes().replace(b"_" * 5, stored))
    if message is None:
        unpack(path, tmp_path / "out")
        assert unpacked(tmp_path / "out") == {stored.decode(): b"content"}
    else:
        with pytest.raises(BadInput, match=message):
            unpack(path, tmp_path / "out")


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path, "zip", {"secret": b"content"})
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1
    path.write_bytes(content)
    with pytest.raises(BadInput, match="encrypted"):
        unpack(path, tmp_path / "out")


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.zst"])
@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_members": 3}, "max_members=3"),
        ({"max_bytes": 5000}, "max_bytes=5000"),
        ({}, "max_ratio=200"),
    ],
)
def test_limits_hold_for_the_bytes_that_come(tmp_path: Path, kind: str, limits: dict[str, Any], message: str) -> None:
    size = (70 << 20) if not limits else 2000
    files = {f"{number}": b"\0" * size for number in range(1 if not limits else 5)}
    with pytest.raises(BadInput, match=message):
        unpack(make(tmp_path, kind, files), tmp_path / "out", UnpackLimits(**limits))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_size_in_a_header_is_not_believed(tmp_path: Path) -> None:
    """A zip that says its member is small, and is not."""
    path = make(tmp_path, "zip", {"data": b"\0" * 1_000_000})
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = content.index(signature) + offset
        content[at : at + 4] = (10).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(BadInput):
        unpack(path, tmp_path / "out", UnpackLimits(max_bytes=1000))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    with pytest.raises(BadInput, match="not empty"):
        unpack(make(tmp_path, "zip", FILES), tmp_path / "out")
    assert unpacked(tmp_path / "out") == {"mine": b"mine"}


def not_an_archive(path: Path) -> None:
    path.write_bytes(b"this is no archive" * 100)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fill", [not_an_archive, empty])
def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path, kind: str, fill: Callable[[Path], None]) -> None:
    fill(tmp_path / f"archive.{kind}")
    with pytest.raises(BadInput, match="damaged, or no such archive"):
        unpack(tmp_path / f"archive.{kind}", tmp_path / "out")


def test_an_unknown_kind_names_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "data.rar").write_bytes(b"Rar!")
    with pytest.raises(BadInput, match=r"known are \.zip"):
        unpack(tmp_path / "data.rar", tmp_path / "out")


@pytest.mark.parametrize("field", ["max_members", "max_bytes", "max_ratio"])
def test_limits_must_be_above_zero(field: str) -> None:
    with pytest.raises(BadConfig, match=f"{field}=0"):
        UnpackLimits(**{field: 0})

"""Which URLs open which store."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from marin_storage import MissingExtra, Unsuitable, open_store


def test_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("outputs").url == str(tmp_path / "outputs")
    assert open_store("./a/../outputs/").url == str(tmp_path / "outputs")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/outputs").url == str(tmp_path / "outputs")


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}", "FILE://{}"])
def test_file_urls_and_paths_are_one_store(tmp_path: Path, form: str) -> None:
    root = tmp_path / "with space"
    open_store(str(root)).write("key", b"x")
    assert open_store(form.format(root)).read("key").data == b"x"


def test_file_urls_are_unquoted(tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}/with%20space").url == str(tmp_path / "with space")


def test_memory_is_one_store_in_a_process() -> None:
    open_store("memory://shared/here").write("key", b"x")
    assert open_store("memory://shared").read("here/key").data == b"x"
    assert open_store("memory://shared/here/").read("key").data == b"x"


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("gs://bucket", "gs://bucket"),
        ("gcs://bucket/a/b/", "gs://bucket/a/b"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("s3a://bucket", "s3://bucket"),
    ],
)
def test_bucket_urls(strict_gcs: object, moto_s3: object, url: str, normal: str) -> None:
    del strict_gcs, moto_s3
    assert open_store(url).url == normal


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("hf://datasets/a/b", "no atomic create-if-absent"),
        ("https://example.org/x", "no atomic create-if-absent"),
        ("webdav://example.org/x", "no atomic create-if-absent"),
        ("az://container/x", "no atomic create-if-absent"),
        ("file://elsewhere/x", "this machine only"),
        ("gs://", "names no bucket"),
        ("s3:///key", "names no bucket"),
        ("", "empty"),
    ],
)
def test_what_cannot_be_a_root_is_refused_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(Unsuitable, match=reason):
        open_store(url)


def regular_file(folder: Path) -> str:
    (folder / "file").write_text("x")
    return str(folder / "file")


def link_to_nothing(folder: Path) -> str:
    (folder / "link").symlink_to("nowhere")
    return str(folder / "link")


@pytest.mark.parametrize(
    ("root", "reason"),
    [
        (regular_file, "is no directory"),
        (lambda folder: f"{regular_file(folder)}/below", "below something that is no directory"),
        (lambda folder: f"file://{regular_file(folder)}", "is no directory"),
        (link_to_nothing, "symbolic link to nothing"),
        (lambda _: "/dev/null", "is no directory"),
        (lambda _: "/dev/null/outputs", "below something that is no directory"),
        (lambda folder: f"{folder}/{'x' * 300}", "File name too long"),
        (lambda _: "out\0puts", "null"),
    ],
)
def test_a_path_where_no_directory_can_be_is_named_as_given(
    root: Callable[[Path], str], reason: str, tmp_path: Path
) -> None:
    url = root(tmp_path)
    with pytest.raises(Unsuitable, match=reason) as caught:
        open_store(url)
    assert repr(url) in str(caught.value)
    assert "A root on disk is a directory" in str(caught.value)


def test_a_root_that_is_not_there_yet_is_fine(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a/b"))
    store.write("key", b"x")
    assert store.read("key").data == b"x"


@pytest.mark.parametrize(
    ("url", "package", "module", "extra"),
    [
        ("s3://bucket/x", "s3fs", "marin_storage.s3", "s3"),
        ("S3A://bucket/x", "s3fs", "marin_storage.s3", "s3"),
        ("gs://bucket/x", "gcsfs", "marin_storage.gcs", "gcs"),
    ],
)
def test_a_store_without_its_packages_names_the_extra_that_holds_them(
    url: str, package: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith((package, module))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=f"needs {package}, which is not installed") as caught:
        open_store(url)
    assert caught.value.extra == extra


def test_a_local_store_imports_no_cloud_library() -> None:
    script = (
        "import sys, marin_storage; marin_storage.open_store('/nowhere').list_files(''); "
        "heavy = {'fsspec', 'upath', 'gcsfs', 's3fs', 'asyncio', 'aiohttp', 'botocore', 'concurrent.futures'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    path = [entry for entry in sys.path if entry]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {script}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"

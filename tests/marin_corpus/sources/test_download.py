"""Downloads: whole by their digest, resumed where they broke off, refused where they cannot be what was asked for."""

import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from file_server import FileServer, Handler, dropped_after, status
from marin_corpus.errors import BadConfig, BadInput
from marin_corpus.sources.download import Download, download

CONTENT = random.Random(0).randbytes(300_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    server = FileServer(CONTENT)
    yield server
    server.close()


@pytest.fixture
def pauses() -> list[float]:
    return []


def fetch(server: FileServer, partial: Path, pauses: list[float], **options: object) -> bytes:
    wanted = Download(**{"url": server.url, "sha256": DIGEST, "read_timeout_s": 5.0, **options})  # type: ignore[arg-type]
    assert download(wanted, partial, pause=pauses.append) == len(partial.read_bytes())
    return partial.read_bytes()


def test_a_file_comes_whole(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    assert fetch(server, tmp_path / "part", pauses, size_bytes=len(CONTENT)) == CONTENT
    assert (server.ranges, pauses) == ([None], [])


def test_a_broken_connection_is_gone_on_with(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    server.faults = [dropped_after(100_000), status(503), dropped_after(250_000)]
    assert fetch(server, tmp_path / "part", pauses) == CONTENT
    assert server.ranges == [None, "bytes=100000-", "bytes=100000-", "bytes=250000-"]
    assert len(pauses) == 3


def test_what_a_killed_process_left_is_gone_on_with(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    (tmp_path / "part").write_bytes(CONTENT[:123_456])
    assert fetch(server, tmp_path / "part", pauses) == CONTENT
    assert server.ranges == ["bytes=123456-"]


def test_a_complete_file_that_was_left_is_checked(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    (tmp_path / "part").write_bytes(CONTENT)
    assert fetch(server, tmp_path / "part", pauses) == CONTENT
    assert server.ranges == [f"bytes={len(CONTENT)}-"]


def test_a_server_without_ranges_starts_again(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    server.knows_ranges = False
    server.faults = [dropped_after(100_000)]
    assert fetch(server, tmp_path / "part", pauses) == CONTENT


@pytest.mark.parametrize("left", [b"other bytes" * 1000, b"longer" * 100_000], ids=["changed", "longer"])
def test_a_file_that_changed_in_between_is_fetched_again(
    server: FileServer, tmp_path: Path, pauses: list[float], left: bytes
) -> None:
    (tmp_path / "part").write_bytes(left)
    assert fetch(server, tmp_path / "part", pauses) == CONTENT


def test_bytes_from_another_place_are_not_joined(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    def elsewhere(handler: Handler) -> bool:
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes 5-{len(CONTENT) - 1}/{len(CONTENT)}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    (tmp_path / "part").write_bytes(CONTENT[:10])
    server.faults = [elsewhere]
    assert fetch(server, tmp_path / "part", pauses) == CONTENT
    assert server.ranges == ["bytes=10-", None]


def test_a_file_of_another_version_is_sent_whole_at_once(
    server: FileServer, tmp_path: Path, pauses: list[float]
) -> None:
    """The server is told which version the beginning is of, also by the process after the one that began."""
    server.content, server.etag = b"older" * 50_000, '"1"'
    server.faults = [dropped_after(100_000), *[status(503)] * 2]
    with pytest.raises(BadInput, match="kept for the next run"):
        fetch(server, tmp_path / "part", pauses, max_tries=2)
    server.content, server.etag, server.faults, server.ranges = CONTENT, '"2"', [], []
    assert fetch(server, tmp_path / "part", pauses) == CONTENT
    assert server.ranges == ["bytes=100000-"]
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_the_end_of_another_version_is_not_joined(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    def careless(handler: Handler) -> bool:
        """Sends the range although its version is another one."""
        del handler.headers["If-Range"]
        return False

    server.content, server.etag = b"older" * 50_000, '"1"'
    server.faults = [dropped_after(100_000), careless]
    server.etag = '"1"'

    def change(seconds: float) -> None:
        pauses.append(seconds)
        server.content, server.etag = CONTENT, '"2"'

    wanted = Download(url=server.url, sha256=DIGEST, read_timeout_s=5.0)
    assert download(wanted, tmp_path / "part", pause=change) == len(CONTENT)
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-", None]


def test_a_server_that_always_starts_again_and_drops_is_given_up(
    server: FileServer, tmp_path: Path, pauses: list[float]
) -> None:
    """Sometimes it comes further than the last time, which is no progress."""
    server.knows_ranges = False
    server.faults = [dropped_after(count) for _ in range(30) for count in (1000, 500)]
    with pytest.raises(BadInput, match="8 tries in a row failed"):
        fetch(server, tmp_path / "part", pauses)
    assert len(server.ranges) == 8


@pytest.mark.parametrize("size_bytes", [None, len(CONTENT)])
def test_a_connections_end_may_be_all_that_tells_of_the_files(
    server: FileServer, tmp_path: Path, pauses: list[float], size_bytes: int | None
) -> None:
    """Without a length in the answer; with one that the caller knows an early end is noticed."""

    def until(count: int) -> Callable[[Handler], bool]:
        def fault(handler: Handler) -> bool:
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.write(CONTENT[:count])
            return True

        return fault

    server.faults = [until(len(CONTENT))] if size_bytes is None else [until(100_000)]
    assert fetch(server, tmp_path / "part", pauses, size_bytes=size_bytes) == CONTENT
    assert server.ranges == [None] if size_bytes is None else [None, "bytes=100000-"]


@pytest.mark.parametrize("wrong", [-1, 1])
def test_the_size_counts_as_well_as_the_digest(
    server: FileServer, tmp_path: Path, pauses: list[float], wrong: int
) -> None:
    def in_chunks(handler: Handler) -> bool:
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(CONTENT), CONTENT))
        return True

    server.faults = [in_chunks] * 2
    with pytest.raises(BadInput, match=r"instead of \d+ with|more than"):
        fetch(server, tmp_path / "part", pauses, size_bytes=len(CONTENT) + wrong)
    assert list(tmp_path.iterdir()) == []
    server.faults = [in_chunks]
    assert fetch(server, tmp_path / "part", pauses, size_bytes=len(CONTENT)) == CONTENT


def test_progress_is_told(server: FileServer, tmp_path: Path) -> None:
    seen: list[int] = []
    server.faults = [dropped_after(100_000)]
    wanted = Download(url=server.url, sha256=DIGEST, read_timeout_s=5.0)
    download(wanted, tmp_path / "part", progress=seen.append, pause=lambda _seconds: None)
    assert seen == sorted(seen)
    assert {100_000, len(CONTENT)} <= set(seen)


def test_a_weak_etag_is_no_version(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    server.etag = 'W/"1"'
    server.faults = [dropped_after(100_000)]
    assert fetch(server, tmp_path / "part", pauses) == CONTENT
    assert server.ranges == [None, "bytes=100000-"]


def test_all_tries_together_end_in_time(server: FileServer, tmp_path: Path) -> None:
    """A server that sends a little each time makes progress, and would be asked for ever."""
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    server.faults = [dropped_after(1000 * number) for number in range(1, 100)]
    wanted = Download(url=server.url, sha256=DIGEST, read_timeout_s=5.0, total_timeout_s=10.0)
    with pytest.raises(BadInput, match="total_timeout_s=10 are over"):
        download(wanted, tmp_path / "part", pause=pause, clock=lambda: now[0])
    assert len(server.ranges) == 10


def test_a_server_says_how_long_to_wait(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    server.faults = [status(429, **{"Retry-After": "17"}), status(503, **{"Retry-After": "100000"}), status(503)]
    assert fetch(server, tmp_path / "part", pauses) == CONTENT
    assert pauses == [17.0, 60.0, 4.0]


def test_a_signature_is_not_in_the_error(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    server.faults = [status(302, Location="ftp://127.0.0.1/x?signature=hidden")]
    with pytest.raises(BadInput, match=r"ftp://127\.0\.0\.1/x") as caught:
        fetch(server, tmp_path / "part", pauses)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"sha256": "0" * 64}, f"sha256 {DIGEST} instead of 0000"), ({"size_bytes": 5}, "300000 bytes instead of 5")],
)
def test_another_file_is_refused_and_not_kept(
    server: FileServer, tmp_path: Path, pauses: list[float], options: dict[str, object], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        fetch(server, tmp_path / "part", pauses, **options)
    assert list(tmp_path.iterdir()) == []
    assert len(server.ranges) == 1


def test_a_server_that_never_answers_is_given_up(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    server.faults = [dropped_after(1000), *[status(503)] * 10]
    with pytest.raises(BadInput, match=r"3 tries in a row failed.*503") as caught:
        fetch(server, tmp_path / "part", pauses, max_tries=3)
    assert "kept for the next run" in caught.value.next
    assert (tmp_path / "part").read_bytes() == CONTENT[:1000]


def test_an_absent_file_is_not_asked_for_again(server: FileServer, tmp_path: Path, pauses: list[float]) -> None:
    server.faults = [status(404)]
    with pytest.raises(BadInput, match="HTTP 404"):
        fetch(server, tmp_path / "part", pauses)
    assert len(server.ranges) == 1


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_a_server_cannot_send_us_to_files_of_ours(
    server: FileServer, tmp_path: Path, pauses: list[float], target: str
) -> None:
    server.faults = [status(302, Location=target)]
    with pytest.raises((BadConfig, BadInput), match=r"no http or https address|is not allowed"):
        fetch(server, tmp_path / "part", pauses)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "file:///etc/hostname"}, "no http or https address"),
        ({"url": "http://user:secret@example.org/x"}, "would be recorded"),
        ({"sha256": "ABC"}, "64 lower-case hex digits"),
        ({"size_bytes": -1}, "size_bytes=-1"),
        ({"url": "http://example.org/a b"}, "characters that no address has"),
        ({"url": "http://example.org/\u00e9"}, "characters that no address has"),
        ({"total_timeout_s": 0}, "total_timeout_s=0"),
        ({"max_tries": 0}, "max_tries=0"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        Download(**{"url": "http://example.org/x", "sha256": DIGEST, **options})  # type: ignore[arg-type]

"""A web server on loopback that serves one file and misbehaves on request."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FileServer:
    """Serves `content` at every path. `faults` are used up one a request, in order."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.faults: list[Callable[[Handler], bool]] = []
        """Each returns whether it has answered."""
        self.ranges: list[str | None] = []
        """The `Range` header of each request."""
        self.knows_ranges = True
        self.etag: str | None = None
        handler = type("BoundHandler", (Handler,), {"files": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/data.bin"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Handler(BaseHTTPRequestHandler):
    files: FileServer

    def do_GET(self) -> None:
        self.files.ranges.append(self.headers.get("Range"))
        if self.files.faults and self.files.faults.pop(0)(self):
            return
        self.serve(len(self.files.content))

    def serve(self, until: int) -> None:
        """Bytes from where was asked for to `until`; the headers promise all."""
        content, start = self.files.content, 0
        asked = self.headers.get("Range")
        changed = self.headers.get("If-Range") not in (None, self.files.etag)
        if asked and self.files.knows_ranges and not changed:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        if self.files.etag is not None:
            self.send_header("ETag", self.files.etag)
        self.end_headers()
        self.wfile.write(content[start:until])

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def dropped_after(count: int) -> Callable[[Handler], bool]:
    """The connection ends after `count` bytes of the file."""

    def fault(handler: Handler) -> bool:
        handler.serve(count)
        handler.close_connection = True
        return True

    return fault


def status(code: int, **headers: str) -> Callable[[Handler], bool]:
    """An answer without a file."""

    def fault(handler: Handler) -> bool:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    return fault

"""A Hugging Face hub on loopback, as far as its client asks: repositories of files at one commit, some private."""

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """One repository at one commit. Files of more than `lfs_bytes` are large ones."""

    kind: str
    name: str
    commit: str
    files: dict[str, bytes]
    token: str | None = None
    lfs_bytes: int = 1000

    def entry(self, path: str) -> dict[str, Any]:
        content = self.files[path]
        # Git's name for a blob.
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        entry: dict[str, Any] = {"type": "file", "oid": oid, "size": len(content), "path": path}
        if len(content) > self.lfs_bytes:
            sha256 = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 128}
        return entry


@dataclass
class FakeHub:
    """Start with `FakeHub([...])`; `url` is what HF_ENDPOINT must be."""

    repositories: list[Repository]
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        handler = type("BoundHandler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(json.loads(body) if body.startswith(b"{") else {})

    def _answer(self, body: dict[str, Any] | None = None) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.hub.requests.append(f"{self.command} {path}")
        for repository in self.hub.repositories:
            api = f"api/{repository.kind}s/{repository.name}"
            files = f"{repository.kind}s/{repository.name}/" if repository.kind == "dataset" else f"{repository.name}/"
            if path.startswith((api + "/", files)) or path == api:
                if repository.token and self.headers.get("Authorization") != f"Bearer {repository.token}":
                    break
                self._repository(repository, path.removeprefix(api).removeprefix(files).strip("/"), body)
                return
        # The hub does not tell a private repository from none.
        self._send(401, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})

    def _repository(self, repository: Repository, rest: str, body: dict[str, Any] | None) -> None:
        action, _, rest = rest.partition("/")
        commit, _, path = rest.partition("/")
        if action and commit != repository.commit:
            self._send(404, {"error": "Revision not found"}, {"X-Error-Code": "RevisionNotFound"})
        elif action in ("", "revision"):
            siblings = [{"rfilename": name} for name in repository.files]
            self._send(200, {"id": repository.name, "sha": repository.commit, "private": False, "siblings": siblings})
        elif action == "tree":
            self._send(200, self._tree(repository, path))
        elif action == "paths-info":
            paths = (body or {}).get("paths", [])
            self._send(200, [repository.entry(name) for name in paths if name in repository.files])
        elif action == "resolve" and path in repository.files:
            self._file(repository, path)
        else:
            self._send(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})

    def _tree(self, repository: Repository, folder: str) -> list[dict[str, Any]]:
        recursive = "recursive=true" in self.path.lower()
        prefix = f"{folder}/" if folder else ""
        found: dict[str, dict[str, Any]] = {}
        for name in repository.files:
            if not name.startswith(prefix):
                continue
            parts = name.removeprefix(prefix).split("/")
            for end in range(1, len(parts)):
                below = prefix + "/".join(parts[:end])
                if recursive or end == 1:
                    found[below] = {"type": "directory", "oid": "0" * 40, "size": 0, "path": below}
            if recursive or len(parts) == 1:
                found[name] = repository.entry(name)
        return list(found.values())

    def _file(self, repository: Repository, path: str) -> None:
        content = repository.files[path]
        headers = {"X-Repo-Commit": repository.commit, "ETag": f'"{repository.entry(path)["oid"]}"'}
        asked = self.headers.get("Range")
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last or len(content) - 1) + 1, len(content))
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
            self._bytes(206, content[start:stop], headers)
        else:
            self._bytes(200, content, headers)

    def _send(self, code: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self._bytes(code, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _bytes(self, code: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing."""

"""Object stores on this machine, which a test and the processes it starts find through environment variables."""

import http.client
import logging
import os
import threading
from typing import Any

import pytest


class MotoS3:
    """An S3 server. `requests` holds what was asked of it since `reset`, as `METHOD /path?query`."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        application = DomainDispatcherApplication(create_backend_app)
        one_at_a_time = threading.Lock()
        self.requests: list[str] = []

        def serialized(environ: Any, start_response: Any) -> Any:
            # moto looks whether the condition holds and then writes, and lets two requests do so at once.
            with one_at_a_time:
                query = f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else ""
                self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}{query}")
                return application(environ, start_response)

        self._server = make_server("127.0.0.1", 0, serialized, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def reset(self) -> None:
        """Forget everything, and make the bucket "bucket"."""
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"))
        for method, path in (("POST", "/moto-api/reset"), ("PUT", "/bucket")):
            connection.request(method, path)
            assert connection.getresponse().read() is not None
        connection.close()
        self.requests.clear()

    def close(self) -> None:
        self._server.shutdown()


def use_s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and those it starts connect to an S3 server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)

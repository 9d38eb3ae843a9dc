"""An S3 server (moto's) behind a proxy that fails a share of the requests."""

import http.client
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

_KEPT = ("content-length", "content-type", "etag", "last-modified", "accept-ranges")
_SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=anyone/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=none"
}
SENT = ("content-length", "content-type", "authorization", "if-none-match", "range")


@dataclass
class Faults:
    """What share of the requests fails, and how many have: 500, 503, or a cut connection."""

    share: float = 0.0
    failed: int = 0
    passed: int = 0
    after_work: bool = False
    """Whether a request that fails is carried out all the same, and only its answer is lost."""
    draws: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> str | None:
        """Return how the next request fails, None if it does not."""
        with self.lock:
            if self.draws.random() >= self.share:
                self.passed += 1
                return None
            self.failed += 1
            return str(self.draws.choice(["500", "503", "cut"]))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def s3_server() -> Iterator[int]:
    """Start moto's server, from beside this Python or from the path; yields its port."""
    beside = str(Path(sys.executable).parent)
    program = shutil.which("moto_server", path=beside) or shutil.which("moto_server")
    if program is None:
        pytest.skip("there is no moto_server: pipx install 'moto[server]'")
    port = free_port()
    with subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            _wait_for(port)
            request(port, "PUT", "/bucket")
            yield port
        finally:
            server.terminate()


def request(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = MappingProxyType(_SIGNED),
) -> tuple[int, bytes, dict[str, str]]:
    """Send one request to the server; return status, content and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
    finally:
        connection.close()


def _wait_for(port: int) -> None:
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        with suppress(OSError):
            request(port, "GET", "/")
            return
        time.sleep(0.2)
    raise TimeoutError("the S3 server does not answer")


@contextmanager
def faulty_proxy(server: int, faults: Faults) -> Iterator[int]:
    """Hand requests on to the server, but for those that fail; yields the proxy's port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            fault = faults.next()
            if fault is None or faults.after_work:
                sent = {k: v for k, v in self.headers.items() if k.lower() in SENT}
                status, content, headers = request(
                    server, self.command, self.path, body=body, headers=sent
                )
            if fault == "cut":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if fault is not None:
                status, content, headers = int(fault), b"", {}
            self.send_response(status)
            for name, value in headers.items():
                if name in _KEPT and not (name == "content-length" and self.command != "HEAD"):
                    self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(proxy.server_address[1])
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()

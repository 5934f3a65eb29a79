"""A web server for one exported model: an image in, its label with probabilities out, as JSON."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from analysis.export.classifier import Classifier
from analysis.export.prediction import describe
from training.data.files.decode import UnreadableImage, decode_image
from training.errors import UserError

PATH = "/predict"
SILENT_SECONDS = 30  # A client that sends nothing for so long is disconnected.
CHUNK = 2**16


class Refused(Exception):
    """A request that cannot be answered: its status, and a sentence for the client."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        self.status = status
        super().__init__(sentence)


class ModelServer(ThreadingHTTPServer):
    """Answers requests, each on a thread of its own; one thread predicts for all, so that memory stays bounded.

    Args:
        classifier: The model.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        max_bytes: The largest body of a request.

    Raises:
        UserError: The address or the port cannot be used.
    """

    daemon_threads = True

    def __init__(self, classifier: Classifier, host: str, port: int, max_bytes: int) -> None:
        self.classifier, self.max_bytes = classifier, max_bytes
        self.worker = ThreadPoolExecutor(1)
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UserError(
                f"--host={host} --port={port}: the server cannot listen there ({error.strerror or error}). Name another port, "
                "or 0 for a free one."
            ) from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a fault of ours; a client that went away is none."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}{PATH}"

    def label(self, content: bytes, top_k: int | None) -> dict[str, object]:
        """Label the bytes of an image file.

        Raises:
            UnreadableImage: They are not an image.
        """
        return self.worker.submit(self._label, content, top_k).result()

    def _label(self, content: bytes, top_k: int | None) -> dict[str, object]:
        image = self.classifier.prepare(decode_image(content, self.classifier.reduced_side))
        return describe(self.classifier.classify([image])[0], self.classifier.classes, top_k)


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version = "HTTP/1.1"
    timeout = SILENT_SECONDS

    def do_POST(self) -> None:
        try:
            # The body of a wrong request is read too: the client reads the answer after sending it.
            body = self._read_body()
            top_k = self._read_query()
            self._answer(HTTPStatus.OK, self.server.label(self._find_image(body), top_k))
        except Refused as error:
            self._answer(error.status, {"error": str(error)})
        except UnreadableImage as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": f"the image cannot be read ({error.reason})"})

    def do_GET(self) -> None:
        if urlsplit(self.path).path == PATH:
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "send an image with POST"}, {"Allow": "POST"})
        elif self.path == "/":
            self._answer(HTTPStatus.OK, {"predict": PATH, "classes": self.server.classifier.classes})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"send images to {PATH}"})

    def handle_expect_100(self) -> bool:
        """Refuse a body that is too large before the client sends it, as curl asks for large files."""
        try:
            self._check_length()
        except Refused as error:
            self._answer(error.status, {"error": str(error)})
            return False
        return super().handle_expect_100()

    def _read_query(self) -> int | None:
        parts = urlsplit(self.path)
        if parts.path != PATH:
            raise Refused(HTTPStatus.NOT_FOUND, f"send images to {PATH}")
        asked = parse_qs(parts.query, keep_blank_values=True)
        if unknown := asked.keys() - {"top_k"}:
            raise Refused(HTTPStatus.BAD_REQUEST, f"{min(unknown)} is unknown; the only parameter is top_k")
        if not asked:
            return None
        text = asked["top_k"][-1]
        most = len(self.server.classifier.classes)
        if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= most):
            raise Refused(HTTPStatus.BAD_REQUEST, f"top_k={text} is not a number from 1 to {most}")
        return int(text)

    def _check_length(self) -> int:
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request needs the header Content-Length, in bytes")
        if int(text) > self.server.max_bytes:
            megabytes = self.server.max_bytes / 2**20
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request is larger than {megabytes:g} MB")
        return int(text)

    def _read_body(self) -> bytes:
        length = self._check_length()
        body = self.rfile.read(length)
        if len(body) < length:
            raise Refused(HTTPStatus.BAD_REQUEST, "the request ended before its Content-Length")
        return body

    def _find_image(self, body: bytes) -> bytes:
        """The bytes of the image file: the body itself, or what its JSON has as base64."""
        kind = self.headers.get_content_type()
        if kind == "multipart/form-data":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the file itself as the body, not a form")
        return _decode_json(body) if kind == "application/json" else body

    def _answer(self, status: HTTPStatus, content: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        text = (json.dumps(content) + "\n").encode()
        self.send_response(status)
        if status is not HTTPStatus.OK:  # A body may be left unread, which would be taken for the next request.
            self.send_header("Connection", "close")
        for name, value in {"Content-Type": "application/json", "Content-Length": len(text), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(text)
        if status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE and "Expect" not in self.headers:
            self._discard_body()

    def _discard_body(self) -> None:
        """Read on a little: a client that is still sending sees the answer only if the connection stays open."""
        left = min(int(self.headers["Content-Length"]), 4 * self.server.max_bytes)
        while left > 0 and (chunk := self.rfile.read(min(left, CHUNK))):
            left -= len(chunk)


def _decode_json(body: bytes) -> bytes:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None
    if not (isinstance(found, dict) and isinstance(found.get("image"), str)):
        raise Refused(HTTPStatus.BAD_REQUEST, 'the JSON needs the field "image", with an image file in base64')
    try:
        return base64.b64decode(found["image"], validate=True)
    except (binascii.Error, ValueError):
        raise Refused(HTTPStatus.BAD_REQUEST, 'the field "image" is not base64') from None

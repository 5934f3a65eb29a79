"""A web application for one exported model: an image in, its label with probabilities out, as JSON."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from analysis.export.classifier import ExportedClassifier
from analysis.export.prediction import describe
from analysis.web_server import Refused, check_length, is_meant, read_body
from training.data.files.decode import UnreadableImage, decode_image
from training.process.text_files import parse_json

PATH = "/predict"
ANSWER_SECONDS = 120  # an answer takes no longer, with its wait for those before it
HELD_REQUESTS = 8  # the bodies in memory have together at most the size of so many of the largest


class ModelService:
    """Answers requests to the addresses and names that it listens on, with bodies of at most `max_bytes`.

    One thread predicts for all, and the bodies in memory are bounded, so that memory is.
    """

    def __init__(self, classifier: ExportedClassifier, names: Collection[str], max_bytes: int) -> None:
        self.classifier, self.names, self.max_bytes = classifier, names, max_bytes
        self.worker = ThreadPoolExecutor(1)
        self.held_bytes = 0
        self.room = asyncio.Condition()

    def make_app(self) -> Starlette:
        """Return the application."""
        return Starlette(
            routes=[Route("/", self.describe), Route(PATH, self.label, methods=["POST"])],
            exception_handlers={Refused: _answer_refused, HTTPException: _answer_unknown},
        )

    async def describe(self, request: Request) -> Response:
        """Name the classes."""
        self._check_host(request)
        return _answer(HTTPStatus.OK, {"predict": PATH, "classes": self.classifier.classes})

    async def label(self, request: Request) -> Response:
        """Label one image."""
        self._check_host(request)
        length = check_length(request.headers, self.max_bytes)
        top_k = self._read_query(request)
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type == "multipart/form-data":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the file itself as the body, not a form")
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._room_for(length):
                body = await read_body(request)
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(
                    self.worker, self._label, body, content_type == "application/json", top_k
                )
        except TimeoutError:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the server has too many requests; try again later") from None
        except UnreadableImage as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"the image cannot be read ({error.reason})") from None
        return _answer(HTTPStatus.OK, answer)

    @asynccontextmanager
    async def _room_for(self, length: int) -> AsyncIterator[None]:
        """Wait until a body of this length may be in memory."""
        async with self.room:
            await self.room.wait_for(lambda: self.held_bytes + length <= HELD_REQUESTS * self.max_bytes)
            self.held_bytes += length
        try:
            yield
        finally:
            self.held_bytes -= length
            async with self.room:
                self.room.notify_all()

    def _label(self, body: bytes, is_json: bool, top_k: int | None) -> dict[str, object]:
        content = _decode_json(body) if is_json else body
        image = self.classifier.prepare(decode_image(content, self.classifier.reduced_side))
        return describe(self.classifier.classify([image])[0], self.classifier.classes, top_k)

    def _check_host(self, request: Request) -> None:
        if not is_meant(host := request.headers.get("host", ""), self.names):
            raise Refused(HTTPStatus.FORBIDDEN, f"this server does not answer to the name {host[:100]!r}")

    def _read_query(self, request: Request) -> int | None:
        asked = request.query_params
        if unknown := set(asked) - {"top_k"}:
            raise Refused(HTTPStatus.BAD_REQUEST, f"{min(unknown)} is unknown; the only parameter is top_k")
        if not asked:
            return None
        text = asked["top_k"]
        most = len(self.classifier.classes)
        if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= most):
            raise Refused(HTTPStatus.BAD_REQUEST, f"top_k={text} is not a number from 1 to {most}")
        return int(text)


def _decode_json(body: bytes) -> bytes:
    try:
        document = parse_json(body)
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None
    if not (isinstance(document, dict) and isinstance(document.get("image"), str)):
        raise Refused(HTTPStatus.BAD_REQUEST, 'the JSON needs the field "image", with an image file in base64')
    try:
        return base64.b64decode(document["image"], validate=True)
    except (binascii.Error, ValueError):
        raise Refused(HTTPStatus.BAD_REQUEST, 'the field "image" is not base64') from None


def _answer(status: int, content: dict[str, object], headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(content) + "\n", status, headers, "application/json")


async def _answer_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    # After these two, the rest of the body is not known or not awaited.
    is_last = error.status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.BAD_REQUEST)
    return _answer(error.status, {"error": str(error)}, {"Connection": "close"} if is_last else None)


async def _answer_unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    is_known = request.url.path == PATH
    sentence = "send an image with POST" if is_known else f"send images to {PATH}"
    return _answer(error.status_code, {"error": sentence}, dict(error.headers or {}))

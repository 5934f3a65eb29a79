"""A web server with limits, for a model and for the dashboard: who may ask, and how long and how large a request may be."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Collection
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from training.errors import UserError

REQUEST_SECONDS = 30  # for the head of a request, and again for its body
MOST_CONNECTIONS = 2000  # at most half of the files that the process may have open; further clients get _BUSY
OPEN_FILES = 4096
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_IN_USE = (98, 48)  # on Linux and on macOS


class Refused(Exception):
    """A request that cannot be answered: its status, and a sentence for the client."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        self.status = status
        super().__init__(sentence)


class _Protocol(H11Protocol):
    """HTTP with bounds that uvicorn lacks: for the connections, and for the time until a request begins."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > min(MOST_CONNECTIONS, _count_files() // 2):
            transport.write(_BUSY)
            transport.close()
        self._watch()

    def _watch(self) -> None:
        self.loop.call_later(REQUEST_SECONDS, self._end_if_silent, self.cycle)

    def _end_if_silent(self, before: object) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is before and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
        else:
            self._watch()


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # requests that are cut off now are no fault
        await super().shutdown(sockets)


def open_socket(host: str, port: int, ports: int = 1) -> socket.socket:
    """Listen on the first free one of `ports` ports, starting at `port`; with `port` 0 on any free one."""
    if not host.isprintable():  # a half character or a NUL, which socket answers with a TypeError
        raise UserError(f"--host={host!a}: a character is no part of an address. Use 127.0.0.1.")
    if not host.strip():  # the system would take it for all addresses
        raise UserError(f"--host={host}: an address is missing. Use 127.0.0.1, or 0.0.0.0 for all interfaces.")
    last = min(port + ports, 65536) if port else 1
    for candidate in range(port, last):
        try:
            return socket.create_server((host, candidate), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except PermissionError:
            reason = "ports below 1024 are for the administrator"
        except (OSError, TypeError) as error:  # a label of more than 63 letters is a TypeError
            if isinstance(error, TypeError | socket.gaierror) or error.errno not in _IN_USE:
                why = getattr(error, "strerror", None) or error
                raise UserError(f"--host={host}: this machine cannot listen there ({why}). Use 127.0.0.1.") from None
            reason = "another program uses it"
    which = f"port {port} cannot be opened" if last - port == 1 else f"no port from {port} to {last - 1} can be opened"
    raise UserError(f"--port={port}: {which} ({reason}). Name another, or 0 for a free one.")


def make_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server, to be run with a socket of `open_socket`.

    The process may then have up to 4,096 files open, if the system lets it, because each connection is one.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if _count_files() < OPEN_FILES:
        raised = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, most))
    return _Server(
        uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_level="error",
            access_log=False,  # the first address of a dashboard has its token
            backlog=_count_files() // 8,  # asyncio accepts so many at one time, before a connection can be refused
            timeout_graceful_shutdown=1,
        )
    )


def _count_files() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return OPEN_FILES if limit == resource.RLIM_INFINITY else min(OPEN_FILES, limit)


def is_loopback(host: str) -> bool:
    """Return whether a name or address, also with a port, means this machine alone."""
    name = _name_in(host)
    try:
        return name == "localhost" or ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def is_meant(header: str, names: Collection[str]) -> bool:
    """Return whether a request's Host means a server that listens on `names`, an address or a name each.

    Otherwise a site could give its own name the address of this server, and use it from a visitor's browser (DNS
    rebinding). A server on loopback has all names of loopback, and one on all interfaces has every name.
    """
    everywhere = {"0.0.0.0", "::"} & set(names)
    return bool(everywhere) or _name_in(header) in names or (is_loopback(header) and any(map(is_loopback, names)))


def _name_in(host: str) -> str:
    try:
        return urlsplit(f"//{host}" if host.count(":") < 2 or "[" in host else f"//[{host}]").hostname or ""
    except ValueError:
        return ""


def check_length(headers: Headers, limit: int) -> int:
    """Return the length of a request's body, in bytes.

    Raises:
        Refused: there is no length, two kinds of it, or more than `limit` bytes.
    """
    text = headers.get("content-length", "")
    if "transfer-encoding" in headers and text:  # a proxy could take the other one for the end of the request
        raise Refused(HTTPStatus.BAD_REQUEST, "the request has both Content-Length and Transfer-Encoding")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request needs the header Content-Length, in bytes")
    if int(text) > limit:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request is larger than {limit / 2**20:g} MB")
    return int(text)


async def read_body(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        Refused: it does not arrive completely, or not in time.
    """
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            return await request.body()
    except TimeoutError:
        sentence = f"the request did not arrive within {REQUEST_SECONDS} seconds"
        raise Refused(HTTPStatus.REQUEST_TIMEOUT, sentence) from None
    except ClientDisconnect:
        raise Refused(HTTPStatus.BAD_REQUEST, "the request ended before its Content-Length") from None

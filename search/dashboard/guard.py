"""Who may use the dashboard: pages of other sites never, other machines only with the token."""

from __future__ import annotations

import secrets

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from analysis.web_server import Refused, check_length, is_loopback

LARGEST_BODY = 2**20
LONGEST_TARGET = 300  # characters of path and query; a number of 5,000 digits, which Python does not read, is longer
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses requests of pages from other sites, and without the token where one is needed.

    On loopback without a token, the name in the address must be that of this machine: otherwise a site could give its
    own name the address 127.0.0.1 and read the dashboard (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, port: int, token: str = "") -> None:
        self.app = app
        self.token = token
        self.cookie = f"sweep-dashboard-{port}"  # browsers share cookies between the ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is refused; hand the others on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        if len(scope["path"]) + len(scope["query_string"]) > LONGEST_TARGET:
            await PlainTextResponse("The address is too long.\n", status_code=414, headers=SECURITY)(
                scope, receive, send
            )
            return
        if self.token and self._is_right(request.query_params.get("token", "")):
            answer = RedirectResponse(scope["path"], status_code=303)  # the token leaves the address
            # Lax: with Strict, the first click on a link from another site would not send it after the redirection.
            answer.set_cookie(self.cookie, self.token, httponly=True, samesite="lax")
            await answer(scope, receive, send)
        elif reason := self._find_reason(request):
            await PlainTextResponse(f"{reason}\n", status_code=403, headers=SECURITY)(scope, receive, send)
        else:
            await self.app(scope, receive, _with_headers(send))

    def _find_reason(self, request: Request) -> str:
        """Return why a request is refused; empty if it is not."""
        host = request.headers.get("host", "")
        if self.token and not self._is_right(request.cookies.get(self.cookie, "")):
            return "Open the address that `sweep dashboard` printed: it has the token that this page needs."
        if not self.token and not is_loopback(host):
            return f"Host {host[:100]}: this dashboard answers only at 127.0.0.1 and localhost."
        if request.method in ("GET", "HEAD"):
            return ""
        origin = request.headers.get("origin", "")
        if not origin or origin.partition("://")[2] != host:
            return f"Origin {origin[:100] or '(none)'}: only the dashboard's own page may change the sweep."
        try:
            check_length(request.headers, LARGEST_BODY)
        except Refused as error:
            return f"Refused: {error}."
        return ""

    def _is_right(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self.token.encode())


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers

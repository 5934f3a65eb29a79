"""Whether a server can be reached, before a library tries it for most of a minute."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

ANSWER_SECONDS = 5.0


def answers(address: str) -> bool:
    """Return within five seconds whether the server of a URL, or the proxy on the way to it, accepts connections."""
    reached: list[bool] = []

    def ask() -> None:
        with suppress(OSError, ValueError):  # ValueError: the port of a proxy is not a number
            socket.create_connection(_find_peer(address), timeout=ANSWER_SECONDS).close()
            reached.append(True)

    # A thread is needed because the time-out does not apply to a name server that does not answer.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return bool(reached)


def _find_peer(address: str) -> tuple[str, int]:
    """Return the host and the port that a client connects to: those of the user's proxy, or else of the server."""
    parts = urlsplit(address)
    proxies = getproxies()  # HTTPS_PROXY and its like
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(parts.hostname or ""):
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)

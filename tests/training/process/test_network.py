"""A server that is reached through a proxy counts as reachable."""

import socket
import threading
import urllib.request

import pytest

from training.process import network
from training.process.network import answers


@pytest.fixture(autouse=True)
def no_proxies_of_this_machine(monkeypatch):
    for name in urllib.request.getproxies_environment():
        for variable in (f"{name}_proxy", f"{name}_proxy".upper()):
            monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def port():
    """The port of a socket of this machine that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("form", ["http://127.0.0.1:{}", "127.0.0.1:{}", "http://me:secret@127.0.0.1:{}/"])
def test_a_server_behind_a_proxy_can_be_reached(variable, form, port, monkeypatch):
    monkeypatch.setenv(variable, form.format(port))
    assert answers("https://weights.invalid/resnet18.pth")


def test_a_proxy_that_does_not_answer_hides_every_server_but_those_it_is_not_for(port, closed_port, monkeypatch):
    address = f"http://127.0.0.1:{port}/resnet18.pth"
    assert answers(address)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port}")
    assert not answers(address)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert answers(address)


def test_a_server_that_refuses_or_is_unknown_does_not_answer(closed_port, monkeypatch):
    assert not answers(f"https://127.0.0.1:{closed_port}")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:none")
    assert not answers("https://weights.invalid")


def test_a_name_server_that_is_silent_is_not_waited_for(monkeypatch):
    never = threading.Event()
    monkeypatch.setattr(network, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: never.wait() and socket.socket())
    assert not answers("https://weights.invalid")
    never.set()

"""`sweep serve` answers real HTTP requests with the labels of `sweep predict`, and wrong ones with a clear 4xx."""

import asyncio
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest

from analysis import web_server
from analysis.export import server as export_server
from analysis.export.classifier import load_classifier
from analysis.export.prediction import Options, predict_images
from analysis.export.server import ModelService
from analysis.web_server import is_meant, make_server, open_socket
from training.errors import UserError

JSON = {"Content-Type": "application/json"}
LIMIT = 100_000


@contextmanager
def serving(app):
    """Serve an application on a free port, which is the value."""
    with open_socket("127.0.0.1", 0) as listener:
        made = make_server(app)
        thread = threading.Thread(target=made.run, args=([listener],), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        made.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def service(exported):
    return ModelService(load_classifier(exported, device="cpu"), {"127.0.0.1"}, LIMIT)


@pytest.fixture(scope="module")
def server(service):
    with serving(service.make_app()) as port:
        yield port


@pytest.fixture
def image(validation_files):
    return next((validation_files / "7").iterdir())


def ask(server, body=None, headers=None, path="/predict", method="POST"):
    connection = HTTPConnection("127.0.0.1", server, timeout=60)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_a_file_and_base64_get_the_prediction_of_the_command(server, exported, image, tmp_path):
    predict_images(exported, image, tmp_path / "out.json", Options(device="cpu", json=True))
    expected = json.loads((tmp_path / "out.json").read_text())
    del expected["file"]
    content = image.read_bytes()
    assert ask(server, content) == (200, expected)
    body = json.dumps({"image": base64.b64encode(content).decode()})
    assert ask(server, body, JSON) == (200, expected)
    status, best = ask(server, content, path="/predict?top_k=2")
    assert status == 200
    assert list(best["probabilities"].items()) == list(expected["probabilities"].items())[:2]
    assert ask(server, path="/", method="GET")[1]["classes"] == [str(digit) for digit in range(10)]


def test_one_connection_serves_several_requests(server, image):
    connection = HTTPConnection("127.0.0.1", server, timeout=60)
    for _ in range(2):
        connection.request("POST", "/predict", image.read_bytes())
        used, answer = connection.sock, connection.getresponse()
        assert answer.status == 200
        answer.read()
    assert connection.sock is used


WRONG = {
    "text": (b"not an image", {}, "/predict", 400, "not an image"),
    "nothing": (b"", {}, "/predict", 400, "empty file"),
    "half a file": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", {}, "/predict", 400, "the image cannot be read"),
    "broken JSON": (b"{", JSON, "/predict", 400, "not JSON"),
    "deep JSON": (b"[" * 50_000, JSON, "/predict", 400, "not JSON"),
    "JSON without an image": (b'{"images": []}', JSON, "/predict", 400, 'needs the field "image"'),
    "JSON without base64": (b'{"image": "\xc3\xa4"}', JSON, "/predict", 400, "not base64"),
    "a form": (b"--x", {"Content-Type": "multipart/form-data; boundary=x"}, "/predict", 415, "not a form"),
    "another path": (b"x", {}, "/invocations", 404, "/predict"),
    "too many classes": (b"x", {}, "/predict?top_k=11", 400, "top_k=11 is not a number from 1 to 10"),
    "an unknown parameter": (b"x", {}, "/predict?topk=1", 400, "topk is unknown"),
    "no length": (b"1\r\nx\r\n0\r\n\r\n", {"Transfer-Encoding": "chunked"}, "/predict", 411, "Content-Length"),
    "a large request": (b"x" * (LIMIT + 1), {}, "/predict", 413, "larger than"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_gets_a_clear_answer_and_the_server_goes_on(case, server, image):
    body, headers, path, status, words = WRONG[case]
    found, answer = ask(server, body, headers, path)
    assert found == status
    assert words in answer["error"]
    assert ask(server, image.read_bytes())[0] == 200


def test_get_is_refused_with_the_method_that_is_allowed(server):
    assert ask(server, method="GET") == (405, {"error": "send an image with POST"})


def test_a_large_file_is_refused_before_it_is_sent(server):
    with socket.create_connection(("127.0.0.1", server), timeout=60) as client:
        client.sendall(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n"
        )
        assert client.makefile("rb").readline() == b"HTTP/1.1 413 Request Entity Too Large\r\n"


@pytest.mark.parametrize("host", ["", "  "])
def test_an_empty_address_is_refused_and_does_not_listen_everywhere(host):
    with pytest.raises(UserError, match=rf"--host={host}: an address is missing. Use 127\.0\.0\.1"):
        open_socket(host, 0)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("\udcff", "--host='.udcff': a character is no part"),
        ("a\0b", "is no part"),
        ("é" * 80, "cannot listen there"),
        ("a" * 70, "cannot listen there"),
    ],
)
def test_an_address_that_is_no_name_is_refused(host, words):
    with pytest.raises(UserError, match=words):
        open_socket(host, 0)


def test_a_port_in_use_or_of_the_administrator_is_refused(server, monkeypatch):
    with pytest.raises(
        UserError, match=rf"--port={server}: port {server} cannot be opened \(another program uses it\)"
    ):
        open_socket("127.0.0.1", server)

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(
        UserError, match="--port=80: port 80 cannot be opened .ports below 1024 are for the administrator"
    ):
        open_socket("127.0.0.1", 80)
    with pytest.raises(UserError, match="--port=80: no port from 80 to 129 can be opened"):
        open_socket("127.0.0.1", 80, 50)


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "192.0.2.1", "", "[bad"])
def test_a_site_that_gave_its_name_the_address_of_the_server_gets_nothing(server, image, name):
    for method, path in (("POST", "/predict"), ("GET", "/")):
        status, answer = ask(server, image.read_bytes(), {"Host": name}, path, method)
        assert (status, answer["error"][:29]) == (403, "this server does not answer t")


def test_a_server_for_others_answers_to_the_name_that_its_user_gave():
    assert [
        header for header in ("localhost:8000", "127.0.0.1", "[::1]:8000") if not is_meant(header, {"127.0.0.1"})
    ] == []
    assert is_meant("box:8000", {"box", "192.0.2.1"})
    assert is_meant("192.0.2.1:8000", {"box", "192.0.2.1"})
    assert not is_meant("evil.example", {"box", "192.0.2.1"})
    assert not is_meant("localhost", {"box", "192.0.2.1"})
    assert is_meant("model.example", {"0.0.0.0"})


def send(server, *pieces):
    """Send the pieces of a request, and return the lines of the answer until the server disconnects."""
    with socket.create_connection(("127.0.0.1", server), timeout=20) as client:
        for piece in pieces:
            client.sendall(piece)
        return client.makefile("rb").read().decode().splitlines()


def test_a_request_with_two_kinds_of_length_is_refused(server):
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = send(server, head, b"0\r\n\r\n")
    assert answer[0] == "HTTP/1.1 400 Bad Request"
    assert "both Content-Length and Transfer-Encoding" in answer[-1]


def test_a_request_that_does_not_arrive_ends_after_the_deadline(service, monkeypatch):
    monkeypatch.setattr(web_server, "REQUEST_SECONDS", 0.3)  # at its 30 seconds this client would give up first
    with serving(service.make_app()) as port:
        assert send(port) == []  # nothing
        assert send(port, b"POST /predict HT") == []  # half a head
        answer = send(port, b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
        assert answer[0] == "HTTP/1.1 408 Request Timeout"
        assert "did not arrive within 0.3 seconds" in answer[-1]
    assert service.held_bytes == 0


def test_the_bodies_in_memory_are_bounded_and_others_wait(service, image, monkeypatch):
    monkeypatch.setattr(export_server, "HELD_REQUESTS", 1)
    content = image.read_bytes()
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LIMIT}\r\n\r\n".encode()
    with serving(service.make_app()) as port, socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(head)
        while not service.held_bytes:
            time.sleep(0.01)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(ask, port, content)
            time.sleep(0.3)
            assert not waiting.done()
            assert service.held_bytes == LIMIT
            slow.close()
            assert waiting.result(20)[0] == 200


def test_a_busy_server_says_so(service, image, monkeypatch):
    monkeypatch.setattr(export_server, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(service, "_label", lambda *arguments: time.sleep(1))
    with serving(service.make_app()) as port:
        assert ask(port, image.read_bytes()) == (
            503,
            {"error": "the server has too many requests; try again later"},
        )


def test_clients_beyond_the_bound_are_sent_away_and_leave_no_message(service, monkeypatch, capfd):
    monkeypatch.setattr(web_server, "MOST_CONNECTIONS", 2)
    with serving(service.make_app()) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        assert send(port)[0] == "HTTP/1.1 503 Service Unavailable"
        for client in silent:
            client.close()
        time.sleep(0.5)
        assert ask(port, path="/", method="GET")[0] == 200
    assert capfd.readouterr().err == ""


def test_300_clients_at_one_time_all_get_their_answer(server, image):
    content = image.read_bytes()
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"

    async def ask_once():
        reader, writer = await asyncio.open_connection("127.0.0.1", server)
        writer.write(head.encode() + content)
        line = await asyncio.wait_for(reader.readline(), 60)
        writer.close()
        return line

    async def ask_all():
        return await asyncio.gather(*(ask_once() for _ in range(300)))

    assert set(asyncio.run(ask_all())) == {b"HTTP/1.1 200 OK\r\n"}


def test_the_printed_example_works_by_copying_and_ctrl_c_ends_the_command(exported, image, tmp_path):
    shutil.copy(image, tmp_path / "image.png")
    command = [sys.executable, "-c", "from search.cli.main import main; main()", "serve", str(exported), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert "Ctrl-C ends it" in process.stdout.readline()
        example = process.stdout.readline().strip()
        assert example.startswith("curl --data-binary @image.png http://127.0.0.1:")
        if shutil.which("curl"):
            done = subprocess.run(example, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert json.loads(done.stdout)["label"] in "0123456789"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()

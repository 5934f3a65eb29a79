"""`sweep serve` answers real HTTP requests with the labels of `sweep predict`, and wrong ones with a clear 4xx."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from http.client import HTTPConnection

import pytest

from analysis.export.classifier import load_classifier
from analysis.export.prediction import Options, predict_images
from analysis.export.server import ModelServer
from training.errors import UserError

JSON = {"Content-Type": "application/json"}
LIMIT = 100_000


@pytest.fixture(scope="module")
def server(exported):
    with ModelServer(load_classifier(exported, device="cpu"), "127.0.0.1", 0, LIMIT) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()


@pytest.fixture
def image(validation_files):
    return next((validation_files / "7").iterdir())


def ask(server, body=None, headers=None, path="/predict", method="POST"):
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
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
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
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
    "no length": (b"x", {"Content-Length": "-1"}, "/predict", 411, "Content-Length"),
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
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as client:
        client.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")
        assert client.makefile("rb").readline() == b"HTTP/1.1 413 Request Entity Too Large\r\n"


def test_a_port_in_use_is_refused(server):
    with pytest.raises(UserError, match=rf"--port={server.server_port}: the server cannot listen there"):
        ModelServer(server.classifier, "127.0.0.1", server.server_port, LIMIT)


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

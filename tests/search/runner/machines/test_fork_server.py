"""The fork server, with numpy in place of everything that a trial needs."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from search.runner.machines import fork_client
from search.runner.machines.fork_server import has_used_gpu
from search.runner.machines.fork_start import SWITCH, name_fork_server, start_fork_server
from search.runner.worker import project_root
from tests.waiting import wait_until

START = "from search.runner.machines.fork_start import start_fork_server as start"
LOOK = """
import json, os, random, sys
found = {"argv": sys.argv[1:], "folder": os.getcwd(), "mine": os.environ.get("MINE"), "has": "numpy" in sys.modules}
found["threads"] = len(os.listdir("/proc/self/task"))
found["files"] = [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
found["group"], found["client"] = os.getpgrp(), os.environ.get("CLIENT")
if found["has"]:
    import numpy
    found["drawn"] = [random.random(), numpy.random.random()]
print(json.dumps(found))
print("a mistake", file=sys.stderr)
sys.exit(7)
"""


class Owner:
    """A process that has started a fork server."""

    def __init__(self, *modules: str, **environment: str) -> None:
        code = f"{START}; print(start(*{modules}), flush=True); input()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=project_root(),
            env={**os.environ, **environment},
        )
        self.command = shlex.split(self.process.stdout.readline())
        self.folder = Path(self.command[-1]).parent

    def run(self, script: Path, *arguments: str, **options) -> subprocess.CompletedProcess:
        command = [*self.command, str(script), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, process_group=0, **options)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def owner():
    found = Owner("numpy")
    yield found
    found.end()


@pytest.fixture
def look(tmp_path):
    (tmp_path / "look.py").write_text(LOOK)
    return tmp_path / "look.py"


def test_a_process_that_has_opened_a_gpu_is_known(tmp_path):
    assert not has_used_gpu()
    device = tmp_path / "dev" / "nvidia0"
    device.parent.mkdir()
    device.touch()
    with device.open():
        assert has_used_gpu()


def find_server(socket: str) -> int | None:
    """The process of a server; None also in the moment in which the new process has no command line yet."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            words = file.read_text().split("\0")
            if socket in words and any(word.endswith("machines/fork_server.py") for word in words):
                return int(file.parent.name)
    return None


def is_alive(pid: int) -> bool:
    with suppress(OSError):  # it has ended, perhaps while it was being read
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def test_a_script_runs_in_a_fork_as_if_python_had_been_started_with_it(owner, look, tmp_path):
    answers = [owner.run(look, "--a", "b c", cwd=tmp_path, env={**os.environ, "MINE": "x"}) for _ in range(2)]
    assert {answer.returncode for answer in answers} == {7}
    assert {answer.stderr for answer in answers} == {"a mistake\n"}
    found = [json.loads(answer.stdout) for answer in answers]
    assert found[0]["argv"] == ["--a", "b c"]
    assert (found[0]["folder"], found[0]["mine"]) == (str(tmp_path), "x")
    assert found[0]["has"]
    assert found[0]["drawn"] != found[1]["drawn"]


def test_a_fork_has_one_thread_and_no_file_of_the_server_or_of_another_fork(owner, look, tmp_path):
    (tmp_path / "sleep.py").write_text("import time; print(flush=True); time.sleep(60)")
    with subprocess.Popen([*owner.command, str(tmp_path / "sleep.py")], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        found = json.loads(owner.run(look).stdout)
        other.kill()
    assert (found["threads"], sorted(found["files"])) == (1, ["0", "1", "2"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_fork_ends_with_the_process_that_ray_has_started(owner, tmp_path, number):
    (tmp_path / "sleep.py").write_text("import os, time; print(os.getpid(), os.getpgrp(), flush=True); time.sleep(60)")
    client = subprocess.Popen([*owner.command, str(tmp_path / "sleep.py")], stdout=subprocess.PIPE, process_group=0)
    pid, group = map(int, client.stdout.readline().split())
    assert group == client.pid != pid
    client.send_signal(number)
    wait_until(lambda: not is_alive(pid))
    client.communicate()
    assert owner.process.poll() is None


def test_a_killed_owner_takes_its_server_and_the_socket_along(owner, look):
    server = wait_until(lambda: find_server(owner.command[-1]))
    owner.end()
    wait_until(lambda: not is_alive(server) and not owner.folder.exists())
    answer = owner.run(look)
    assert answer.returncode == 7
    assert not json.loads(answer.stdout)["has"]  # the script ran in a Python of its own


@pytest.mark.parametrize(
    "module", ["import mmap; held = mmap.mmap(open({path!r}).fileno(), 0, prot=mmap.PROT_READ)", "raise ValueError"]
)
def test_without_a_server_that_can_fork_a_script_runs_by_itself(tmp_path, look, module):
    """A process that has loaded the driver of the GPUs must not be forked."""
    (tmp_path / "libcuda.so.1").write_text("the driver")
    (tmp_path / "loaded.py").write_text(module.format(path=str(tmp_path / "libcuda.so.1")))
    owner = Owner("numpy", "loaded", PYTHONPATH=str(tmp_path))
    try:
        answer = owner.run(look)
    finally:
        owner.end()
    assert answer.returncode == 7
    assert not json.loads(answer.stdout)["has"]


class Raylet:
    """A process that starts workers; its server imports `modules`."""

    def __init__(self, folder: Path, *modules: str) -> None:
        code = (
            "from search.runner.machines import fork_client as client; start = client.start_server; "
            f"client.start_server = lambda *given: start(*given, *{modules}); client.main()"
        )
        self.server = folder / "fork-1"
        self.command = [sys.executable, "-c", code, self.server.name]
        self.more = f"--raylet-name={folder}/raylet"
        self.process = subprocess.Popen(
            ["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=project_root()
        )

    def run(self, script: Path) -> dict:
        self.process.stdin.write(shlex.join([*self.command, str(script), self.more]) + " 2> /dev/null\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_the_first_worker_of_a_raylet_starts_a_server_that_ends_with_the_raylet(tmp_path, look):
    raylet = Raylet(tmp_path, "numpy")
    try:
        assert [raylet.run(look)["has"] for _ in range(2)] == [True, True]
        server = wait_until(lambda: find_server(str(raylet.server)))
        assert raylet.server.stat().st_mode & 0o777 == 0o600
    finally:
        raylet.end()
    wait_until(lambda: not is_alive(server) and not raylet.server.exists())


def test_a_server_of_a_raylet_that_cannot_fork_is_not_started_again(tmp_path, look):
    raylet = Raylet(tmp_path, "no_such_module")
    try:
        assert [raylet.run(look)["has"] for _ in range(2)] == [False, False]
        assert raylet.server.exists()
        assert find_server(str(raylet.server)) is None
    finally:
        raylet.end()


def test_a_server_of_another_user_gets_nothing(monkeypatch):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        monkeypatch.setattr(os, "getuid", lambda: -7)
        with pytest.raises(PermissionError):
            fork_client.ask(ours, ["script"])
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)


def test_a_server_that_nobody_needs_ends():
    code = (
        "import os, socket; from search.runner.machines import fork_server as server; server.IDLE_SECONDS = 0.1; "
        "listener = socket.socket(socket.AF_UNIX); listener.bind(''); listener.listen(); "
        "print(server.serve(listener, os.pipe()[0]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project_root(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "None\n"


def test_workers_of_changed_code_come_from_another_server(tmp_path, monkeypatch):
    monkeypatch.setattr("search.runner.machines.fork_start.project_root", lambda: str(tmp_path))
    file = tmp_path / "training" / "model.py"
    file.parent.mkdir()
    file.write_text("")
    before = name_fork_server()
    assert name_fork_server() == before
    os.utime(file, (1, 1))
    assert name_fork_server() != before


def test_a_variable_turns_the_server_off(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    assert start_fork_server.__wrapped__() == name_fork_server() == ""


@pytest.mark.slow
def test_rays_workers_are_forks_and_have_the_libraries_from_the_start(tmp_path):
    code = (
        "import os, sys, ray\n"
        "from search.runner.machines.ray_process import start_ray\n"
        "start_ray(None)\n"
        "def look():\n"
        "    return open(f'/proc/{os.getppid()}/cmdline').read(), 'lightning' in sys.modules\n"
        "print(*ray.get(ray.remote(look).remote()))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=project_root(), capture_output=True, text=True, timeout=240, check=True
    )
    assert "machines/fork_server.py" in answer.stdout
    assert answer.stdout.split()[-1] == "True"

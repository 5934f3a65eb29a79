"""`sweep submit` sends the program, the space and the options of `sweep run` to a cluster."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from search.runner.start import submission
from spaces.load import load_space
from tests.commands import call
from training.errors import UserError
from training.process.user import name_user

AT = ["--address", "http://127.0.0.1:1"]
STORE = ["--storage", "/shared/sweeps", "--tracking-uri", "http://mlflow:5000"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


class Client:
    """Keeps what a job of the cluster would get."""

    def __init__(self):
        self.files = {}

    def submit_job(self, *, entrypoint, submission_id, runtime_env, metadata):
        self.words = shlex.split(entrypoint)
        folder = Path(runtime_env["working_dir"])
        self.files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self.id = submission_id
        assert metadata == {"sweep": self.words[self.words.index("--name") + 1]}
        return submission_id


@pytest.fixture
def client(monkeypatch):
    made = Client()
    monkeypatch.setattr(submission, "_connect", lambda address: made)
    return made


def test_the_job_gets_the_program_the_space_and_the_given_options(client, capsys):
    call("submit", "quick", "epochs=3", "--trials", "5", "--tag", "a=b", "--tag", "c=d", "--name", "mine", *AT, *STORE)
    words = client.words
    assert words[:9] == ["python", "-m", "search", "run", "space.yaml", "--name", "mine", "--address", "auto"]
    assert {"--or-resume", "--publish"} <= set(words)
    options = " ".join(words[11:])
    assert options == (
        "--trials 5 --storage /shared/sweeps --tracking-uri http://mlflow:5000 --tag a=b --tag c=d "
        f"--tag owner={name_user()}"
    )
    assert {"search/cli/main.py", "training/train.py", "spaces/load.py", "ledger/formatting.py"} <= set(client.files)
    assert "spaces/quick.yaml" in client.files
    assert not [file for file in client.files if "__pycache__" in file or file.startswith(("tests", "sweeps"))]
    Path("space.yaml").write_bytes(client.files["space.yaml"])
    assert load_space("space.yaml").recipe["epochs"] == 3
    assert client.id.startswith("mine-")
    assert "sweep show mine --from http://mlflow:5000" in capsys.readouterr().out


def test_the_program_in_the_job_runs_without_an_installation(client, tmp_path):
    call("submit", "quick", *AT, *STORE)
    for name, content in client.files.items():
        file = tmp_path / "job" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    command = [sys.executable, "-m", "search", "space", "space.yaml"]
    done = subprocess.run(command, cwd=tmp_path / "job", capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_a_switch_travels_without_a_value(client):
    call("submit", "quick", "--check", "--trials", "5", *AT, *STORE)
    assert "--check" in client.words
    assert "True" not in client.words


def test_a_submitted_check_is_not_called_a_sweep(client, capsys):
    call("submit", "quick", "--check", "--name", "mine", *AT, *STORE)
    printed = capsys.readouterr().out
    assert f"Submitted the checks of sweep mine as job {client.id}. It trains nothing." in printed
    assert "sweep show" not in printed
    assert "ray job logs --follow mine-" in printed


def test_options_from_the_environment_travel_too(client, monkeypatch):
    monkeypatch.setenv("SWEEP_STORAGE", "/shared/other")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://from-environment:5000")
    call("submit", "quick", *AT)
    assert "--storage /shared/other --tracking-uri http://from-environment:5000" in " ".join(client.words)


def test_a_policy_file_of_this_machine_travels_inside_the_space(client, tmp_path):
    (tmp_path / "policy.yaml").write_text(
        "__version__: 2.0.8\ntransform: {__class_fullname__: HorizontalFlip, p: 0.5}\n"
    )
    call("submit", "quick", "augmentation={policy: file, path: policy.yaml}", *AT, *STORE)
    assert b"HorizontalFlip" in client.files["space.yaml"]


MISTAKES = {
    "a storage folder of this machine": (
        ["quick", "--storage", "sweeps"],
        r"--storage=sweeps: this path has no meaning",
    ),
    "a database of this machine": (
        ["quick", "--storage", "/s", "--tracking-uri", "sqlite:///mlflow.db"],
        r"--tracking-uri=sqlite:///mlflow.db: this path has no meaning on the cluster",
    ),
    "images of this machine": (
        ["quick", "data={name: image_folder, root: photos}", *STORE],
        r"data\.root=photos: this path has no meaning on the cluster",
    ),
    "weights of this machine": (
        ["quick", "backbone={name: resnet18, weights: mine.safetensors}", *STORE],
        r"backbone\.weights=mine\.safetensors: this path has no meaning",
    ),
    "a misspelt hyperparameter": (["quick", "label_smoothing.alpa=0.1", *STORE], "alpa.*alpha"),
    "a bad name": (["quick", "--name", "../up", *STORE], "--name=../up"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_in_one_sentence_before_anything_is_sent(name, client):
    arguments, words = MISTAKES[name]
    with pytest.raises(UserError, match=words):
        call("submit", *arguments, *AT)
    assert not client.files


def test_a_database_of_the_cluster_is_not_looked_for_on_this_machine(client):
    call("submit", "quick", "--storage", "/shared/sweeps", "--tracking-uri", "sqlite:////proc/1/no/m.db", *AT)
    assert "--tracking-uri sqlite:////proc/1/no/m.db" in " ".join(client.words)


def test_a_password_never_travels(client, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@mlflow:5000")
    with pytest.raises(UserError, match="MLFLOW_TRACKING_PASSWORD on the head node") as found:
        call("submit", "quick", "--storage", "/s", *AT)
    assert "secret" not in str(found.value)
    assert not client.files


def test_an_unknown_option_is_refused_as_by_run(client):
    with pytest.raises(Exception, match="No such option: --bogus"):
        call("submit", "quick", "--bogus", "1", *AT, *STORE)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("head:6379", "http://HEAD:8265"),
        ("http://127.0.0.1:1", "no Ray cluster answers there. Give the address of its dashboard"),
    ],
)
def test_an_address_without_a_head_node_is_refused_within_seconds(address, words):
    with pytest.raises(UserError, match=words):
        call("submit", "quick", "--address", address, *STORE)


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_a_sweep_runs_as_a_job_and_a_job_that_starts_again_continues_it(tmp_path):
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "RAY_AUTH_MODE": "disabled"}
    port, dashboard, agent = free_port(), free_port(), free_port()
    head = subprocess.Popen(
        [
            *(programs / "ray", "start", "--head", "--block", f"--port={port}", f"--dashboard-port={dashboard}"),
            *("--num-cpus=1", f"--temp-dir=/tmp/submit-{port}", "--disable-usage-stats"),
            f"--dashboard-agent-listen-port={agent}",
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            assert time.monotonic() < deadline, "the head node did not answer"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", dashboard)) == 0:
                    break
            time.sleep(0.5)
        store = f"sqlite:///{tmp_path}/mlflow.db"
        command = [
            programs / "sweep",
            "submit",
            "quick",
            "epochs=3",
            "backbone.weights=none",
            "--name",
            "job",
            "--follow",
        ]
        command += ["--address", f"http://127.0.0.1:{dashboard}", "--storage", f"{tmp_path}/sweeps"]
        command += ["--tracking-uri", store, "--trials", "3"]
        first = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=400)
        assert first.returncode == 0, first.stdout + first.stderr
        assert "3 trials after" in first.stdout
        again = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "Sweep job starts" not in again.stdout
        call("export", "job", "--from", store, "--out", str(tmp_path / "copy"))
        assert (tmp_path / "copy" / "model.safetensors").exists()
    finally:
        head.terminate()
        head.wait(30)
        shutil.rmtree(f"/tmp/submit-{port}", ignore_errors=True)

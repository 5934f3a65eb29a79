"""The commands that the tool suggests run as they are printed, also with another storage folder and another store."""

import re
import shlex
import signal
import subprocess

import pytest

from tests.real_sweeps import SWEEP, environment, make_user_folder, start, wait_for

COMMAND = re.compile(r"sweep (?:run|resume|report|confirm|show|ui|export|train|rm|stop)(?: (?:'[^']*'|[^\s',();`]+))*")
PLACES = ("--storage", "my sweeps", "--tracking-uri", "sqlite:///my store.db")
SEPARATE = ("--storage", "my sweeps")


def suggested(text):
    found = {command.rstrip(".") for line in text.splitlines() for command in COMMAND.findall(line)}
    return {command.replace("--trials N", "--trials 1") for command in found - {"sweep train with its recipe.yaml"}}


def run(folder, *command):
    kept = {"cwd": folder, "env": environment(COLUMNS="2000"), "capture_output": True, "text": True, "timeout": 400}
    done = subprocess.run([*SWEEP, *command], input="y\n", **kept)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def run_ui(folder, *command):
    server = subprocess.Popen([*SWEEP, *command], cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True)
    lines = []
    while not any("MLflow UI: http" in line for line in lines) and (line := server.stdout.readline()):
        lines.append(line)
    server.send_signal(signal.SIGINT)
    return server.wait(60), "".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_command_that_a_sweep_suggests_runs_as_it_is_printed(tmp_path):
    folder = make_user_folder(tmp_path)
    driver = start(folder, "run", "tiny.yaml", "--name", "cut", "--trials", "12", *PLACES)
    ledger = folder / "my sweeps/cut/ledger.jsonl"
    wait_for(ledger, lambda events: any(e.event == "driver" for e in events), driver)
    printed = run(folder, "run", "tiny.yaml", "--name", "cut", *PLACES)[1]
    wait_for(ledger, lambda events: any(e.event == "end" for e in events), driver)
    driver.send_signal(signal.SIGINT)
    printed += driver.communicate(timeout=200)[0]
    for command in (
        ("report", "cut", *SEPARATE),
        ("run", "tiny.yaml", "--name", "one", *PLACES),
        ("resume", "one", *SEPARATE),
        ("show", "one", "0", *SEPARATE),
    ):
        printed += run(folder, *command)[1]
    commands = suggested(printed)
    order = ["export", "show", "report", "ui", "train", "resume", "confirm", "stop", "rm"]
    assert {command.split()[1] for command in commands} >= set(order) - {"stop"}, commands
    for command in sorted(commands, key=lambda command: (order.index(command.split()[1]), len(command))):
        _, *words = shlex.split(command)
        code, text = run_ui(folder, *words) if words[0] == "ui" else run(folder, *words)
        assert code == 0, f"{command}\n{text}"

"""No command ends in a traceback if standard output is closed, full, or no longer read."""

import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = Path(sys.executable).parent / "sweep"
COMMANDS = (
    "--help",
    "list",
    "space quick",
    "space --default",
    "techniques",
    "techniques mixup",
    "show nothing",
    "rm x",
)


def call(command, redirection, folder):
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {SWEEP} {command} {redirection}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS[:4])
def test_a_closed_output_gives_no_error(command, tmp_path):
    done = call(command, ">&-", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS[:4])
def test_a_full_output_gives_one_sentence(command, tmp_path):
    done = call(command, "> /dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "sweep: standard output: No space left on device, so its content is lost. Redirect it to another file.\n"
    )


def test_a_pipe_whose_reader_ends_is_no_failure(tmp_path):
    done = call("space --default", "| head -1", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mistake_keeps_its_exit_code_when_nothing_can_be_printed(tmp_path):
    done = call("show nothing", "> /dev/full 2>&1 <&-", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    done = call("show nothing", ">&- 2>&-", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


def test_characters_that_the_terminal_lacks_are_replaced(tmp_path):
    done = call("--help", "| cat", tmp_path)
    plain = subprocess.run(
        [SWEEP, "techniques", "mixup"],
        cwd=tmp_path,
        env={"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == plain.returncode == 0
    assert plain.stderr == b""


def test_no_file_of_ours_gets_the_number_of_a_closed_output(tmp_path):
    program = (
        "from search.cli.output import guard_output; guard_output(); import os; print(os.open('made', os.O_CREAT))"
    )
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"{sys.executable} -c \"{program}; print(open('made').fileno(), file=open('number', 'w'))\" >&- 2>&- <&-",
        ],
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0
    assert int((tmp_path / "number").read_text()) > 2

"""No command ends in a traceback if standard output is closed, full, or no longer read."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.text import Text

from search.display.terminal import Column, Columns, make_console

SWEEP = Path(sys.executable).parent / "sweep"
COMMANDS = (
    "--help",
    "list",
    "space quick",
    "space default",
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
    done = call("space default", "| head -1", tmp_path)
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


def test_names_are_utf_8_under_a_locale_that_has_ascii_alone(tmp_path):
    (tmp_path / "räume.yaml").write_text("format: 1\nrecipe: {data: {name: image_folder, root: Käfer}}\n", "utf-8")
    ascii_alone = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for words, code in (("space", 0), ("data", 2)):
        done = subprocess.run(
            [SWEEP, words, "räume.yaml"],
            cwd=tmp_path,
            env=ascii_alone,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == code
        assert "Käfer" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


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


HOSTILE = "cat\x1b[2J\x1b]8;;http://evil.example\x07\x9b31m\u202e\r[red]:smile:"
HARMLESS = "cat[2J]8;;http://evil.example31m[red]:smile:"


def test_a_console_prints_names_as_text_and_keeps_its_own_colours(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = io.StringIO()
    screen.isatty = lambda: True
    console = make_console(screen)
    console.print(HOSTILE)
    console.print(Text(HOSTILE, style="bold"))
    console.print(Columns([Column("name"), Column("note")], [[HOSTILE, HOSTILE], ["dog", ""]]))
    plain, bold, *rows = screen.getvalue().splitlines()
    assert plain == HARMLESS
    assert bold == f"\x1b[1m{HARMLESS}\x1b[0m"
    assert rows[1] == f"{HARMLESS}  {HARMLESS}"


def test_what_a_command_prints_cannot_command_the_terminal(tmp_path):
    program = (
        "import logging; from search.cli.output import guard_output, make_output_plain\n"
        "from search.display.terminal import make_console; from ledger.secrets import mask_logs\n"
        f"name = {HOSTILE!r}; guard_output(); mask_logs(); print('\\x1b[1mhelp'); make_output_plain()\n"
        "print(name); make_console().print(name); print('a\\r\\n', end=''); logging.warning(name)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout.decode() == f"\x1b[1mhelp\n{HARMLESS}\n{HARMLESS}\na\r\n"
    assert done.stderr.decode() == f"WARNING:root:{HARMLESS}\n"


def test_a_class_with_a_hostile_name_is_shown_as_text_in_a_terminal(tmp_path):
    root = tmp_path / "photos"
    for name in (HOSTILE.replace("/", ""), "dog"):
        (root / name).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (16, 16), (9 * number, 90, len(name))).save(root / name / f"{number}.png")
    outside, inside = pty.openpty()
    command = [SWEEP, "data", str(root), "--out", str(tmp_path / "data.png")]
    with subprocess.Popen(command, stdout=inside, stderr=inside, cwd=tmp_path) as process:
        os.close(inside)
        shown = b""
        while part := _read(outside):
            shown += part
    assert process.returncode == 0, shown
    assert "cat[2J]8;;http:evil.example31m[red]:smile:" in shown.decode()
    for command in ("\x1b[2J", "\x1b]", "\x9b", "\u202e"):
        assert command.encode() not in shown


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # the process has ended
        return b""

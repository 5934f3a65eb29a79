"""A device that takes nothing ends a command in one sentence, and a reader that has ended ends it silently."""

import os
from pathlib import Path

import pytest

from training.errors import UserError
from training.process.writable import complete_file


def test_a_full_device_is_named():
    with (
        pytest.raises(UserError, match=r"--out=/dev/full: it cannot be written to \(No space left on device\)"),
        complete_file("--out", Path("/dev/full")) as path,
        path.open("w") as file,
    ):
        file.write("a line")


def write_after_the_reader(path, reader):
    with complete_file("--out", path) as out, out.open("w") as file:
        os.close(reader)
        file.write("a line")


def test_a_pipe_whose_reader_has_ended_is_no_mistake_of_the_user(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(BrokenPipeError):
        write_after_the_reader(tmp_path / "pipe", reader)

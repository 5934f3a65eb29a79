"""A folder that Ray cannot use is named at the first start."""

from __future__ import annotations

import os

import pytest
import ray

from search.runner.machines.ray_process import start_ray
from training.errors import UserError

LONG = OSError(
    "validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /long/ray/session_1/sockets"
)


@pytest.mark.parametrize(
    ("variables", "error", "sentence"),
    [
        (
            {"RAY_TMPDIR": "/long"},
            LONG,
            r"RAY_TMPDIR=/long: this path is too long for Ray.* 107 bytes.* such as /tmp\.",
        ),
        ({"TMPDIR": "/long"}, LONG, r"^TMPDIR=/long: this path is too long for Ray.*Set RAY_TMPDIR to a folder"),
        (
            {},
            PermissionError(13, "Permission denied", "/tmp/ray/session_1"),
            r"Ray cannot write to /tmp/ray/session_1 \(Permission denied\)\. Set RAY_TMPDIR to a folder",
        ),
        ({}, OSError(30, "Read-only file system", "/tmp/ray"), r"Ray cannot write to /tmp/ray \(Read-only"),
        ({}, FileExistsError(17, "File exists", "/tmp/ray"), r"Ray cannot write to /tmp/ray \(File exists"),
        ({}, OSError(28, "No space left on device"), r"Ray cannot write to /tmp \(No space left"),
        ({}, PermissionError(13, "Permission denied", "/.ray"), r"Ray cannot write to /\.ray .* Set HOME to a folder"),
    ],
)
def test_a_folder_that_ray_cannot_use_is_named_at_the_first_start(variables, error, sentence, monkeypatch):
    starts = []

    def init(**_):
        starts.append(1)
        raise error

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr("search.runner.machines.ray_process.start_fork_server", lambda: "")
    for name in ("RAY_TMPDIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(UserError, match=sentence):
        start_ray(None)
    assert len(starts) == 1

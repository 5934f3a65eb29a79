"""What a full disk, a kill, a failing disk or another program can leave in the place of a small file of ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def folder(file: Path) -> None:
    file.unlink()
    (file / "inside").mkdir(parents=True)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def lost_link(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.with_name("nowhere"))


def huge(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(2**36)  # takes no space on the disk


def written(content: bytes) -> Callable[[Path], None]:
    return lambda file: (file.write_bytes(content), None)[1]


DAMAGES: dict[str, Callable[[Path], None]] = {
    "nothing": Path.unlink,
    "empty": written(b""),
    "half of it": half,
    "binary": written(bytes(range(256))),
    "zeros": written(b"\0" * 40),
    "not UTF-8": written('{"host": "Zürich"}'.encode("latin-1")),
    "a text": written(b'"text"'),
    "null": written(b"null"),
    "a list": written(b"[1, 2, 3]"),
    "an empty mapping": written(b"{}"),
    "missing keys": written(b'{"host": "here", "format": 1}'),
    "values of another type": written(
        b'{"host": [], "kills": "many", "pid": {}, "format": 1, "left_out": 3, "measurements": [4], "value": null}'
    ),
    "deep": written(b"[" * 50_000),
    "a number without end": written(b"9" * 9000),
    "not a number": written(b"NaN"),
    "infinite": written(b"1e999"),
    "half of a character": written(b'{"host": "\\ud800", "kills": 0}'),
    "a page of HTML": written(b"<!doctype html><title>Sign in</title>"),
    "a folder": folder,
    "a pipe": pipe,
    "a link to nothing": lost_link,
    "huge": huge,
}

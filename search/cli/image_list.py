"""The images that `sweep predict` labels: a folder, an image, or paths in a file or on standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from training.errors import UserError


def choose_images(images: Path | None, list_: Path | None) -> Path | list[str]:
    """Return the folder or image as it is, else the paths that a list has; empty lines are skipped.

    Args:
        images: A folder, an image, or `-` for standard input.
        list_: A file with a path on each line.

    Raises:
        UserError: Both or none are given, or the list cannot be read or is empty.
    """
    if (images is None) == (list_ is None):
        found = "no images are named" if images is None else f"{images} and --list={list_} cannot be combined"
        raise UserError(f"{found}. Name a folder, an image, - for standard input, or a list: --list files.txt.")
    if images is not None and str(images) != "-":
        return images
    place = "standard input" if list_ is None else f"--list={list_}"
    try:
        content = sys.stdin.buffer.read() if list_ is None else list_.read_bytes()
    except OSError as error:
        raise UserError(f"{place}: it cannot be read ({error.strerror or error}). Name a text file.") from None
    # Names keep bytes that are not valid text. A name cannot have a zero byte, so such a file is no list.
    paths = [os.fsdecode(line) for line in content.splitlines() if line.strip()]
    if not paths:
        raise UserError(f"{place}: it has no path of an image. Write one on each line.")
    if b"\0" in content:
        raise UserError(
            f"{place}: it is not a text file with a path on each line. To label one image, leave --list out."
        )
    return paths

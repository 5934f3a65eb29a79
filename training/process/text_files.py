"""Read text files that a user names, and JSON from others or of our own. Folders, pipes and large files are refused."""

from __future__ import annotations

import codecs
import json
import math
import os
import stat
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from training.errors import UserError

LARGEST_BYTES = 2**18  # the largest bundled space takes 6 KB
LARGEST_JSON_BYTES = 2**26

State = TypeVar("State")


def read_text(path: Path, name: str) -> str:
    """Read a text file in UTF-8. Error messages refer to it by `name`.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    try:
        size = path.stat().st_size
        if path.is_dir():
            yaml_files = sorted(path.glob("*.y*ml"))
            way_out = f"Name the file in it, such as {yaml_files[0]}." if yaml_files else "Name a file."
            raise UserError(f"{name}: this is a folder, not a file. {way_out}")
        if not path.is_file():
            raise UserError(f"{name}: this is a pipe or a device, not a file. Save the text in a file first.")
        if size > LARGEST_BYTES:
            raise UserError(
                f"{name}: the file has {size / 1e6:.1f} MB, and at most {LARGEST_BYTES // 1024} KB are allowed here. "
                "Is it the right file?"
            )
        return path.read_text(encoding=find_encoding(path))
    except FileNotFoundError:
        raise
    except UnicodeDecodeError:
        raise UserError(f"{name}: the file is not text in UTF-8. Save it as UTF-8.") from None
    except OSError as error:
        raise UserError(f"{name}: the file cannot be read ({error.strerror}). Name one that can.") from None


def encoding_of(start: bytes) -> str:
    """Return the encoding of a text by its first bytes. Windows marks UTF-8 and UTF-16 there, and other text is UTF-8."""
    return "utf-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def find_encoding(path: str | Path) -> str:
    """Return the encoding of a text file by its first bytes.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return encoding_of(file.read(2))


def refuse_irregular(path: str | Path, largest_bytes: float = math.inf) -> None:
    """Refuse a path that is not a regular file, since opening a named pipe would wait for ever, and one that is too large.

    Raises:
        OSError: it is one of these, or does not exist.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    if status.st_size > largest_bytes:
        raise OSError(f"larger than {largest_bytes / 1e6:.0f} MB")


def read_json(path: Path, largest_bytes: float = LARGEST_JSON_BYTES) -> Any:
    """Return the value of a JSON file that another program or another person wrote.

    Raises:
        OSError: it cannot be read, is not a regular file, or is too large.
        ValueError: as `parse_json`; also text that is not UTF-8.
    """
    refuse_irregular(path, largest_bytes)
    return parse_json(path.read_text(encoding=find_encoding(path)))


def recall_json(path: Path, shape: type[State], largest_bytes: float = LARGEST_JSON_BYTES) -> State | None:
    """Return what a state file of our own holds. None without one, and with one that is damaged: it is as good as none."""
    from pydantic import TypeAdapter  # the command line starts without it

    try:
        return TypeAdapter(shape).validate_python(read_json(path, largest_bytes))
    except (OSError, ValueError):  # after a full disk, a kill or a power failure
        return None


def open_new(path: Path) -> BinaryIO:
    """Open a new file to write. One that is there already, or a link in its place, is never written to.

    Raises:
        OSError: there is one, or it cannot be made.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb")


def keep_json(path: Path, value: object) -> None:
    """Write a state file of our own, which is complete or as before, whatever ends this process.

    Raises:
        OSError: it cannot be written, because the disk is full, for example.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        with open_new(partial) as file:
            file.write(json.dumps(value).encode())
        partial.replace(path)
    except OSError:
        with suppress(OSError):  # the first error says more
            partial.unlink()
        raise


def unpack(packed: bytes, largest_bytes: int = 2**28) -> bytes:
    """Decompress the content of a gzip file, which may come from another person.

    Raises:
        ValueError: it is damaged, or larger than it may be.
    """
    unpacker = zlib.decompressobj(wbits=31)  # 31: gzip, with its checksum
    try:
        content = unpacker.decompress(packed, largest_bytes)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not unpacker.eof:
        raise ValueError(f"it is cut, or has more than {largest_bytes / 1e6:.0f} MB")
    return content


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text that another program or another person wrote.

    Raises:
        ValueError: it is not JSON, is nested too deep, or has a lone surrogate, which no file and no terminal can show.
    """
    try:
        value = json.loads(text)
        if "\\u" in (text if isinstance(text, str) else text.decode(errors="ignore")):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except UnicodeEncodeError:
        raise ValueError("a text in it has half of a character") from None
    return value

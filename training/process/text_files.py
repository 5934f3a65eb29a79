"""Read text files that a user names. Folders, pipes and files that are too large are refused."""

from __future__ import annotations

from pathlib import Path

from training.errors import UserError

LARGEST_BYTES = 2**18  # the largest bundled space takes 6 KB


def read_text(path: Path, name: str, largest_bytes: int = LARGEST_BYTES) -> str:
    """Read a text file in UTF-8. Error messages refer to it by `name`.

    Raises:
        FileNotFoundError: the file does not exist.
        UserError: this is not a file, or it is too large, unreadable or not in UTF-8.
    """
    try:
        size = path.stat().st_size
        if path.is_dir():
            found = sorted(path.glob("*.y*ml"))
            way_out = f"Name the file in it, such as {found[0]}." if found else "Name a file."
            raise UserError(f"{name}: this is a folder, not a file. {way_out}")
        if not path.is_file():
            raise UserError(f"{name}: this is a pipe or a device, not a file. Save the text in a file first.")
        if size > largest_bytes:
            raise UserError(
                f"{name}: the file has {size / 1e6:.1f} MB, and at most {largest_bytes // 1024} KB are allowed here. "
                "Is it the right file?"
            )
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise
    except UnicodeDecodeError:
        raise UserError(f"{name}: the file is not text in UTF-8. Save it as UTF-8.") from None
    except OSError as error:
        raise UserError(f"{name}: the file cannot be read ({error.strerror}). Name one that can.") from None

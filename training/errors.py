"""Errors that are no fault of the program: a mistake of the user, and a training that diverged."""

from collections.abc import Sequence

LONGEST = 500  # characters of a reason


class UserError(Exception):
    """A mistake that the user can correct. The message names the field or file, the value, the reason and the way out."""

    exit_code = 2


class Diverged(Exception):
    """The training loss became infinite or NaN. The cause is the recipe, not the machine."""


class LostResults(UserError):
    """What was measured is lost, so that the command must not end like one with a wrong argument."""

    exit_code = 1


class ImageError(UserError):
    """An image that a loader worker may read."""

    def __init__(self, message: str) -> None:
        # torch rebuilds the exception of a loader worker from its traceback: keep only the sentence in the last line.
        super().__init__(message.strip().rpartition(f"{type(self).__name__}: ")[2])


class DataAway(ImageError):
    """Images that were there cannot be reached, perhaps with their disk. The training can continue when they are back."""


class LostDevice(RuntimeError):
    """The process of another device died or hangs. The training can continue from its last checkpoint."""


_PLAIN = {
    "Value error, ": "",
    ", unable to parse string as an integer": "",
    ", unable to parse string as a number": "",
    " after validation": "",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid list": "a list",
}


def plain_reason(message: str) -> str:
    """Return pydantic's message as half a sentence, with common words in place of programming terms."""
    for words, plain in _PLAIN.items():
        message = message.replace(words, plain)
    return message[:1].lower() + message[1:]


def printable(path: str) -> str:
    """Return a path as text that can be printed, even if the name is not valid UTF-8."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def name_some(names: Sequence[str], most: int = 3) -> str:
    """Return the first names in quotes, and the number of the others."""
    shown = ", ".join(map(repr, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or an empty text; the `__str__` of a user's own error may fail itself."""
    try:
        text = str(error).encode("utf-8", "backslashreplace").decode()  # a ledger cannot hold half of a character
    except Exception:  # noqa: BLE001 - any fault of the user's code
        return "its message cannot be shown"
    if not (lines := text.strip().splitlines()):
        return ""
    # What a loader's process raised is the last line; the first says which process.
    line = lines[-1].strip() if lines[0].startswith("Caught ") and "Original Traceback" in text else lines[0]
    return line[:LONGEST]


def describe_error(error: BaseException) -> str:
    """Return the type of an error, and its message if it has one, in one line."""
    return f"{type(error).__name__}: {first_line(error)}".rstrip(": ")

"""Errors that are no fault of the program: a mistake of the user, and a training that diverged."""

import os


class UserError(Exception):
    """A mistake that the user can correct. The message names the field or file, the value, the reason and the way out."""

    exit_code = 2


class Diverged(Exception):
    """The training loss became infinite or NaN. The cause is the recipe, not the machine."""


class LostResults(UserError):
    """What was measured is lost, so that the command must not end like one with a wrong argument."""

    exit_code = 1


class LostDevice(RuntimeError):
    """The process of another device died or hangs. The training can continue from its last checkpoint."""


_PLAIN = {
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
    return os.fsencode(path).decode("utf-8", "replace")

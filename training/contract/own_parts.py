"""What plugins have added to the recipes of this process: all of it is kept here."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass

PLACEHOLDER = "not loaded"  # in place of version and hash, of a part that is only shown; see `ledger.placeholders`


@dataclass(frozen=True)
class OwnPart:
    """A class that is not bundled: a technique, a kind of a family or a backbone."""

    own_class: type
    code: str  # version and hash of its source
    origin: str = ""  # the file or the package that it is from


@dataclass(frozen=True)
class PluginFile:
    """The text of a file; workers on other machines get it with the trial."""

    file: str  # its name in messages
    text: str


PARTS: dict[str, OwnPart] = {}  # by what each is in a recipe: input_noise, data.shapes, backbone.small_net
FILES: dict[str, PluginFile] = {}  # by the hash of the text


def list_codes() -> dict[str, str]:
    """Return version and hash by what each part is in a recipe."""
    return {key: own.code for key, own in PARTS.items()}


def list_own(family: str = "") -> dict[str, type]:
    """Return the kinds of a family, such as `optimizer`, by name; without one the techniques."""
    return {key.rpartition(".")[2]: own.own_class for key, own in PARTS.items() if key.rpartition(".")[0] == family}


def locate_fault(error: BaseException) -> str | None:
    """Return the line of a plugin that raised an error, or that called what raised it; None if no plugin did."""
    files = {sys.modules[own.own_class.__module__].__file__ for own in PARTS.values() if own.code != PLACEHOLDER}
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((f"{frame.filename}, line {frame.lineno}" for frame in frames if frame.filename in files), None)

"""A space file under overrides: its values, and where each came from."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spaces.reading.yaml_values import Place, Steps, parse_yaml
from training.errors import UserError
from training.process.text_files import read_text


@dataclass(frozen=True)
class Document:
    """Values of a file under overrides; `places` says where each came from."""

    name: str
    tree: Any
    places: dict[Steps, Place]

    def place(self, steps: Steps) -> Place:
        """Of the value at these steps, else of the nearest mapping around it."""
        found = (self.places[steps[:n]] for n in range(len(steps), -1, -1) if steps[:n] in self.places)
        return next(found, Place(self.name))

    def error(self, steps: Steps, sentence: str) -> UserError:
        place = self.place(steps)
        if place.is_override and _pack(sentence).startswith(_pack(f"{place.text}:")):
            return UserError(sentence)  # it names the override already
        return UserError(f"{place.text}: {sentence}")


def _pack(text: str) -> str:
    return text.replace(" ", "")


def read_document(path: Path, name: str) -> Document:
    """Read a YAML file that errors call by this name.

    Raises:
        UserError: it cannot be read, is empty or is not YAML.
    """
    try:
        text = read_text(path, name)
    except FileNotFoundError:
        names = [str(path.with_name(file.name)) for file in path.parent.glob("*.y*ml") if file.exists()]
        raise UserError(f"{name}: there is no such file.{did_you_mean(str(path), names)}") from None
    return parse_document(text, name)


def parse_document(text: str, name: str) -> Document:
    """Read a YAML text that errors call by this name.

    Raises:
        UserError: it is empty or is not YAML.
    """
    places: dict[Steps, Place] = {}
    tree = parse_yaml(text, name, places)
    if tree is None:
        raise UserError(f"{name}: the file is empty. Begin it with `format: 1` and `recipe:`.")
    return Document(name, tree, places)


def path_of(steps: Steps) -> str:
    """As a user writes it: `optimizer[1].lr` for the second option of a choice."""
    path = ""
    for step in steps[1:] if steps[:1] == ("recipe",) else steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != "choice":
            path += f".{step}" if path else step
    return path


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A question with the nearest right name, or nothing."""
    near = difflib.get_close_matches(str(word).lower(), list(names), n=1, cutoff=0.65)
    return f" Did you mean {near[0]}?" if near else ""

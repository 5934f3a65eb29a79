"""A space file with overrides applied: its values, and the source of each value."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spaces.parameters.domains import Steps, Tree
from spaces.reading.yaml_values import Place, parse_yaml
from training.errors import UserError
from training.process.text_files import read_text
from training.renames import current_names, current_steps


@dataclass(frozen=True)
class Document:
    """Values of a file with overrides applied; `places` has the source of each value."""

    name: str
    tree: dict[str, Tree]
    places: dict[Steps, Place]

    def place(self, steps: Steps) -> Place:
        """The source of the value at these steps, or of the nearest mapping around it."""
        places = (self.places[steps[:n]] for n in range(len(steps), -1, -1) if steps[:n] in self.places)
        return next(places, Place(self.name))

    def error(self, steps: Steps, sentence: str) -> UserError:
        """An error about the value at these steps; the message begins with its source."""
        place = self.place(steps)
        if place.is_override and _pack(sentence).startswith(_pack(f"{place.text}:")):
            return UserError(sentence)  # The sentence already begins with the override.
        return UserError(f"{place.text}: {sentence}")


def _pack(text: str) -> str:
    return text.replace(" ", "")


def read_document(path: Path, name: str) -> Document:
    """Read a YAML file; errors use `name` for it."""
    try:
        text = read_text(path, name)
    except FileNotFoundError:
        names = [str(path.with_name(file.name)) for file in path.parent.glob("*.y*ml") if file.exists()]
        raise UserError(f"{name}: there is no such file.{did_you_mean(str(path), names)}") from None
    return parse_document(text, name)


def parse_document(text: str, name: str) -> Document:
    """Read a YAML text; errors use `name` for it."""
    places: dict[Steps, Place] = {}
    tree = parse_yaml(text, name, places)
    if tree is None:
        raise UserError(f"{name}: the file is empty. Begin it with `format: 1` and `recipe:`.")
    if not isinstance(tree, dict):
        raise Document(name, {}, places).error((), "a space is a mapping. Begin it with `format: 1` and `recipe:`.")
    return Document(name, current_names(tree), {current_steps(steps): place for steps, place in places.items()})


def path_of(steps: Steps) -> str:
    """The path as a user writes it, such as `optimizer[1].lr` in the second option of a choice."""
    path = ""
    for step in steps[1:] if steps[:1] == ("recipe",) else steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != "choice":
            path += f".{step}" if path else step
    return path


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A question with the nearest of the names, to append to an error; empty if none is near."""
    near = difflib.get_close_matches(str(word).lower(), list(names), n=1, cutoff=0.65)
    return f" Did you mean {near[0]}?" if near else ""

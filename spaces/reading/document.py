"""A space file with overrides applied: its values, and the source of each value; domains become objects."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from spaces.parameters.domains import WORDS, Choice, Domain, IntUniform, LogUniform, Steps, Tree, Uniform, format_value
from spaces.reading.yaml_values import Place, parse_yaml
from training.errors import UserError
from training.process.text_files import read_text

_EXAMPLES = {"uniform": "[0.0, 0.3]", "log_uniform": "[0.001, 0.1]", "int_uniform": "[1, 4]"}


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
    return Document(name, tree, places)


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


def parse(values: Tree, steps: Steps, document: Document) -> Tree:
    """Replace each mapping that describes a domain by the domain.

    Args:
        values: Plain values of a file.
        steps: The steps that lead to them, for errors.
        document: The file, for errors.
    """
    if not isinstance(values, dict):
        return values
    words = [key for key in values if key in WORDS]
    if words and len(values) > 1:
        others = ", ".join(key for key in values if key != words[0])
        raise document.error(
            steps,
            f"{path_of(steps)}: a domain has the one key {words[0]}, and here it stands beside {others}. Keep one.",
        )
    if words:
        return _parse_domain(words[0], values[words[0]], steps, document)
    return {key: parse(value, (*steps, key), document) for key, value in values.items()}


def _parse_domain(word: str, body: Tree, steps: Steps, document: Document) -> Domain:
    if word == "choice":
        return _parse_choice(body, steps, document)
    path, written = path_of(steps), f"{{{word}: {format_value(body)}}}"
    listed = body if isinstance(body, list) else []
    ends = [end for end in listed if isinstance(end, int | float) and type(end) is not bool and abs(end) < inf]
    if not len(listed) == len(ends) == 2:
        example = f"{{{word}: {_EXAMPLES[word]}}}"
        raise document.error(steps, f"{path}={written}: {word} takes two numbers, low and high, as in {example}.")
    low, high = ends
    if low > high:
        raise document.error(
            steps, f"{path}={written}: its low end {low} is above its high end {high}. Write [{high}, {low}]."
        )
    if word == "log_uniform" and low <= 0:
        raise document.error(
            steps, f"{path}={written}: {low} has no logarithm. Begin above 0, or use uniform, or a choice with 0 in it."
        )
    if word == "int_uniform":
        if type(low) is not int or type(high) is not int:
            raise document.error(steps, f"{path}={written}: int_uniform takes whole numbers. Use uniform for others.")
        return IntUniform(low, high)
    return Uniform(low, high) if word == "uniform" else LogUniform(low, high)


def _parse_choice(body: Tree, steps: Steps, document: Document) -> Choice:
    path = path_of(steps)
    if not isinstance(body, list):
        raise document.error(steps, f"{path}={{choice: {format_value(body)}}}: choice takes a list, as in [a, b].")
    if not body:
        raise document.error(steps, f"{path}={{choice: []}}: an empty choice offers nothing. List at least one option.")
    options: list[Tree] = []
    for position, value in enumerate(body):
        option = parse(value, (*steps, "choice", position), document)
        if option in options:
            raise document.error(
                (*steps, "choice", position), f"{path}: the option {format_value(value)} is listed twice. Remove one."
            )
        options.append(option)
    return Choice(tuple(options))

"""From the mappings of a file to domains: a mapping with one reserved key is a hole."""

from __future__ import annotations

from typing import Any

from spaces.parameters.domains import WORDS, Choice, Domain, IntUniform, LogUniform, Uniform, format_value
from spaces.reading.document import Document, path_of
from spaces.reading.yaml_values import Steps

_EXAMPLES = {"uniform": "[0.0, 0.3]", "log_uniform": "[0.001, 0.1]", "int_uniform": "[1, 4]"}


def parse(values: Any, steps: Steps, document: Document) -> Any:
    """The same values with domains in place of holes.

    Raises:
        UserError: a hole is malformed.
    """
    if not isinstance(values, dict):
        return values
    words = [key for key in values if key in WORDS]
    if words and len(values) > 1:
        others = ", ".join(key for key in values if key != words[0])
        raise document.error(
            steps, f"{path_of(steps)}: a hole has the one key {words[0]}, and here it stands beside {others}. Keep one."
        )
    if words:
        return _parse_hole(words[0], values[words[0]], steps, document)
    return {key: parse(value, (*steps, key), document) for key, value in values.items()}


def _parse_hole(word: str, body: Any, steps: Steps, document: Document) -> Domain:
    if word == "choice":
        return _parse_choice(body, steps, document)
    path, written = path_of(steps), f"{{{word}: {format_value(body)}}}"
    numbers = isinstance(body, list) and len(body) == 2 and all(type(end) in (int, float) for end in body)
    if not numbers or any(abs(end) == float("inf") or end != end for end in body):
        example = f"{{{word}: {_EXAMPLES[word]}}}"
        raise document.error(steps, f"{path}={written}: {word} takes two numbers, low and high, as in {example}.")
    low, high = body
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


def _parse_choice(body: Any, steps: Steps, document: Document) -> Choice:
    path = path_of(steps)
    if not isinstance(body, list):
        raise document.error(steps, f"{path}={{choice: {format_value(body)}}}: choice takes a list, as in [a, b].")
    if not body:
        raise document.error(steps, f"{path}={{choice: []}}: an empty choice offers nothing. List at least one option.")
    options: list[Any] = []
    for position, value in enumerate(body):
        option = parse(value, (*steps, "choice", position), document)
        if option in options:
            raise document.error(
                (*steps, "choice", position),
                f"{path}: the option {format_value(value)} stands there twice. Remove one.",
            )
        options.append(option)
    return Choice(tuple(options))

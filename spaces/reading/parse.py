"""Domains from the mappings of a file: a mapping whose one key is reserved is a domain."""

from __future__ import annotations

from math import inf

from spaces.parameters.domains import (
    WORDS,
    Choice,
    Domain,
    IntUniform,
    LogUniform,
    Steps,
    Tree,
    Uniform,
    format_value,
)
from spaces.reading.document import Document, path_of

_EXAMPLES = {"uniform": "[0.0, 0.3]", "log_uniform": "[0.001, 0.1]", "int_uniform": "[1, 4]"}


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
    ends = (
        [end for end in body if isinstance(end, int | float) and type(end) is not bool and abs(end) < inf]
        if isinstance(body, list)
        else []
    )
    if not isinstance(body, list) or not len(body) == len(ends) == 2:
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
                (*steps, "choice", position),
                f"{path}: the option {format_value(value)} is listed twice. Remove one.",
            )
        options.append(option)
    return Choice(tuple(options))

"""Read and write YAML 1.2 as plain values; the place of each value is kept, so that an error can name its line."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache
from textwrap import wrap
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.constructor import BaseConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from spaces.parameters.domains import Steps, Tree
from training.errors import UserError

DEEPEST = 50
MOST_VALUES = 100_000  # Aliases can turn a short text into a billion values.

# Other scalars, such as dates, stay text.
_TYPED = {f"tag:yaml.org,2002:{tag}" for tag in ("null", "bool", "int", "float")}


class Place(NamedTuple):
    """The source of a value: `card.yaml:7`, or the text of an override."""

    text: str
    is_override: bool = False


def parse_yaml(text: str, name: str, places: dict[Steps, Place] | None = None) -> Tree:
    """Plain values of a YAML text.

    Args:
        text: The YAML.
        name: Its name in errors.
        places: The place of each value is added to it.
    """
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.max_depth = DEEPEST + 1  # Without it, 3,000 open brackets take seconds to read.
        node = yaml.compose(io.StringIO(text))
        _refuse_endless(node, name)
        return None if node is None else _construct(node, name, (), {} if places is None else places)
    except (RecursionError, MaxDepthExceededError):
        raise _too_deep(name) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark and places is not None else ""
        problem = error.problem or error.context or ""
        if problem.startswith("but "):  # ruamel puts the first half of the sentence into `context`.
            problem = f"{error.context}, {problem}"
        raise UserError(f"{name}{line}: this is not YAML: {problem}.") from None
    except YAMLError as error:
        raise UserError(f"{name}: this is not YAML: {str(error).splitlines()[0]}.") from None


def _refuse_endless(root: Node | None, name: str) -> None:
    """Count the values, with those that aliases repeat, before any of them is built."""
    count, waiting = 0, [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        count += 1
        if depth > DEEPEST:
            raise _too_deep(name)
        if count > MOST_VALUES:
            raise UserError(
                f"{name}: it holds more than {MOST_VALUES:,} values, with those that its aliases (*name) repeat. "
                "Write fewer, without aliases of aliases."
            )
        if isinstance(node, MappingNode):
            waiting += [(part, depth + 1) for pair in node.value for part in pair]
        elif isinstance(node, SequenceNode):
            waiting += [(part, depth + 1) for part in node.value]


def _too_deep(name: str) -> UserError:
    return UserError(
        f"{name}: it is nested more than {DEEPEST} levels deep, or inside itself. A space needs fewer than ten levels."
    )


def _construct(node: Node, name: str, steps: Steps, places: dict[Steps, Place]) -> Tree:
    places.setdefault(steps, Place(f"{name}:{node.start_mark.line + 1}"))
    match node:
        case MappingNode():
            return _construct_mapping(node, name, steps, places)
        case SequenceNode():
            return [_construct(item, name, (*steps, i), places) for i, item in enumerate(node.value)]
        case ScalarNode() if node.tag in _TYPED:
            return _construct_scalar(node, name)
        case _:
            return node.value


def _construct_scalar(node: ScalarNode, name: str) -> Tree:
    try:
        return _scalars().construct_object(node)
    except (ValueError, LookupError, AttributeError, YAMLError):  # `!!bool maybe`, or more digits than Python reads
        written = node.value if len(node.value) <= 20 else f"{node.value[:20]}…"
        tag = str(node.tag).rpartition(":")[2]
        raise UserError(
            f"{name}: {written} cannot be read as a value of type {tag}. Write it as a plain value."
        ) from None


def _construct_mapping(node: MappingNode, name: str, steps: Steps, places: dict[Steps, Place]) -> dict[str, Tree]:
    values: dict[str, Tree] = {}
    for key_node, value_node in node.value:
        place = Place(f"{name}:{key_node.start_mark.line + 1}")
        if not isinstance(key_node, ScalarNode):
            raise UserError(f"{place.text}: a key must be a name, not a list or a mapping.")
        key = key_node.value
        if key in values:
            first = places[(*steps, key)].text.rpartition(":")[2]
            raise UserError(f"{place.text}: {key} is set a second time here (first in line {first}). Remove one.")
        places[(*steps, key)] = place
        values[key] = _construct(value_node, name, (*steps, key), places)
    return values


@cache
def _scalars() -> BaseConstructor:
    return YAML(typ="safe", pure=True).constructor


def dump_yaml(
    values: Mapping[str, object], start: str = "", reasons: Mapping[tuple[str, str], str] | None = None
) -> str:
    """YAML that reads back as the same values, with every digit of floats; short mappings are on one line.

    Comments are the lines of `start`, at the top, and `reasons`, each above a key of a section.
    """
    yaml = YAML()
    yaml.width = 4096  # Lines are not wrapped.
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    root = CommentedMap({key: _style(value, depth=1) for key, value in values.items()})
    for (section, key), reason in (reasons or {}).items():
        root[section].yaml_set_comment_before_after_key(key, _wrap(reason), indent=2)
    if start:
        root.yaml_set_start_comment("\n".join(map(_wrap, start.splitlines())))
    yaml.dump(root, stream)
    return stream.getvalue()


def _wrap(sentence: str) -> str:
    return "\n".join(wrap(sentence, 100, subsequent_indent="  ", break_long_words=False))


def _style(values: object, depth: int) -> object:
    if isinstance(values, list):
        sequence = CommentedSeq([_style(value, depth + 1) for value in values])
        # ruamel would leave out the braces of mappings in a list on one line.
        if not any(isinstance(value, dict) for value in values):
            sequence.fa.set_flow_style()
        return sequence
    if not isinstance(values, dict):
        return values
    mapping = CommentedMap({key: _style(value, depth + 1) for key, value in values.items()})
    nested = [value for value in mapping.values() if isinstance(value, CommentedMap | CommentedSeq)]
    if depth > 1 and len(str(values)) < 100 and all(value.fa.flow_style() for value in nested):
        mapping.fa.set_flow_style()
    return mapping

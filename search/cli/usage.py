"""Describe a wrong option or argument of a command line in one sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import typer

from training.errors import plain_reason

# Typer exports only a subclass of this class, which is the base of all errors about options and arguments.
UsageError: Any = typer.BadParameter.__mro__[1]
SHOWN = 80  # characters at each end of a very long word


def describe_usage(error: Any, words: Sequence[str]) -> str:
    """Return a sentence with the option or argument, its value, the reason and the help; `words` follow `sweep`."""
    command = error.ctx.command_path if error.ctx else f"sweep {words[0]}"
    reason = error.format_message().rstrip(".")
    if type(error) is typer.BadParameter and error.param and (found := _find_value(error.param, words)):
        reason = f"{found}: {plain_reason(error.message).rstrip('.')}"
    return f"{reason}{'' if reason.endswith('?') else '.'} See {command} --help."


def make_plain(sentence: str) -> str:
    """Return the sentence on one line, with very long words shortened and control characters as codes."""
    plain = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in sentence)
    return re.sub(rf"(\S{{{SHOWN}}})\S{{{SHOWN},}}(\S{{{SHOWN}}})", r"\1…\2", plain)


def _find_value(param: Any, words: Sequence[str]) -> str | None:
    """Return the option as the user wrote it, with its value."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in param.opts:
            return f"{name}={value if equals else following}"
    variable = param.envvar if isinstance(param.envvar, str) else ""
    return f"{variable}={os.environ[variable]}" if variable in os.environ else None

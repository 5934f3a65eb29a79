"""Write docs/commands.md from the command's own help: `make docs`."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import typer.main

from search.cli.main import app

WIDTH = 118

OPENING = """
# Commands

`make docs` writes this page from the help of the commands. `sweep COMMAND --help` shows the same.
`SPACE` is a bundled space or a YAML file; `[PATH=VALUE]...` sets values in it, such as `epochs=3` or
`optimizer={name: sgd, lr: 0.1}`.

## Exit codes

| Code | Meaning |
| --- | --- |
| 0 | The command succeeded. A sweep whose time budget is spent counts as done. |
| 1 | No trial completed, or an error in the program, with a traceback. |
| 2 | An error in the command, a file or the machine, in one sentence that says how to correct it. |
| 129 | The terminal was closed (`SIGHUP`). It does not end a sweep that was started with `nohup`. |
| 130 | Ctrl-C. `sweep resume NAME` continues. |
| 143 | `SIGTERM`. `sweep resume NAME` continues. |

After a signal, the ledger and the MLflow runs are complete within three seconds, and the last line has the command that
continues. A second Ctrl-C skips the rest of the clean-up.
"""


def main() -> None:
    print("\n".join(lines()))


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from OPENING.strip().splitlines()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        yield from _describe(name, command)


def _describe(name: str, command: Any) -> Iterator[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    shape = " ".join(["sweep", name, *(_placeholder(one) for one in arguments), "[OPTIONS]"])
    yield from ["", f"## sweep {name}", "", "```", shape, "```"]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield ""
        yield from textwrap.wrap(paragraph, WIDTH)
    yield ""
    for one in command.params:
        term = f"`{_placeholder(one)}`" if one in arguments else ", ".join(f"`{option}`" for option in _options(one))
        yield from textwrap.wrap(f"- {term}: {_meaning(one)}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _placeholder(argument: Any) -> str:
    text = argument.metavar or argument.name.upper()
    return text if argument.required or text.startswith("[") else f"[{text}]"


def _options(option: Any) -> list[str]:
    return [*option.opts, *option.secondary_opts]


def _meaning(parameter: Any) -> str:
    notes = []
    if parameter.envvar:
        notes.append(f"environment variable `{parameter.envvar}`")
    if parameter.default is not None and not isinstance(parameter.default, bool) and not parameter.required:
        notes.append(f"default `{parameter.default}`")
    words = " ".join((parameter.help or "").split())
    return f"{words} ({', '.join(notes)})" if notes else words


if __name__ == "__main__":
    main()

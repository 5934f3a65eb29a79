"""One line for each check of `sweep run --check`."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from analysis.formatting import plural
from search.checking.checks import Check
from search.display.tables.columns import make_console
from training.errors import UserError


def print_checks(checks: Iterable[Check]) -> None:
    """Print each check as soon as it is made.

    Raises:
        UserError: one of them failed.
    """
    console = make_console()
    is_file = not console.is_interactive  # a terminal would break words
    failed = []
    for check in checks:
        word, style = ("ok", "green") if check.is_ok else ("failed", "bold red")
        console.print(Text.assemble((f"{word:<6}", style), f"  {check.name}: {check.sentence}"), soft_wrap=is_file)
        for remark in check.remarks:
            console.print(Text(f"        ! {remark}"), soft_wrap=is_file)
        failed += [] if check.is_ok else [check.name]
    if failed:
        raise UserError(f"{plural(len(failed), 'check')} failed ({', '.join(failed)}). The lines above say why.")
    console.print("A sweep can start. Nothing was trained, and nothing was made.")

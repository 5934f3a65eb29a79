"""A space as a table: every search parameter, and every fixed value that is not the default."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ledger.formatting import plural
from spaces.parameters.domains import format_value
from training.recipe import flatten

if TYPE_CHECKING:
    from spaces.space import Space

TITLES = ("parameter", "domain or fixed value", "only with")
HARD = "\N{NO-BREAK SPACE}"
NARROWEST = 15  # characters that the middle column has at least, as many as cosine_restarts
NARROW = 100  # a terminal with fewer columns has one space between the columns of the table


def space_table(space: Space, width: int = NARROW) -> RenderableType:
    """Return every search parameter, every fixed value that is not the default, and the size of the space.

    A text for which its column has no room is continued in the next line; nothing is cut.
    """
    gap = 1 if width < NARROW else 2
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for title in TITLES:
        table.add_column(title, overflow="fold")
    rows = space.rows()
    names = [row.path for row in rows]
    domains = [row.domain if row.is_fixed else _name_options(row.domain) for row in rows]
    conditions = [_shorten(row.condition, row.technique) for row in rows]
    first, last = (max(map(len, column)) for column in ([TITLES[0], *names], [TITLES[2], *conditions]))
    room = max(NARROWEST, width - first - last - 2 * gap)
    for row, *cells in zip(rows, names, (_wrap(text, room) for text in domains), conditions, strict=True):
        table.add_row(*map(Text, cells), style="dim" if row.is_fixed else "")
    return Group(table, Text(""), Text(describe_size(space)))


def _wrap(domain: str, room: int) -> str:
    """Begin a new line between options; in `uniform [0.1, 0.5]` only where it is too long, and before its bounds."""
    options = [option.replace(", ", f",{HARD}") for option in domain.split(" | ")]
    text = f"{HARD}| ".join(option if len(option) > room else option.replace(" ", HARD) for option in options)
    lines = wrap(text, room, break_on_hyphens=False)
    return "\n".join(lines).replace(HARD, " ")


def _name_options(domain: str) -> str:
    """Replace options that contain domains by their number; each such domain has its own row."""
    options = domain.split(" | ")
    return " | ".join(f"option {i}" if option[0] == "{" else option for i, option in enumerate(options, start=1))


def _shorten(condition: str, technique: str) -> str:
    """In rows of the same technique, shorten `optimizer=sgd` to `sgd` and `mixup[1]` to `option 2`."""
    condition = re.sub(r"([\w.]+)\[(\d+)\]", lambda m: f"{m[1]}[option {int(m[2]) + 1}]", condition)
    return re.sub(rf"\b{technique}(?:=([^,]+)|\[([^]]+)\])", lambda m: m[1] or m[2], condition)


SAMPLERS = {"tpe": "proposed by TPE", "random": "drawn at random", "grid": "taken from the grid"}


def describe_size(space: Space) -> str:
    """Describe the number of combinations, the continuous ranges, and how they are searched."""
    search, scheduler = space.search, space.search.scheduler
    continuous = sum(row.domain.startswith(("uniform", "log_uniform")) for row in space.rows())
    size = plural(space.count(), "combination") + " of the discrete part"
    if continuous:
        size += f" and {plural(continuous, 'continuous range')}"
    how = "each trained to its last epoch"
    if scheduler.name == "asha":
        how = f"stopped early by ASHA: after {plural(scheduler.min_epochs, 'epoch')} or more, "
        how += f"the best 1 in {scheduler.reduction_factor} at each rung continue"
        if scheduler.adapt:
            how += " (more if early scores do not predict the final ones)"
    chosen = flatten(search.baseline.model_dump(exclude_unset=True))
    named = " ".join(f"{path}={format_value(value)}" for path, value in chosen.items())
    baseline = f"the baseline ({named})" if named else "the baseline"
    return (
        f"{size}. {plural(search.trials, 'trial')}, ranked by {search.metric}: {baseline} at three learning rates, "
        f"then recipes {SAMPLERS[search.sampler]}, {how}."
    )

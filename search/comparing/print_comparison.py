"""The tables of `sweep compare`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from ledger.formatting import format_effect, format_score
from search.comparing.comparison import Comparison, Kind, Side
from search.display.recipe_text import cut, format_state
from search.display.tables.columns import Column, Columns
from spaces.parameters.domains import format_value

TITLES: dict[Kind, str] = {
    "data": "Data that differs",
    "space": "Spaces: domains and fixed values that differ",
    "search": "Search settings that differ",
    "settings": "Settings that differ",
    "recipe": "Recipes of the best trials: fields that differ",
}
NARROWEST = 24  # characters that the column of a sweep keeps, enough for an effect with its interval


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the sweeps, then one table for each kind of difference, the curves and the effects."""
    metric = comparison.sweeps[0].metric
    _print_table(console, "", "", comparison.sweeps, list(_describe_sides(comparison.sweeps)))
    for kind, title in TITLES.items():
        rows = [
            (difference.field, [_format(value) for value in difference.values])
            for difference in comparison.differences
            if difference.kind == kind
        ]
        _print_table(console, title, "field", comparison.sweeps, rows)
    curves = [
        (str(point.epoch), [_format_point(metric, *pair) for pair in zip(point.scores, point.is_rung, strict=True)])
        for point in comparison.curves
    ]
    _print_table(console, "Best trials by epoch (* is a rung)", "epoch", comparison.sweeps, curves)
    effects = [
        (f"{pair.parameter}={pair.level}", [format_effect(metric, it.effect, it.low, it.high) for it in pair.effects])
        for pair in comparison.effects
    ]
    _print_table(console, "Effects, with 90 % intervals; positive is better", "level", comparison.sweeps, effects)
    for sentence in comparison.notes:
        console.print(Text(sentence))


def _describe_sides(sides: Sequence[Side]) -> Iterator[tuple[str, list[str]]]:
    yield "state", [format_state(side.state) for side in sides]
    yield "trials", [str(side.trials) for side in sides]
    yield "metric", [side.metric for side in sides]
    yield "best trial", ["–" if side.best is None else f"{side.best:04d}" for side in sides]
    yield "best score", [format_score(side.metric, side.score, side.standard_error) for side in sides]


def _print_table(
    console: Console, title: str, first: str, sides: Sequence[Side], rows: list[tuple[str, list[str]]]
) -> None:
    if not rows:
        return
    if title:
        console.print(Text(f"\n{title}", style="bold"))
    labels = [side.label for side in sides]
    room = console.width - max(len(first), *(len(name) for name, _ in rows))
    most = max(NARROWEST, room // len(sides) - 2)
    rows = [(name, [cut(value, most) for value in values]) for name, values in rows]
    widths = [max(map(len, column)) + 2 for column in zip(labels, *(values for _, values in rows), strict=True)]
    for block in _split(widths, room):
        if block.start:
            console.print()
        cells = [[name, *values[block]] for name, values in rows]
        console.print(Columns([Column(first), *map(Column, labels[block])], cells))


def _split(widths: Sequence[int], room: int) -> Iterator[slice]:
    """Return the parts of a table that is too wide: each has as many columns as there is room for, at least one."""
    start = 0
    for end in range(1, len(widths) + 1):
        if end == len(widths) or sum(widths[start : end + 1]) > room:
            yield slice(start, end)
            start = end


def _format(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "–" if value is None else format_value(value)


def _format_point(metric: str, score: float | None, is_rung: bool) -> str:
    return format_score(metric, score) + " *" * is_rung

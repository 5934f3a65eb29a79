"""The plan of a sweep as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ledger.formatting import format_seconds, plural
from search.display.tables.columns import Column, Columns
from search.planning.measured_space import WORDS
from search.planning.sweep_plan import RecipeRow, SweepPlan

WIDTH = 22
GB = 1024  # megabytes

RECIPES = [
    Column("images/s", right=True),
    Column("epoch", right=True),
    Column("training", right=True),
    Column("evaluation", right=True, rank=1),
    Column("process", right=True, rank=2),
    Column("recipe"),
]


def describe_plan(plan: SweepPlan) -> RenderableType:
    """Return the needs of a sweep, the measured recipes, and those that cannot run here."""
    measured = [_list_cells(row) for row in plan.recipes if not row.problem]
    facts = Table.grid()
    facts.add_column(width=WIDTH, no_wrap=True)
    facts.add_column()
    for label, value in _list_lines(plan):
        facts.add_row(label, Text(value))
    return Group(
        facts,
        Text(""),
        Columns(RECIPES, measured, whole=len(measured)),
        *(Text(f"! {sentence}") for sentence in _list_warnings(plan)),
    )


def _list_lines(plan: SweepPlan) -> Iterator[tuple[str, str]]:
    per = f"{plan.gpus_per_trial:g} GPU, " if plan.gpus_per_trial else ""
    yield "trials", f"{plan.trials}, {plan.slots} at a time, {per}{plan.cpus_per_trial:g} CPU each"
    if plan.epochs < plan.epochs_full:
        span = f"{format_seconds(plan.seconds_low)} to {format_seconds(plan.seconds_high)}"
        yield "time with ASHA", f"about {format_seconds(plan.seconds)} ({span}), {plan.epochs:,.0f} epochs"
    yield "time without ASHA", f"about {format_seconds(plan.seconds_full)}, {plan.epochs_full:,.0f} epochs"
    if plan.price is not None and plan.price_full is not None:
        yield "price", f"about {plan.price:,.2f} with ASHA, {plan.price_full:,.2f} without"
    where = " on the GPU" if plan.device == "cuda" else ""
    memory = f"{_gigabytes(plan.train_memory_mb)} in training and {_gigabytes(plan.evaluation_memory_mb)} in evaluation"
    processes = f", {_gigabytes(plan.ram_mb)} in its processes" if where else ""
    yield "memory of a trial", f"up to {memory}{where}{processes}"
    if plan.fits_by:
        yield "trials that fit", f"{plan.fits} on one {'GPU' if where else 'machine'} (limited by its {plan.fits_by})"
    yield "images per second", f"{plan.images_per_second_low:,.0f} to {plan.images_per_second_high:,.0f}"
    if plan.time_factor is not None and plan.memory_factor is not None:
        factors = f"{plan.time_factor:.2f} in time and {plan.memory_factor:.2f} in memory"
        yield "error", f"a factor of {factors}, on {plural(plan.checked, 'random recipe')}"


def _list_cells(row: RecipeRow) -> list[str]:
    return [
        f"{row.images_per_second or 0:,.0f}",
        _seconds(row.epoch_seconds or 0),
        _gigabytes(row.train_memory_mb or 0),
        _gigabytes(row.evaluation_memory_mb or 0),
        _gigabytes(row.ram_mb or 0),
        ": ".join(part for part in (WORDS.get(row.kind, ""), row.differs) if part),
    ]


def _list_warnings(plan: SweepPlan) -> Iterator[str]:
    for row in plan.recipes:
        if row.problem:
            yield f"This cannot run here: {row.differs or 'the baseline'} ({row.problem.rstrip('.')})."
    yield from plan.removed
    if plan.not_measured:
        yield f"There was no time to measure these choices, so the plan ignores their cost: {', '.join(plan.not_measured)}."


def _gigabytes(megabytes: float) -> str:
    return f"{megabytes / GB:.2f} GB"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else format_seconds(seconds)

"""`sweep train --plan`: the steps and learning rates of a recipe as tables, and as a picture."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ledger.formatting import plural
from search.display.one_trial import draw_curve
from training.errors import UserError
from training.process.writable import complete_file
from training.recipe import Recipe

if TYPE_CHECKING:
    from rich.console import Console

    from training.rate_plan import RatePlan

LISTED = 30  # epochs and groups that are listed at most


def show_plan(recipe: Recipe, picture: Path | None, console: Console) -> None:
    """Print the plan of a recipe, and draw it into a file if one is named."""
    from training.rate_plan import plan_rates

    plan = plan_rates(recipe)
    total = sum(plan.epoch_steps)
    console.print(
        f"{plural(recipe.epochs, 'epoch')} of {plural(plan.epoch_images, 'image')}: {plural(total, 'optimizer step')}."
    )
    for note in plan.notes:
        console.print(note, markup=False)
    rates = plan.groups[0].rates
    console.print(Text(f"{draw_curve(rates, 0, max(rates))}  0 to {max(rates):.3g}"))
    if len(plan.groups) > 1:
        console.print(_tabulate_groups(plan))
    console.print(_tabulate_epochs(plan))
    if picture is not None:
        _write_picture(plan, picture)
        console.print(f"Wrote {picture}.", markup=False)


def _tabulate_groups(plan: RatePlan) -> Table:
    table = Table("parameters", "numbers", "highest rate")
    for column in table.columns[1:]:
        column.justify = "right"
    for group in plan.groups[:LISTED]:
        table.add_row(Text(f"{group.first} … {group.last}"), f"{group.numbers:,}", f"{max(group.rates):.3g}")
    if len(plan.groups) > LISTED:
        table.add_row(f"… and {len(plan.groups) - LISTED} more", "", "")
    return table


def _tabulate_epochs(plan: RatePlan) -> Table:
    table = Table("epoch", "steps", "images per step", "rate at its first step", "at its last step")
    for column in table.columns:
        column.justify = "right"
    rates, ends = plan.groups[0].rates, list(accumulate(plan.epoch_steps))
    for epoch, (end, steps, images) in enumerate(zip(ends, plan.epoch_steps, plan.step_images, strict=True), start=1):
        if epoch < LISTED or epoch == len(ends):
            table.add_row(str(epoch), str(steps), str(images), f"{rates[end - steps]:.3g}", f"{rates[end - 1]:.3g}")
        elif epoch == LISTED:
            table.add_row("…", "", "", "", "")
    return table


def _write_picture(plan: RatePlan, picture: Path) -> None:
    from analysis.report.plots.rate_plots import plot_plan

    try:
        with complete_file("--picture", picture) as path:
            plot_plan(plan).savefig(path)
    except ValueError as error:  # matplotlib does not know the ending
        reason = str(error).split("\n")[0].rstrip(".")
        raise UserError(f"--picture={picture}: {reason}. Name a file such as plan.png or plan.svg.") from None

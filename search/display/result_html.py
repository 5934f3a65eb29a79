"""A sweep as HTML, for the output of a notebook's cell."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from analysis.formatting import format_score, plural
from search.display.recipe_text import baseline_of, describe_recipe

if TYPE_CHECKING:
    from search.core.record import SweepRecord

SHOWN = 10  # trials in the table


def describe_in_html(record: SweepRecord, state: str) -> str:
    """Return the sweep's name, its state and a table of its best trials."""
    trials, baseline = record.trials, baseline_of(record.trials)
    rows = "".join(
        f"<tr><td>{trial.name}</td><td>{escape(trial.state)}</td>"
        f"<td>{format_score(trials.metric, trial.score, trial.standard_error)}</td>"
        f'<td style="text-align:left">{escape(describe_recipe(trial, baseline))}</td></tr>'
        for trial in trials.ranked()[:SHOWN]
    )
    return (
        f"<p><b>{escape(record.name)}</b>: {escape(state.replace('_', ' '))}, {plural(len(trials), 'trial')}</p>"
        f"<table><tr><th>trial</th><th>state</th><th>score</th><th>recipe</th></tr>{rows}</table>"
    )

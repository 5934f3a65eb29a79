"""Results for other programs, as JSON alone on the standard output: exact numbers, and names that do not change."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic_core import to_jsonable_python

from ledger.columns import list_columns
from ledger.record import SweepRecord
from ledger.trials import Trial
from search.display.terminal import make_console

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.report.findings import Findings


def describe_sweep(record: SweepRecord) -> dict[str, object]:
    """Return a sweep with all its trials in the order of their rank; those without a score come last, with rank null.

    A trial has the columns of `ledger.columns`, its `rank`, and its `recipe` with values by dotted path.
    """
    ranks: list[tuple[int | None, Trial]] = list(enumerate(record.trials.ranked(), start=1))
    ranks += [(None, trial) for trial in record.trials if trial.score is None]
    columns = {column.row or column.name: column for column in list_columns("rows")}
    trials = [
        {name: column.value(trial) for name, column in columns.items()} | {"rank": rank, "recipe": trial.recipe.flat()}
        for rank, trial in ranks
    ]
    return {
        "name": record.name,
        "state": record.state,
        "metric": record.trials.metric,
        "planned_trials": record.budget,
        "trials": trials,
    }


def describe_findings(findings: Findings, page: Path) -> dict[str, object]:
    """Return the findings of a report; `page` is the file that it wrote, and `best` the number of the best trial.

    The rows of `effects` and `interactions` are those of `measure_effects` and `measure_interactions`.
    """
    sweep, best = findings.sweep, findings.sweep.completed.iloc[0]
    return {
        "sweep": sweep.name,
        "metric": sweep.metric,
        "page": str(page),
        "best": int(best.trial),
        "score": float(best.score),
        "standard_error": float(best.standard_error),
        "effects": findings.effects.to_dict("records"),
        "interactions": findings.interactions.to_dict("records"),
        "cautions": list(findings.cautions),
    }


@contextmanager
def apart(is_for_programs: bool) -> Iterator[Console]:
    """Return a console for the messages of the block. For programs, all that the block prints goes to standard error."""
    if not is_for_programs:
        yield make_console()
        return
    with redirect_stdout(sys.stderr):
        yield make_console(sys.stderr)


def to_json(rows: object) -> str:
    """Return a dataclass, a list of them or plain values as JSON; numbers that it does not have, such as NaN, are null."""
    plain = to_jsonable_python(rows, inf_nan_mode="null", fallback=str)
    return json.dumps(plain, indent=2, ensure_ascii=False)

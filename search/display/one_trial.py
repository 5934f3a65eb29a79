"""One trial in full: its recipe, its curve, the end of its log, and how to train it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from ledger.formatting import format_megabytes, format_score, format_seconds
from ledger.recipe_text import baseline_of, describe_recipe, format_state
from ledger.record import SweepRecord
from ledger.trials import Trial
from spaces.load import dump_recipe

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60  # characters of a curve at most
LOG_LINES = 10


def describe_trial(record: SweepRecord, trial: Trial, width: int) -> RenderableType:
    """Return the facts about a trial as lines; those of its recipe have at most `width` characters, and stay YAML."""
    recipe = dump_recipe(trial.recipe).rstrip().splitlines()
    wrapped = (Text(part) for line in recipe for part in _wrap_yaml(line, width))
    return Group(*(Text(line) for line in _list_lines(record, trial)), *wrapped)


def _wrap_yaml(line: str, width: int) -> list[str]:
    """Break a long line at a space; in YAML what follows must be further to the right."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _list_lines(record: SweepRecord, trial: Trial) -> Iterator[str]:
    metric = record.trials.metric
    reason = f", {trial.reason}" if trial.reason else ""
    yield f"Trial {trial.name} of {record.name}: {format_state(trial.state)}{reason}"
    ranked = record.trials.ranked()
    if trial.reports:
        last, seconds = trial.reports[-1], format_seconds(trial.seconds or 0.0)
        yield (
            f"{metric} {format_score(metric, last.score, last.standard_error)}, rank {ranked.index(trial) + 1} of "
            f"{len(ranked)}; {trial.epoch} of {trial.epochs} epochs in {seconds}, the best was {last.best_epoch}"
        )
        if trial.memory_mb is not None:
            yield f"Peak memory: {format_megabytes(trial.memory_mb)}"
        if trial.host:
            yield "Machines: " + ", ".join(dict.fromkeys(report.host for report in trial.reports if report.host))
        yield ""
        values = [value for report in trial.reports if (value := report.metrics.get(metric)) is not None]
        if values:
            curve = draw_curve(values, min(values), max(values))
            yield f"{metric} by epoch: {curve}  {format_score(metric, values[0])} → {format_score(metric, values[-1])}"
    yield ""
    yield f"Recipe: {describe_recipe(trial, baseline_of(record.trials))}"
    if run_id := record.run_ids.get(trial.number):
        yield f"MLflow run: {run_id}"
    log = record.folder.trial(trial.number) / "log.txt"
    if log.is_file():
        yield f"Log: {log}"
        yield from (f"  {line}" for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:])
    yield f"Train it again: sweep export {record.called} --trial {trial.name}, then sweep train with its recipe.yaml"
    yield ""


def draw_curve(values: Sequence[float], low: float, high: float) -> str:
    """Draw values with one character for some of them each: the height is their mean, between `low` and `high`."""
    means = np.array([part.mean() for part in np.array_split(np.array(values), min(WIDTH, len(values)))])
    shares = (means - low) / (high - low) if high > low else np.ones(len(means))
    return "".join(BARS[height] for height in np.minimum((shares * len(BARS)).astype(int), len(BARS) - 1))

"""The sections of the page about what was replayed: how soon good recipes are found, and how true the reports are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.effects.seed_intervals import Interval
from benchmarks.search_quality import BASE
from benchmarks.study_parts.judging import summarise
from benchmarks.study_parts.results import COMMAND, Study
from benchmarks.study_parts.searching import MARGIN, METHODS, WORKERS, budget_of, mean_seconds, ratios

OURS = "this project"


def describe_search(study: Study) -> Iterator[str]:
    seconds, epochs = ratios(study.runs, "seconds"), ratios(study.runs, "epochs")
    budget = budget_of(study.curves)
    seeds = len({run.seed for run in study.runs})
    yield f"""## Search

**These are replays of the recorded trainings, not new ones**: a recipe that a search proposes stands for the nearest
recorded one, an epoch takes the CPU seconds that it took when it was recorded, and {WORKERS} workers run at the same
time. All methods search the same space. {seeds} seeds each; the time of the searches' own decisions does not count, and
no method begins with the baselines. A good recipe is one whose validation accuracy, fully trained, is within
{100 * MARGIN:.0f} point of the best recorded one; a search that has no such recipe in the lead after the time of
{budget} full trainings counts with that time.

```
{COMMAND} --stage search
```

| Method | found | time, relative | epochs, relative | test accuracy after {budget // 4} / {budget // 2} / {budget} trainings |
| --- | --- | --- | --- | --- |"""
    for method, name in METHODS.items():
        own = [run for run in study.runs if run.method == method]
        tests = np.mean([run.tests for run in own], axis=0)
        points = [tests[len(tests) * k // 4 - 1] for k in (1, 2, 4)]
        yield (
            f"| {name} | {np.mean([run.reached for run in own]):.0%} | {_ratio(seconds[method])} | "
            f"{_ratio(epochs[method])} | {' / '.join(f'{100 * point:.1f}' for point in points)} % |"
        )
    mean = mean_seconds(study.curves) / WORKERS
    top = study.curves.optimum - MARGIN
    good = [c.test for c in study.curves.configurations if c.best >= top and c.test is not None]
    random = np.mean([run.seconds for run in study.runs if run.method == BASE]) / 60
    yield f"""
*Found* is the share of seeds with a good recipe. Time and epochs until then are relative to random search, with 95 %
intervals over seeds; random search takes {random:.1f} minutes in the mean. The test accuracy is that of the leading recipe,
fully trained, after the time of so many full trainings, each {mean:.1f} seconds of a search with {WORKERS} workers.
The bands in the picture are 95 % intervals of the mean.

{len(good)} of the recorded recipes are good; their test accuracy is {min(good):.1%} to {max(good):.1%},
{np.mean(good):.1%} in the mean. So the searches end with one of a few recipes, and which of them is best in the test is
luck.

![Test accuracy of the leading recipe over the time of the search](study-search.png)
"""
    yield from _judge_aims(seconds)


def _judge_aims(seconds: dict[str, Interval]) -> Iterator[str]:
    stock = min((found.mean, name) for name, found in seconds.items() if name != OURS)
    against = seconds[OURS].mean / stock[0]
    yield f"""The aims were at most 0.5× the time of random search, and at most 0.75× that of the best other method. The
first is {_reached(seconds[OURS].mean <= 0.5)} ({seconds[OURS].mean:.2f}×), the second is {_reached(against <= 0.75)}
({against:.2f}× the time of {METHODS[stock[1]]}).
"""


def _reached(is_reached: bool) -> str:
    return "reached" if is_reached else "not reached"


def _ratio(found: Interval) -> str:
    return f"{found.mean:.2f} ({found.low:.2f} to {found.high:.2f})"


def describe_verdict(study: Study) -> Iterator[str]:
    rows, table = study.verdicts, summarise(study.verdicts)
    half = 50 * (rows.truth_high - rows.truth_low).max()
    yield f"""## Verdict

What each technique is worth here is measured on all recorded trainings together: the effect that the report's model
gives each level, relative to the baseline's choice (half the width of its 90 % interval: at most {half:.1f}
points). The reports of {rows.seed.nunique()} ordinary sweeps are held against it. These are replays too: the project's
own sampler and early stopping run {rows.trials.max()} trials, the recorded baselines among them, and a trial has the
recipe and the curve of the nearest recorded training. So a sweep's trials are also part of the truth: at most
{rows.trials.max() / len(study.curves.configurations):.0%} of it.

```
{COMMAND} --stage verdict
```

| | aim | {" | ".join(table)} |
| --- | --- |{" --- |" * len(table)}"""
    lines = {
        "90 % intervals that contain the true effect": ("≥ 90 %", "covered"),
        "levels that are not useful, called useful": ("≤ 5 %", "false"),
        "levels worth at least 1 point, called useful": ("≥ 70 %", "found"),
        "levels called useful that are not": ("", "false_of_useful"),
        "unknown: never at full length": ("", "unknown"),
    }
    for line, (aim, key) in lines.items():
        yield f"| {line} | {aim} | {' | '.join(_share(found[key]) for found in table.values())} |"
    first = next(iter(table.values()))
    yield f"""
The standard error of the first figure over sweeps is {first["error"]:.1%}. The second counts {first["useless"]:.0f} cases
and the third {first["good"]:.0f}, over all sweeps. The three aims: {_reached(first["covered"] >= 0.9)},
{_reached(first["false"] <= 0.05)}, {_reached(first["found"] >= 0.7)}.
"""


def _share(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.1%}"

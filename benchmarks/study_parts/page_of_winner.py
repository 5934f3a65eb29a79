"""The section of the page about the real sweep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.study_parts.results import COMMAND, Study
from benchmarks.study_parts.searching import WORKERS, scores_after

REPLAYS = 20
NO_GAIN = " **The best trial is a baseline itself: the sweep found no recipe that beats it.**"


def describe_winner(study: Study) -> Iterator[str]:
    if study.winner is None:
        yield "## Winner\n\nThe real sweep was not run.\n"
        return
    found = study.winner
    confirmation, ablation = found["confirmation"], found["ablation"]
    states = ", ".join(f"{count} {state}" for state, count in found["states"].items())
    test = confirmation["test"]["results"]
    yield f"""## Winner

One real sweep of the same space, then what a user would do with it; nothing here is a replay.

```
{COMMAND} --stage winner
```

- **Sweep**: {found["trials"]} trials ({states}), {found["epochs"]} epochs in {found["seconds"] / 60:.0f}
  minutes on two shared cores. The best trial has {found["best"]:.1%} ± {found["standard_error"]:.1%}, the best of the
  three baselines {found["baseline"]:.1%}. What differs from the baseline:
  `{found["best_recipe"]}`.{NO_GAIN if found["lead"] == "baseline" else ""}
{_compare_with_replay(study)}
- **Confirmed** on {len(confirmation["seeds"])} fresh seeds ({_describe_recipes(confirmation)}).
- **Test split, scored once**: {test["accuracy"]["mean"]:.1%} ({test["accuracy"]["low"]:.1%} to
  {test["accuracy"]["high"]:.1%}), {test["correct"]} of {test["images"]} photographs.
- **Exported and reloaded**: `sweep predict` labels {found["predicted_right"]:.1%} of the test photographs correctly, and
  a model that plain timm loads from the export {found["timm_right"]:.1%}; the labels of the two agree on
  {found["timm_agrees"]:.1%}.

![Effects in the report of the sweep](study-effects.png)

![The confirmed recipes on fresh seeds](study-confirm.png)

![Predictions of the winner on test photographs](study-predictions.png)

What each technique of the winner brings, as `sweep ablate` measures it on {len(ablation["seeds"])} seeds, in points of
validation accuracy with 95 % intervals:

| Technique | in the winner | in the baseline |
| --- | --- | --- |"""
    for row in ablation["techniques"]:
        yield f"| `{row['technique']}`: `{row['value']}` | {_worth(row['in_winner'])} | {_worth(row['in_baseline'])} |"


def _compare_with_replay(study: Study) -> str:
    """Return a list item that compares the real sweep with the replays."""
    assert study.winner is not None
    low, middle, high = np.quantile(scores_after(study.curves, study.winner["epochs"], REPLAYS), [0.05, 0.5, 0.95])
    return f"""- **The replays and this sweep**: after as many epochs, {REPLAYS} replays of this project's search lead with
  a recipe of {low:.1%} to {high:.1%} (5 to 95 % of the seeds; median {middle:.1%})."""


def describe_peers(study: Study) -> Iterator[str]:
    """Yield a table of the real searches: this project's, and those written by hand or made with AutoGluon."""
    if study.ours is None or study.stock is None:
        return
    ways = {
        "this project": study.ours,
        "Ray's ASHA with OptunaSearch, by hand": study.stock,
        "AutoGluon": study.autogluon or [],
    }
    tests = [found["test"] for searches in ways.values() for found in searches]
    error = np.sqrt(np.mean(tests) * (1 - np.mean(tests)) / study.test_images)
    yield f"""
## The same search with others

Real searches on the same photographs, backbone, machine and two workers, with different seeds: the means, and in
brackets the lowest and the highest. *In trials* is the share of the workers' time that passed in trials; the rest is
the start, the waiting and the end. The trial with the best validation accuracy is scored on the test split; the standard
error of one such test accuracy is {error:.1%}. A search by hand keeps no weights, no MLflow runs and no report, so its best
recipe is trained once more. AutoGluon gives each trial both cores, changes all images by TrivialAugment, and averages the
weights of its best epochs.

```
{COMMAND} --stage others
PYTHON benchmarks/by_hand_autogluon.py WORK
```

| Searches | trials | epochs | seconds | in trials | validation, % | test, % |
| --- | --- | --- | --- | --- | --- | --- |"""
    for name, searches in ways.items():
        if searches:
            yield f"| {name}: {len(searches)} | {' | '.join(_describe_searches(searches))} |"


def _describe_searches(searches: list[dict[str, Any]]) -> Iterator[str]:
    for name in ("trials", "epochs", "seconds"):
        yield f"{np.mean([found[name] for found in searches]):.0f}" if name in searches[0] else ""
    shares = [found["trial_seconds"] / WORKERS / found["seconds"] for found in searches if "trial_seconds" in found]
    yield f"{np.mean(shares):.0%}" if shares else ""
    for name in ("best", "test"):
        scores = [100 * found[name] for found in searches]
        yield f"{np.mean(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})"


def _describe_recipes(confirmation: dict[str, Any]) -> str:
    texts = []
    for recipe in confirmation["recipes"]:
        name = "the baseline" if recipe["label"] == "baseline" else f"trial {recipe['label']}"
        ahead = recipe["ahead_of_baseline"]
        gap = f", {_points(ahead)} points relative to the baseline" if ahead else ""
        texts.append(f"{name}: {recipe['interval']['mean']:.1%}{gap}")
    return ";\n  ".join(texts)


def _points(interval: dict[str, float]) -> str:
    return f"{100 * interval['mean']:+.1f} ({100 * interval['low']:+.1f} to {100 * interval['high']:+.1f})"


def _worth(worth: dict[str, Any] | None) -> str:
    if worth is None:
        return "–"
    return _points(worth["interval"]) + (", proven" if worth["proven"] else "")

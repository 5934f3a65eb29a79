"""`sweep confirm`: the best recipes again on fresh seeds, then one look at the untouched test part.

The best of many trials was lucky too (the winner's curse): only seeds that the search never saw are counted.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.effects.intervals import Interval, paired_interval, rank_ranges, score_interval, score_noise
from search.core.folder import SweepFolder
from search.core.ledger import Event, Ledger, read_events
from search.core.trials import Trial
from search.followup.candidates import choose_baseline, choose_best, name_recipes
from search.followup.replication import BASELINE, Listed, check_same, check_seeds, go_on, list_folder, run_list
from search.followup.trial_export import export_trial, read_trials
from training.errors import UserError

FORMAT = 1
TOP, SEEDS = 3, 5


def run_confirmation(source: SweepFolder, top: int | None, seeds: int | None, console: Any) -> str:
    """Train the best `top` recipes and the baseline on fresh seeds, or go on with it; returns the state it ended in.

    Raises:
        UserError: nothing completed, too few seeds, or a confirmation with others is there.
    """
    folder = list_folder(source, "confirm")
    if folder.ledger.exists():
        check_same(folder, seeds)
        return go_on(folder, console)
    check_seeds(SEEDS if seeds is None else seeds)
    if top is not None and top < 1:
        raise UserError(f"--top={top}: give 1 or more.")
    trials = read_trials(source)
    best = choose_best(trials, source.name, top or TOP)
    recipes = name_recipes(best, choose_baseline(trials, source.name))
    few = f"--top={top}: {source.name} has {len(best)} different recipes that completed."
    count = len(recipes) * (seeds or SEEDS)
    return run_list(
        source,
        "confirm",
        recipes,
        seed_count=seeds or SEEDS,
        metric=trials.metric,
        keep_best=count,  # which recipe wins is known only at the end
        notes=[few] if top and len(best) < top else [],
        console=console,
    ).state


def conclude_confirmation(folder: SweepFolder, listed: Listed, console: Any) -> None:
    """Say which recipe is best on fresh seeds, score it once on the test part, and write and log the page.

    Raises:
        UserError: no recipe completed on every seed.
    """
    from search.followup.confirm_page import describe, write_page
    from search.tracking.results import log_results

    findings = compare(folder, listed)
    event = read_test(folder) or _score_test(folder, findings)
    findings["test"] = {key: value for key, value in event.items() if key not in ("event", "time")} | {
        "scored_at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(event["time"]))
    }
    (folder.path / "confirm.json").write_text(json.dumps(findings, indent=2) + "\n")
    page = write_page(folder, listed, findings)
    sentences = describe(listed, findings)
    for sentence in sentences:
        console.print(sentence, markup=False)
    out = Path("exports") / folder.name
    console.print(export_trial(folder, f"{event['trial']:04d}", out), markup=False)
    console.print(f"The page: {page}", markup=False)
    metrics = {"test_accuracy": event["results"]["accuracy"]["mean"]}
    metrics |= {f"test_{name}": value for name, value in event["results"]["calibration"]["before"].items()}
    metrics[f"confirmed_{findings['metric']}"] = findings["recipes"][0]["interval"]["mean"]
    log_results(folder, metrics, [page, folder.path / "confirm.json"], sentences, event["time"], console)


def compare(folder: SweepFolder, listed: Listed) -> dict[str, Any]:
    """Means, intervals and ranks of the recipes that completed on every seed, best first, as plain values."""
    scores, sign = listed.scores(), listed.trials.sign
    if not scores:
        raise UserError(
            f"{folder.name}: no recipe completed on every seed, so nothing can be compared. "
            + " ".join(listed.describe_incomplete())
        )
    ranks = rank_ranges(scores, sign)
    source = read_trials(SweepFolder(folder.path.with_name(listed.of)))
    metric, noise = listed.trials.metric, score_noise(scores)
    intervals = {label: score_interval(metric, values, noise, len(scores)) for label, values in scores.items()}
    order = sorted(scores, key=lambda label: -sign * intervals[label].mean)
    return {
        "format": FORMAT,
        "sweep": folder.name,
        "of": listed.of,
        "metric": metric,
        "seeds": listed.seeds,
        "recipes": [
            {
                "label": label,
                "searched": _searched(source, label),
                "scores": scores[label],
                "interval": asdict(intervals[label]),
                "ranks": ranks[label],
                "ahead_of_baseline": _ahead(scores, label, sign),
            }
            for label in order
        ],
        "notes": [*listed.notes, *listed.describe_incomplete()],
    }


def _ahead(scores: dict[str, list[float]], label: str, sign: int) -> dict[str, float] | None:
    """Over the baseline, seed by seed, in the metric's own direction: positive is better."""
    if label == BASELINE or BASELINE not in scores:
        return None
    gap = paired_interval(scores, label, BASELINE, len(scores) - 1)
    return asdict(gap if sign > 0 else Interval(-gap.mean, -gap.high, -gap.low))


def _searched(source: Any, label: str) -> float | None:
    """The score that the search had found for it."""
    trial = choose_baseline(source, "") if label == BASELINE else source.by_number[int(label)]
    return trial.score


def read_test(folder: SweepFolder) -> Event | None:
    """What was found on the test part, if it was opened."""
    return next((event for event in read_events(folder.ledger) if event.get("event") == "test"), None)


def _score_test(folder: SweepFolder, findings: dict[str, Any]) -> Event:
    """Open the test part, once: the searched sweep's ledger counts how often that was done for it."""
    from analysis.held_out.scoring import score_test
    from search.followup.replication import read_list
    from training.evaluate import load_same_data, predict_part, restore_model
    from training.loop.checkpoint import read_checkpoint
    from training.recipe import read_recipe

    listed = read_list(folder)
    trial = _best_seed(listed, findings["recipes"][0]["label"])
    saved = read_checkpoint(folder.trial(trial.number) / "best.ckpt")
    recipe, classes = read_recipe(saved["recipe"]), tuple(saved["classes"])
    model = restore_model(recipe, saved["state_dict"], len(classes))
    data = load_same_data(recipe, classes)
    val = predict_part(model, data.val, recipe, device=_device())
    before = _count_opening(SweepFolder(folder.path.with_name(listed.of)), folder.name)
    test = predict_part(model, data.test, recipe, device=_device())
    results = score_test((val[0].numpy(), val[1].numpy()), (test[0].numpy(), test[1].numpy()), classes)
    if results["worst"]:
        _draw_worst(folder, data.test, results["worst"], classes, recipe)
    event = {"event": "test", "trial": trial.number, "openings_before": before, "classes": list(classes)}
    with folder.locked():
        ledger = Ledger(folder.ledger)
        written = ledger.append({**event, "results": results})
        ledger.close()
    return written


def _best_seed(listed: Listed, label: str) -> Trial:
    """The model to hand out: of the winner's, the one best in validation, the first of equals."""
    sign = listed.trials.sign
    return max(listed.by_label[label], key=lambda trial: (sign * (trial.score or 0.0), -trial.number))


def _count_opening(source: SweepFolder, by: str) -> int:
    """Write into the searched sweep's ledger that its test part is opened; returns how often it had been before."""
    with source.locked():
        ledger = Ledger(source.ledger)
        before = sum(event.get("event") == "test_opened" for event in ledger.events)
        ledger.append({"event": "test_opened", "by": by})
        ledger.close()
    return before


def _draw_worst(folder: SweepFolder, part: Any, worst: list[Any], classes: Any, recipe: Any) -> None:
    """Pictures of the worst errors beside the ledger, and the names of their files into the results."""
    from analysis.held_out.score_figures import draw_worst
    from training.data.files.decode import printable
    from training.data.files.images import ImageFiles

    (folder.path / "worst.png").write_bytes(draw_worst(part, worst, classes, recipe))
    if isinstance(part.images, ImageFiles):
        for error in worst:
            error["file"] = printable(part.images.paths[error["position"]])


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"

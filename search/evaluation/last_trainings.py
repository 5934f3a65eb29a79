"""The last training: on the images of training and validation together, by one recipe or by several for one ensemble."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

from analysis.effects.lead import expect_score
from analysis.export.bundle import check_out, export_model
from analysis.export.summary import Provenance
from analysis.report.sentences import describe_expected
from ledger.events import TestScored
from ledger.record import SweepRecord
from ledger.trials import Trial
from search.core.pace import GRACE, MEMBERS, plan_last, usual_seconds
from search.evaluation.last_workers import LastWorkers, Trained
from search.evaluation.trial_export import name_trial, place_export, read_weights, source_of
from search.runner.interrupt import resumable
from search.runner.machines.capacity import Capacity
from training.contract.technique import Technique
from training.errors import UserError
from training.recipe import Recipe, read_recipe
from training.score_metrics import SOFT
from training.techniques.model.flip_average import FlipAverage

MOST_MEMBERS = MEMBERS + 1
NEAR = 1.5  # standard errors of the best score that another member may be behind
MOST_LOST = 2  # trainings without a model, as they diverged or their workers died, after which no other starts


def train_release(
    record: SweepRecord, trial: Trial, out: Path, say: Callable[[str], None], *, headline: str, test: TestScored | None
) -> bool:
    """Train a trial's recipe on training and validation images where the sweep ran, and export the model to `out`.

    Returns whether there is a model: False if it diverged, or its worker was lost.

    Raises:
        Interrupted: a signal ended it.
    """
    with LastWorkers(record, None, say) as workers:
        workers.start(name_trial(record, trial), _read_trained(record, trial).recipe)
        _, trained = workers.wait()
    if trained is None:
        return False
    source = source_of(record, trial, test, trained.classes)
    _export(trained.recipe, [trained], {**source, "finding": headline, "trained_on": "train and validation"}, out)
    return True


def train_ensemble(
    record: SweepRecord, capacity: Capacity, seconds: float, out: Path, say: Callable[[str], None], headline: str | None
) -> None:
    """Train the leaders on training and validation images while there is time; export the mean of their probabilities.

    Where there is time for fewer than three, or none, those that the search has trained fill it up. The first training
    alone is kept beside. The mean of several is better than one (Lakshminarayanan et al. 2017), most where their recipes
    differ (Wenzel et al. 2020). They run where `capacity` has room for trials, and Ray must still run.

    Raises:
        Interrupted: a signal ended it. The exports have what was trained before.
    """
    check_out(single := place_export(f"{out.name}-single", record))
    began, hint = time.monotonic(), f"{out} has the model without the images of the validation."
    until = began + seconds + GRACE * (record.settings.time_budget_seconds or 0.0)
    leaders = _list_leaders(record)
    first = leaders[0][0]
    plan = plan_last(record.trials, usual_seconds(first), seconds, MOST_MEMBERS, capacity.slots, capacity.shares_cpus)
    if first is not record.trials.best() and plan.each <= until - began:
        say(f"The probe leads by less than a standard error, so trial {first.name} trains last.")
    pace, lost = plan.each / usual_seconds(first), 0  # seconds of a training here for each second of its trial
    members = {_name(trial, recipe): (trial, recipe) for trial, recipe in _list_members(leaders)}
    started: dict[str, float] = {}
    trained: dict[str, Trained] = {}
    with LastWorkers(record, capacity, say, lanes=plan.lanes, until=until) as workers:
        while True:
            for name, (trial, recipe) in members.items():
                now, is_full = time.monotonic(), len(trained) + workers.running == MOST_MEMBERS or lost == MOST_LOST
                if is_full or not workers.has_room():
                    break
                # The first may use the grace; in place of one that would take too long, a later one may be quicker.
                latest = began + seconds if started else until
                if name not in started and now + pace * usual_seconds(trial) <= latest:
                    workers.start(name, recipe)
                    started[name] = now
            if not workers.running:
                break
            with resumable(hint):
                name, member = workers.wait()
            if member is None:
                lost += 1
                continue
            pace = max(pace if trained else 0.0, (time.monotonic() - started[name]) / usual_seconds(members[name][0]))
            trained[name] = member
            in_order = {name: trained[name] for name in members if name in trained}
            hint = _export_mean(record, members[next(iter(in_order))][0], leaders, in_order, out, single, headline)
    say(hint if trained else _export_mean(record, first, leaders, {}, out, single, headline) or hint)


def _name(trial: Trial, recipe: Recipe) -> str:
    return trial.name + (f" with seed {recipe.seed}" if recipe.seed != trial.recipe.seed else "")


def _export_mean(
    record: SweepRecord,
    first: Trial,
    leaders: Sequence[tuple[Trial, Trained]],
    trained: Mapping[str, Trained],
    out: Path,
    single: Path,
    headline: str | None,
) -> str:
    """Export the mean of trainings to `out`, and the one of `first` to `single`; return a sentence, empty if none is made."""
    members = list(trained.values())
    source = source_of(record, first, None, leaders[0][1].classes)
    source["trained_on"] = "train and validation" if members else "train"
    if headline and first is record.trials.best():
        source["finding"] = headline
    # The weights of snapshots are an ensemble already, and a linear probe on more images is the same model.
    searched = {
        f"{trial.name} as searched": kept
        for trial, kept in leaders
        if kept.recipe.linear_probe.trains and not kept.recipe.snapshots.is_on
    }
    filling = list(searched.items())[: max(0, MEMBERS - len(members))]
    joined = [*members, *(kept for _, kept in filling)]
    if not (members or (joined[1:] and joined[0] is leaders[0][1])):  # else the best is better alone
        return ""
    recipe = joined[0].recipe
    if recipe.flip.probability:  # it trained on mirrored images, so it predicts them too
        recipe = recipe.model_copy(update={"flip_average": FlipAverage(enabled=True)})
    if not joined[1:]:
        _export(recipe, members, source, out)
        return f"{out} has that model; its score is from before, because validation images are now in its training."
    if members:
        _export(recipe, members[:1], source, single)
    source["ensemble"] = [*trained, *(name for name, _ in filling)]
    scored = _score_mean(record, leaders[0][0].recipe, len(joined), source)
    _export(recipe, joined, source, out)
    mirrored, passes = (", mirrored too", 2) if recipe.flip_average.enabled else ("", 1)
    alone = f" {single} has the first alone." if members else ""
    return (
        f"{out} has the mean of {len(joined)} models (trials {', '.join(source['ensemble'])}{mirrored}), which is usually "
        f"better than one, and {passes * len(joined)} times slower.{alone}{scored}"
    )


def _score_mean(record: SweepRecord, first: Recipe, models: int, source: Provenance) -> str:
    """Put into `source` what a mean of so many models is expected to score; return a sentence, empty if that is not known.

    It is that of the mean of the best trials near the first: other seeds gain as much (docs/benchmarks.md). Its rivals are
    the trials that could be in it: like the recipe of the best of them, and fine-tunings if that is one.
    """
    alike = [trial for trial in record.trials.ranked() if trial.state == "completed" and _is_alike(first, trial.recipe)]
    rivals = [trial for trial in alike if trial.recipe.linear_probe.trains == first.linear_probe.trains]
    named = [trial.name for trial in rivals if _is_near(rivals[0], trial)][:models]
    metric = source["metric"]
    if not named[1:] or not (known := expect_score(metric, [trial.answers for trial in rivals], len(named))):
        return ""
    source["finding"] = describe_expected(metric, f"the mean of trials {', '.join(named)}", *known)
    source["metric"] = metric = SOFT.get(metric, metric)
    source["score"], source["standard_error"], source["scored"] = *known, named
    source["metrics"] = {metric: known[0]} | {key: of for key, of in source["metrics"].items() if key[:4] != "val_"}
    return f" {source['finding']}"


def _is_near(best: Trial, trial: Trial, errors: float = NEAR) -> bool:
    return abs((best.score or 0.0) - (trial.score or 0.0)) <= errors * best.standard_error


def _list_leaders(record: SweepRecord) -> list[tuple[Trial, Trained]]:
    """Return the best trial, and others of its architecture near it, with their weights, as long as these are kept.

    A linear probe that is ahead of a fine-tuning on images of the same size by less than a standard error was lucky, as
    more images help the fine-tuning more.
    """
    ranked = [trial for trial in record.trials.ranked() if trial.state == "completed"]
    alike = [trial for trial in ranked if trial.recipe.preprocessing == ranked[0].recipe.preprocessing]
    tuned = [trial for trial in alike if trial.recipe.linear_probe.trains]
    if tuned and _is_near(ranked[0], tuned[0], errors=1.0) and read_weights(record, tuned[0])[0]:
        ranked = tuned
    best = ranked[0]
    leaders = [(best, _read_trained(record, best))]
    for trial in ranked[1:]:
        if not _is_near(best, trial):
            break
        try:
            kept = _read_trained(record, trial)
        except UserError:  # only the best few have weights
            break
        if _is_alike(leaders[0][1].recipe, kept.recipe):
            leaders.append((trial, kept))
    return leaders


def _list_members(leaders: Sequence[tuple[Trial, Trained]]) -> list[tuple[Trial, Recipe]]:
    """Return trials to train, with their resolved recipes: of the leaders those that differ in a choice, best first.

    Strengths alone are no difference: what differs makes other mistakes, so its mean is better (docs/benchmarks.md). Then
    the same follow with other seeds, which mean nothing to a linear probe.
    """
    best = leaders[0][1].recipe
    if best.snapshots.is_on:  # it is an ensemble already
        return [(leaders[0][0], best)]
    members: list[tuple[Trial, Recipe]] = []
    for trial, kept in leaders:
        if _choices_of(kept.recipe) not in [_choices_of(recipe) for _, recipe in members]:
            members.append((trial, kept.recipe))
    return [
        (trial, own.model_copy(update={"seed": own.seed + more}))
        for more, (trial, own) in product(range(MOST_MEMBERS), members)
        if not more or own.linear_probe.trains
    ]


def _choices_of(recipe: Recipe) -> dict[str, object]:
    """Return what a recipe chooses; of a strength only whether there is one."""
    return {name: bool(value) if isinstance(value, float) else value for name, value in recipe.flat().items()}


def _is_alike(first: Recipe, second: Recipe) -> bool:
    """Whether the models of two recipes can be one ensemble: one architecture and one preprocessing."""
    in_model = [name for name, part in first.parts() if isinstance(part, Technique) and part.is_in_model]
    same = ("backbone", "preprocessing", "data", "snapshots", *in_model)
    return all(getattr(first, name) == getattr(second, name) for name in same)


def _read_trained(record: SweepRecord, trial: Trial) -> Trained:
    saved, why = read_weights(record, trial)
    if saved is None:
        raise UserError(f"trial {trial.name} of {record.name} has no weights ({why}), so it cannot be released.")
    recipe, classes = read_recipe(saved["recipe"]), tuple(saved["classes"])
    return Trained(recipe, saved["state_dict"], classes, record.driver.threads)


def _export(recipe: Recipe, members: Sequence[Trained], source: Provenance, out: Path) -> None:
    from training.model.ensemble import join_weights

    first = members[0]
    facts: Provenance = {**source, "best_epoch": recipe.epochs, "threads": first.threads, "mlflow_run_id": None}
    weights = join_weights([member.weights for member in members]) if members[1:] else first.weights
    export_model(recipe, weights, facts, out)

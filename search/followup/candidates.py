"""Choose the recipes of a finished sweep that are trained again: the best few, and the best baseline."""

from __future__ import annotations

from search.core.record import SweepRecord
from search.core.trials import Trial, Trials
from search.followup.replications.findings import BASELINE
from search.followup.replications.replication import read_replication, replication_folder
from training.errors import UserError
from training.recipe import Recipe


def choose_best(trials: Trials, sweep: str, count: int) -> list[Trial]:
    """Return the best completed trials with different recipes, best first.

    Raises:
        UserError: none completed.
    """
    chosen: list[Trial] = []
    for trial in trials.ranked():
        if trial.state == "completed" and trial.recipe not in [other.recipe for other in chosen]:
            chosen.append(trial)
    if not chosen:
        raise UserError(
            f"{sweep} has no completed trial, so it has no best recipe. Continue with: sweep resume {sweep}."
        )
    return chosen[:count]


def choose_baseline(trials: Trials, sweep: str) -> Trial:
    """Return the best completed baseline. Baselines differ in their learning rate.

    Raises:
        UserError: none completed.
    """
    found = [trial for trial in trials.ranked() if trial.origin == "baseline" and trial.state == "completed"]
    if not found:
        raise UserError(f"{sweep} has no completed baseline to compare with. Continue with: sweep resume {sweep}.")
    return found[0]


def name_recipes(best: list[Trial], baseline: Trial) -> dict[str, Recipe]:
    """Return recipes by label, which is the number of their trial, or `baseline`. No recipe appears twice."""
    named = {trial.name: trial.recipe for trial in best if trial.recipe != baseline.recipe}
    return {BASELINE: baseline.recipe, **named}


def find_winner(source: SweepRecord) -> Trial:
    """Find the trial whose recipe `sweep confirm` found best; without a confirmation, the best of the search.

    Raises:
        UserError: no trial completed.
    """
    trials = source.trials
    best = choose_best(trials, source.name, 1)[0]
    folder = replication_folder(source.folder, "confirm")
    if not folder.ledger.exists():
        return best
    confirmed = read_replication(SweepRecord.open(folder))
    if not (scores := confirmed.scores()):
        return best
    label = max(scores, key=lambda name: trials.sign * sum(scores[name]))
    return choose_baseline(trials, source.name) if label == BASELINE else trials.by_number[int(label)]

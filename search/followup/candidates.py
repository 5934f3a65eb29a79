"""Which recipes of a finished sweep are worth training again: its best few, and the best of its baselines."""

from __future__ import annotations

from search.core.record import SweepRecord
from search.core.trials import Trial, Trials
from search.followup.replication import BASELINE, read_replication, replication_folder
from training.errors import UserError
from training.recipe import Recipe


def choose_best(trials: Trials, sweep: str, count: int) -> list[Trial]:
    """The best completed trials whose recipes differ, best first.

    Raises:
        UserError: none completed.
    """
    chosen: list[Trial] = []
    for trial in trials.ranked():
        if trial.state == "completed" and trial.recipe not in [other.recipe for other in chosen]:
            chosen.append(trial)
    if not chosen:
        raise UserError(f"{sweep} has no completed trial, so no best recipe. Go on with it: sweep resume {sweep}.")
    return chosen[:count]


def choose_baseline(trials: Trials, sweep: str) -> Trial:
    """The best completed of the baselines, which differ in their learning rate.

    Raises:
        UserError: none completed.
    """
    found = [trial for trial in trials.ranked() if trial.origin == "baseline" and trial.state == "completed"]
    if not found:
        raise UserError(f"{sweep} has no completed baseline to compare with. Go on with it: sweep resume {sweep}.")
    return found[0]


def name_recipes(best: list[Trial], baseline: Trial) -> dict[str, Recipe]:
    """Recipes by label: the number of the trial they come from, and `baseline`, which stands once."""
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

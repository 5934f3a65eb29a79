"""Which recipes of a finished sweep are worth training again: its best few, and the best of its baselines."""

from __future__ import annotations

from search.core.folder import SweepFolder
from search.core.trials import Trial, Trials
from search.followup.replication import BASELINE, list_folder, read_list
from training.errors import UserError
from training.recipe import Recipe, read_recipe


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
    named = {trial.name: read_recipe(trial.recipe) for trial in best if trial.recipe != baseline.recipe}
    return {BASELINE: read_recipe(baseline.recipe), **named}


def find_winner(source: SweepFolder, trials: Trials) -> Trial:
    """The trial whose recipe `sweep confirm` found best, else the best of the search.

    Raises:
        UserError: none completed.
    """
    best = choose_best(trials, source.name, 1)[0]
    folder = list_folder(source, "confirm")
    if not folder.ledger.exists():
        return best
    listed = read_list(folder)
    if not (scores := listed.scores()):
        return best
    label = max(scores, key=lambda name: listed.trials.sign * sum(scores[name]))
    return choose_baseline(trials, source.name) if label == BASELINE else trials.by_number[int(label)]

"""A sweep over a list: some recipes, each on the same fresh seeds, none stopped early; the ledger holds the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from search.core.folder import SweepFolder, open_folder
from search.core.ledger import read_events
from search.core.trials import Trial, Trials
from spaces.search import NoScheduler, Search
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe

if TYPE_CHECKING:
    from search.runner.driver import Result

Kind = Literal["confirm", "ablate"]
BASELINE = "baseline"
FEWEST_SEEDS = 2


@dataclass(frozen=True)
class Listed:
    """What a ledger tells of such a sweep: its trials by the label of their recipe, in the order of the seeds."""

    kind: Kind
    of: str  # the sweep whose recipes these are
    seeds: list[int]
    notes: list[str]  # what was left out, and why
    trials: Trials
    by_label: dict[str, list[Trial]]

    def scores(self) -> dict[str, list[float]]:
        """Of the recipes that completed on every seed: one missing seed would make a mean of the luckier ones."""
        return {
            label: [trial.score for trial in trials if trial.score is not None]
            for label, trials in self.by_label.items()
            if all(trial.state == "completed" for trial in trials) and len(trials) == len(self.seeds)
        }

    def describe_incomplete(self) -> list[str]:
        """A sentence for each recipe that is not compared."""
        sentences = []
        for label in self.by_label.keys() - self.scores().keys():
            states = [trial.state.replace("_", " ") for trial in self.by_label[label]]
            lost = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
            sentences.append(f"{label} is not ranked: it must complete on every seed ({lost}).")
        return sorted(sentences)


def open_searched(storage: Path, name: str) -> SweepFolder:
    """A sweep that searched and that nobody runs: where the best recipes come from.

    Raises:
        UserError: there is no such sweep, it is running, or it runs a list itself.
    """
    folder = open_folder(storage, name)
    if folder.is_running():
        raise UserError(f"{name} is running: its best recipe is not known yet. Wait, or stop it: sweep stop {name}.")
    for event in read_events(folder.ledger):
        if event.get("event") == "list":
            raise UserError(f"{name} trains recipes of {event['of']} again. Name that sweep.")
    return folder


def list_folder(source: SweepFolder, kind: Kind) -> SweepFolder:
    """Where the sweep over a list that `source` gave stands, or will stand."""
    return SweepFolder(source.path.with_name(f"{source.name}-{kind}"))


def run_list(
    source: SweepFolder,
    kind: Kind,
    recipes: Mapping[str, Recipe],
    *,
    seed_count: int,
    metric: str,
    keep_best: int,
    notes: Sequence[str],
    console: Any,
) -> Result:
    """Train every recipe on `seed_count` seeds that `source` never used, as a sweep of its own on the same machines.

    `recipes` are by label; the one called `baseline` must be among them. Seeds come in turn, so that a sweep cut short
    is still balanced.
    """
    from search.runner.driver import read_settings, run_sweep

    baseline = recipes[BASELINE]
    seeds = [baseline.seed + number for number in range(1, seed_count + 1)]
    trials = [
        {
            "label": label,
            "recipe": recipe.model_copy(update={"seed": seed}).model_dump(),
            "origin": "baseline" if label == BASELINE else "listed",
        }
        for seed in seeds
        for label, recipe in recipes.items()
    ]
    search = Search(trials=len(trials), metric=metric, sampler="random", scheduler=NoScheduler())  # type: ignore[arg-type]
    folder = list_folder(source, kind)
    space = Space(folder.name, baseline.model_dump(), search)
    settings = replace(read_settings(source), keep_best=keep_best, time_budget_seconds=None)
    opening = {"event": "list", "kind": kind, "of": source.name, "seeds": seeds, "notes": list(notes), "trials": trials}
    return run_sweep(folder, space, settings, console, [opening])


def go_on(folder: SweepFolder, console: Any) -> str:
    """Finish a sweep over a list that is there already; returns the state it is in."""
    from search.runner.driver import resume_sweep

    listed, total = read_list(folder), len(_list_event(folder)["trials"])
    ended = [trial for trial in listed.trials if trial.ended is not None and trial.state != "interrupted"]
    return "completed" if len(ended) == total else resume_sweep(folder, console).state


def read_list(folder: SweepFolder) -> Listed:
    """What the ledger of a sweep over a list says.

    Raises:
        UserError: it is a sweep of another kind.
    """
    from search.followup.trial_export import read_trials

    event, trials = _list_event(folder), read_trials(folder)
    by_label: dict[str, list[Trial]] = {entry["label"]: [] for entry in event["trials"]}
    for trial in trials:
        by_label[event["trials"][trial.number]["label"]].append(trial)
    return Listed(event["kind"], event["of"], event["seeds"], event["notes"], trials, by_label)


def describe_trial(folder: SweepFolder, trial: Trial) -> str:
    """A trial as a person finds it again: one of a list by its recipe's name in the searched sweep, its seed and its own."""
    event = next((event for event in read_events(folder.ledger) if event.get("event") == "list"), None)
    if event is None:
        return f"trial {trial.name}"
    label = event["trials"][trial.number]["label"]
    recipe = (
        f"trial {label}'s recipe" if label.isdigit() else f"the {label}" if " " not in label else f"the recipe {label}"
    )
    return f"{recipe} of {event['of']}, as trained on seed {trial.recipe['seed']} (trial {trial.name} of {folder.name})"


def check_same(folder: SweepFolder, seeds: int | None) -> None:
    """Refuse another number of seeds than those of the sweep that is there."""
    there = len(_list_event(folder)["seeds"])
    if seeds not in (None, there):
        raise UserError(
            f"--seeds={seeds}: {folder.name} is there already, on {there} seeds. Leave --seeds out to see it, or remove it "
            f"first: sweep rm {folder.name}."
        )


def check_seeds(seeds: int) -> None:
    if seeds < FEWEST_SEEDS:
        raise UserError(f"--seeds={seeds}: one seed has no spread, so no interval. Give {FEWEST_SEEDS} or more.")


def _list_event(folder: SweepFolder) -> dict[str, Any]:
    for event in read_events(folder.ledger):
        if event.get("event") == "list":
            return event
    raise UserError(
        f"{folder.name} is a sweep of another kind. Rename its folder, or remove it: sweep rm {folder.name}."
    )

"""Short texts for recipes and states."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.trials import Trial, Trials
from spaces.parameters.domains import format_short
from training.recipe import Recipe, flatten
from training.schema import slot_of


def format_state(state: str) -> str:
    return state.replace("_", " ")


def format_counts(trials: Trials) -> str:
    """Return for example `running 2 · completed 5`, with unfinished trials first."""
    order = ("running", "interrupted", "completed", "stopped", "diverged", "out_of_memory", "failed")
    counts = trials.count()
    return " · ".join(f"{format_state(state)} {counts[state]}" for state in order if state in counts)


def short_recipe(recipe: Recipe, baseline: Recipe) -> str:
    """Return the differences from the baseline as overrides, or `baseline` if there are none."""
    words = [f"{path}={format_short(value)}" for path, value in _differences(recipe.values(), baseline.values())]
    return " ".join(words) or "baseline"


def short_part(recipe: Recipe, field: str) -> str:
    """Return a part of a recipe in short: its kind, and what is not that kind's default."""
    value = recipe.values()[field]
    if not isinstance(value, dict):
        return f"{field}={format_short(value)}"
    flat, known = flatten(value), flatten(slot_of(Recipe, field).part(value)().model_dump())
    shown = [name for name in flat if not _name_first(name) or flat[name] != known.get(name)]
    return ", ".join(f"{name}={format_short(flat[name])}" for name in shown or flat)


def describe_recipe(trial: Trial, baseline: Recipe) -> str:
    """Return the recipe in short, with the word `baseline` for one of the baselines."""
    if trial.origin == "probe":
        return "linear probe on frozen features"
    text = short_recipe(trial.recipe, baseline)
    return f"baseline {text}" if trial.origin == "baseline" and text != "baseline" else text


def cut(text: str, width: int) -> str:
    """Shorten a text to `width` characters at a word, with an ellipsis."""
    if len(text) <= width:
        return text
    head, space, _ = text[: max(0, width - 1)].rpartition(" ")
    return f"{head} …" if space else text[: max(0, width - 1)] + "…"


def baseline_of(trials: Trials) -> Recipe:
    """Return the recipe that the others are compared with: the first baseline, at its own learning rate."""
    return next((t.recipe for t in list(trials) if t.origin == "baseline"), Recipe())


def _differences(recipe: dict[str, object], baseline: dict[str, object]) -> Iterator[tuple[str, object]]:
    for field, value in recipe.items():
        base = baseline.get(field)
        if not isinstance(value, dict) or not isinstance(base, dict):
            if value != base:
                yield field, value
            continue
        flat, known = flatten(value, f"{field}."), flatten(base, f"{field}.")
        # Another kind of optimizer has fields that the baseline lacks. These are compared with their defaults.
        if flat.keys() - known.keys():
            known = flatten(slot_of(Recipe, field).part(value)().model_dump(), f"{field}.") | known
        changed = [path for path in flat if path not in known or known[path] != flat[path]]
        yield from ((path, flat[path]) for path in sorted(changed, key=_name_first))


def _name_first(path: str) -> bool:
    return path.rpartition(".")[2] not in ("name", "policy", "source")

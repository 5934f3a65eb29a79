"""Make the space of a preset: `sweep run --preset good data.root=photos`. The idea is AutoGluon's (docs/presets.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analysis.formatting import format_seconds, plural
from search.presets.backbone import Candidate, choose_backbone, count_fitting, part_of
from search.presets.facts import read_data, read_machine
from search.presets.rules import (
    EMBEDDED,
    Preset,
    choose_batch,
    choose_epochs,
    choose_side,
    find_preset,
)
from search.presets.space_text import Choice, write_space
from spaces.load import change_recipe, parse_space
from spaces.reading.yaml_values import parse_yaml
from spaces.space import Space
from training.contract.specs import Data
from training.data.sources.kinds import kind_of
from training.data.sources.load_data import absolute
from training.errors import UserError
from training.recipe import Recipe


@dataclass(frozen=True)
class MadeSpace:
    """The space of a preset, as a text and as it is searched, the time for it, and sentences about the choices."""

    text: str
    space: Space
    seconds: float
    notes: list[str]


def check_arguments(space: object, preset: str, address: str | None) -> None:
    """Refuse a preset beside a space, or for a cluster.

    Raises:
        UserError: one of them.
    """
    find_preset(preset)
    if space is not None:
        raise UserError(
            f"--preset={preset}: a preset makes the space itself. Leave {space} out, or leave --preset out."
        )
    if address is not None:
        raise UserError(
            f"--preset={preset}: a preset measures this machine, not a cluster. On a machine of the cluster, write its "
            f"space with `sweep space --preset {preset} data.root=FOLDER > {preset}.yaml`, then run that file."
        )


def make_preset(
    name: str,
    overrides: Sequence[str],
    *,
    seconds: float | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    say: Callable[[str], object] = lambda sentence: None,
) -> MadeSpace:
    """Look at the images and at this machine, train a few batches, and write the space.

    Args:
        name: fast, good or best.
        overrides: Values to set. Those of `data` name the images; the others replace what the preset would choose.
        seconds: The time of the sweep. Default: that of the preset.
        cpus: The CPUs of each trial, if the user names them.
        gpus: The GPUs of each trial, if the user names them.
        say: Gets a sentence about what takes time.

    Raises:
        UserError: there is no such preset, no data, or too few images, or nothing can be trained here.
    """
    preset = find_preset(name)
    of_data, others = _divide(overrides)
    spec = _find_data(preset, of_data)
    data, machine = read_data(spec, name), read_machine(spec, cpus, gpus)
    spec = absolute(spec)  # not earlier, so that an error names the folder as the user does
    batch = choose_batch(data)
    side, epochs = choose_side(data, EMBEDDED, None), choose_epochs(preset, data, batch)
    draft = Choice(preset, spec, data, machine, EMBEDDED, "", side, batch, epochs, trials=1)
    budget = seconds or preset.seconds
    say("The preset trains a few batches to measure this machine.")
    made, time = _fill_time(choose_backbone(draft, others, budget), budget)
    space = parse_space(write_space(made, []), name, others)
    recipe = space.baselines()[0]
    notes = [
        f"Preset {name}: {data.describe()}; {machine.describe()}.",
        f"The backbone is {made.reason}. Its input has {recipe.preprocessing.image_size} pixels.",
        f"{plural(space.search.trials, 'trial')} of {plural(recipe.epochs, 'epoch')} with batches of {recipe.batch_size}: "
        f"{time}.",
    ]
    more = [f"The command also set: {' '.join(others)}"] if others else []
    return MadeSpace(write_space(made, [*notes, *more]), space, budget, notes)


def reread_preset(text: str, name: str, overrides: Sequence[str]) -> Space:
    """Return the space of an earlier preset for the same command again; another `data` shows as a difference.

    Raises:
        UserError: the overrides name no data, or are wrong.
    """
    of_data, others = _divide(overrides)
    spec = absolute(_find_data(find_preset(name), of_data))
    space = parse_space(text, name, others)
    data = {"name": spec.name, **spec.model_dump(exclude_defaults=True, exclude={"name"})}
    return replace(space, recipe={**space.recipe, "data": data})


def _divide(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the overrides of `data`, and the others."""
    of_data = [override for override in overrides if part_of(override) == "data"]
    return of_data, [override for override in overrides if part_of(override) != "data"]


def _find_data(preset: Preset, of_data: Sequence[str]) -> Data:
    """Return the data that the overrides name; the kind follows from the files unless they name it.

    Raises:
        UserError: they name no data, or are wrong.
    """
    if not of_data:
        raise UserError(
            f"--preset={preset.name}: which images? Name their folder, as in sweep run --preset {preset.name} "
            "data.root=photos."
        )
    given = {left.strip().removeprefix("recipe."): right for left, _, right in (one.partition("=") for one in of_data)}
    if not given.keys() & {"data", "data.name"}:
        root = given.get("data.root", "")
        kind = "manifest" if "data.path" in given else kind_of(str(parse_yaml(root, f"data.root={root}")))
        of_data = [f"data.name={kind}", *of_data]
    return change_recipe(Recipe(), of_data).data


def _fill_time(found: Candidate, seconds: float) -> tuple[Choice, str]:
    """Choose the number of trials, and shorter ones if the fewest would not fit into the time."""
    choice = found.choice
    low, high = choice.preset.trials
    if math.isinf(found.epoch_seconds):
        raise UserError(
            f"--preset={choice.preset.name}: {choice.backbone.name} needs more memory than the GPU has. Add batch_size=8, "
            "or a smaller preprocessing.image_size."
        )
    fitting = count_fitting(found, seconds)
    epochs = choice.epochs
    is_free = found.epochs == choice.epochs  # the command does not set them
    while is_free and fitting < low and epochs > choice.preset.epochs[0]:
        epochs -= 1
        fitting = count_fitting(found, seconds, epochs)
    trials = max(low, min(high, fitting))
    time = f"an epoch takes about {found.epoch_seconds:.2g} s here, and the search has {format_seconds(seconds)}"
    if fitting < low:
        time += f", enough for about {plural(max(1, fitting), 'trial')}"
    return replace(choice, epochs=epochs, trials=trials), time

"""Make the space of a preset: `sweep run --preset good data.root=photos`. The idea is AutoGluon's (docs/presets.md)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ledger.formatting import format_seconds, plural
from search.core.pace import SHARES
from search.presets import rules
from search.presets.rules import Preset
from search.presets.space_text import Draft, describe_data, write_space
from spaces.load import change_recipe, parse_space
from spaces.reading.overrides import parse_value
from spaces.space import Space
from training.contract.specs import Backbone, Data
from training.data.load_data import absolute, kind_of
from training.errors import UserError
from training.process.optional import PACKAGED_BACKBONE, WEIGHTS_PACKAGE, install_line, is_installed
from training.recipe import Recipe

Say = Callable[[str], object]  # gets the name of each step that takes time

GROWTH = 2  # a backbone of the ladder takes at least so many times as long as the one before it
MEASURED_SHARE = 0.1  # of the time of the sweep
DEEPEST_SHARE = 0.4  # of the time after the start, for a trial of the deepest level; the last trainings take as much
FIRST_SECONDS = 25.0  # from the choice until the first trial trains
ENLARGED_EPOCHS = 10  # of the later half that fit in DEEPEST_SHARE, for small images to be enlarged further
WHOLE_SHARE = 0.12  # of the time, that so many epochs of the whole network then take at most; it gains less
FEWEST = {"last": (3, 60), "most": (3, 60), "full": (5, 200)}  # epochs, or steps if these are fewer epochs


@dataclass(frozen=True)
class MadeSpace:
    """The space of a preset, as a text and as it is searched, the time for it, and sentences about the choices."""

    text: str
    space: Space
    seconds: float
    notes: list[str]


def make_preset(
    name: str,
    overrides: Sequence[str],
    *,
    seconds: float | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    say: Say = lambda step: None,
) -> MadeSpace:
    """Look at the images and at this machine, train a few batches, and write the space.

    Of `overrides`, those of `data` name the images, and the others replace what the preset would choose. `seconds` is the
    time of the sweep, if not that of the preset; `cpus` and `gpus` are those of each trial, if the user names them.
    """
    preset, began = rules.find_preset(name), time.monotonic()
    spec, others = _divide(preset, overrides)
    spec = rules.choose_test(spec)
    data, machine = rules.read_data(spec, name), rules.read_machine(spec, cpus, gpus)
    spec = absolute(spec)  # not earlier, so that an error names the folder as the user does
    batch = rules.choose_batch(data)
    side, epochs = rules.choose_side(data, rules.EMBEDDED, None), rules.choose_epochs(preset, data, batch)
    draft = Draft(preset, spec, data, machine, rules.EMBEDDED, "", side, batch, epochs)
    budget = seconds or preset.seconds
    draft = _choose_backbone(draft, others, budget, say)
    if math.isinf(draft.epoch_seconds):
        raise UserError(
            f"--preset={name}: {draft.backbone.name} needs more memory than the GPU has. Add batch_size=8, or a smaller "
            "preprocessing.image_size."
        )
    made, pace = _fill_time(draft, budget, others, time.monotonic() - began)
    space = parse_space(write_space(made, []), name, others)
    recipe = space.baselines()[0]
    has_more = made.probe_side > made.side
    more = f", and {made.probe_side} for the linear probe alone, which has time for them" if has_more else ""
    notes = [
        f"Preset {name}: {data.describe()}; {machine.describe()}.",
        f"The backbone is {made.reason}. Its input has {recipe.preprocessing.image_size} pixels{more}.",
        f"At most {plural(space.search.trials, 'trial')} of {plural(recipe.epochs, 'epoch')} with batches of "
        f"{recipe.batch_size}, compared by {space.search.metric}: {pace}.",
    ]
    if recipe.backbone.weights in ("letters", "none"):
        packaged = f"backbone.name={PACKAGED_BACKBONE}, whose weights are installed"
        if not is_installed(WEIGHTS_PACKAGE):
            packaged = f"from the package index ({install_line(WEIGHTS_PACKAGE)})"
        notes.append(
            "The weights decide more than the search: pretrained ones gain most of what can be gained. Ways to get them: "
            f"{packaged}, from a file (backbone.name=NAME backbone.weights=FILE), or from a mirror "
            "(HF_ENDPOINT=https://MIRROR)."
        )
    added = [f"The command also set: {' '.join(others)}"] if others else []
    return MadeSpace(write_space(made, [*notes, *added]), space, budget, notes)


def reread_preset(text: str, name: str, overrides: Sequence[str], seconds: float | None) -> MadeSpace:
    """Return the space of an earlier preset for the same command again; another `data` shows as a difference."""
    preset = rules.find_preset(name)
    spec, others = _divide(preset, overrides)
    space = parse_space(text, name, others)
    described = describe_data(absolute(spec))
    kept = space.recipe["data"]
    if isinstance(kept, dict) and "split_test" in kept:  # the preset chose it, unless the command did
        described = {"split_test": kept["split_test"], **described}
    there = replace(space, recipe={**space.recipe, "data": described})
    return MadeSpace(text, there, seconds or preset.seconds, [])


def _divide(preset: Preset, overrides: Sequence[str]) -> tuple[Data, list[str]]:
    """Return the data that overrides name, and the other overrides. The kind of data follows from its files if not given."""
    of_data = [override for override in overrides if _part_of(override) == "data"]
    others = [override for override in overrides if _part_of(override) != "data"]
    if not of_data:
        raise UserError(
            f"--preset={preset.name}: which images? Name their folder, as in sweep run --preset {preset.name} "
            "data.root=photos."
        )
    parts = [override.partition("=") for override in of_data]
    given = {left.strip().removeprefix("recipe."): right for left, _, right in parts}
    if not given.keys() & {"data", "data.name"}:
        root = given.get("data.root", "")
        data_name = "manifest" if "data.path" in given else kind_of(str(parse_value(root, f"data.root={root}")))
        of_data = [f"data.name={data_name}", *of_data]
    return change_recipe(Recipe(), of_data).data, others


def _part_of(override: str) -> str:
    return override.partition("=")[0].strip().removeprefix("recipe.").split(".")[0]


def _choose_backbone(draft: Draft, others: Sequence[str], seconds: float, say: Say) -> Draft:
    """Return the largest backbone with which the fewest trials fit into the time, else the smallest one.

    The smallest is measured first, and a larger one, which takes twice as long, only if it can fit; all in a tenth of the time.
    """

    def measure(draft: Draft) -> Draft:
        say(f"preset {draft.preset.name}: measuring {draft.backbone.name} on a few batches")
        return _measure(draft, others)

    if named := [override for override in others if _part_of(override) == "backbone"]:
        backbone = change_recipe(Recipe(), named).backbone
        return measure(_with_backbone(draft, backbone, f"{backbone.name}, as the command says"))
    available, problem = _list_available(rules.LADDER[: rules.first_rung(draft.preset, draft.machine) + 1])
    if not available and is_installed(WEIGHTS_PACKAGE):
        source = "pretrained on ImageNet, from an installed package"
        reason = f"{PACKAGED_BACKBONE}, {source}, because for larger ones {problem}"
        return measure(_with_backbone(draft, Backbone(name=PACKAGED_BACKBONE), reason))
    if not available:
        reason = f"test_resnet, pretrained on drawn letters, because no pretrained weights are available: {problem}"
        return measure(replace(draft, reason=reason))

    def measure_rung(rung: int) -> Draft:
        names = [backbone.name for backbone in available]
        reason = f"{names[rung]}, pretrained on ImageNet"
        if larger := names[rung + 1 :]:
            reason += f", because {' and '.join(larger)} would be too slow or too large here"
        return measure(_with_backbone(draft, available[rung], reason))

    least, began = draft.preset.trials[0], time.monotonic()
    chosen = measure_rung(0)
    for rung in range(1, len(available)):
        slower = replace(chosen, epoch_seconds=GROWTH * chosen.epoch_seconds)
        spent = time.monotonic() - began
        if _count_fitting(slower, seconds) < least or (1 + GROWTH) * spent > MEASURED_SHARE * seconds:
            break
        candidate = measure_rung(rung)
        if _count_fitting(candidate, seconds) < least:
            break
        chosen = candidate
    return chosen


def _count_fitting(draft: Draft, seconds: float) -> int:
    """Return the number of trials that fit into the time."""
    trial = draft.setup_seconds + rules.STOPPED_SHARE * draft.epochs * draft.epoch_seconds
    return int(rules.USED_SHARE * max(0.0, seconds - rules.START_SECONDS) * draft.machine.slots / max(trial, 1e-6))


def _with_backbone(draft: Draft, backbone: Backbone, reason: str) -> Draft:
    from training.model.batch_statistics import has_batch_norm
    from training.model.build import build_model
    from training.model.weights import pretrained_config

    config = pretrained_config(backbone)
    weights_side = None if config is None else int(max(config["input_size"][1:]))
    side = rules.choose_side(draft.data, backbone, weights_side)
    most_side = rules.choose_side(draft.data, backbone, weights_side, rules.MOST_ENLARGED)
    untrained = backbone.model_copy(update={"weights": "none"})
    normalises = has_batch_norm(build_model(untrained, draft.data.classes, side))
    made = replace(draft, backbone=backbone, reason=reason, side=side, most_side=most_side, has_batch_norm=normalises)
    if not made.is_pretrained:
        return made
    most = rules.MOST_BATCH if draft.machine.gpus else rules.MOST_ON_CPU
    batch = rules.choose_batch(draft.data, rules.STEPS_WITH_WEIGHTS, most)
    return replace(made, batch=batch, epochs=rules.choose_epochs(draft.preset, draft.data, batch, has_weights=True))


def _list_available(names: Sequence[str]) -> tuple[list[Backbone], str]:
    """Return the backbones whose weights are cached or can be fetched, and why the first of the others is not."""
    from training.model.weights import locate_weights

    available, problem = [], ""
    for backbone in (Backbone(name=name) for name in names):
        try:
            locate_weights(backbone)
            available.append(backbone)
        except UserError as error:
            problem = problem or str(error).partition(": ")[2].split(". ")[0]
    return available, problem


def _measure(draft: Draft, others: Sequence[str]) -> Draft:
    import torch

    from training.cost import measure_cost

    recipe = parse_space(write_space(draft, []), draft.preset.name, others).baselines()[0]
    # Random weights take the same time, and need no download.
    untrained = recipe.model_copy(update={"backbone": recipe.backbone.model_copy(update={"weights": "none"})})
    try:
        setup_seconds, epoch_seconds = measure_cost(untrained, draft.machine.resources)
    except torch.OutOfMemoryError:
        setup_seconds, epoch_seconds = 0.0, math.inf
    return replace(draft, epoch_seconds=epoch_seconds, setup_seconds=setup_seconds, epochs=recipe.epochs)


def _round(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else format_seconds(seconds)


def _fill_time(draft: Draft, seconds: float, others: Sequence[str], spent: float) -> tuple[Draft, str]:
    """Choose the size of images, levels, as many epochs as fit into a share of the time, and techniques for the trials.

    Larger images are worth more than deeper levels, and more epochs more than other trials. Where only the probe
    has time for photographs of the weights' size, fine-tuning gets smaller ones, and validation decides.
    """
    levels, epochs, side, step = tuple(FEWEST), draft.epochs, draft.side, rules.SIDE_STEP
    share = DEEPEST_SHARE * (seconds - spent - FIRST_SECONDS) - draft.setup_seconds
    are_epochs_free = "epochs" not in map(_part_of, others)
    is_side_free = not any("image_size" in other for other in others)

    def find_epoch_seconds(side: int, level: str) -> float:
        return draft.epoch_seconds * (side / draft.side) ** 2 * SHARES[level]

    def count_fewest() -> int:
        if not are_epochs_free:
            return epochs
        fewest, steps = FEWEST[levels[-1]]
        return min(fewest, math.ceil(steps * draft.batch / draft.data.train_images))

    # Ten epochs with larger images gain more than the whole network or more trials, five no more than ten with these
    # (docs/benchmarks.md, "Minutes").
    longest, least = share / ENLARGED_EPOCHS, rules.LEAST_TUNED_SIDE
    while is_side_free and side + step <= draft.most_side and find_epoch_seconds(side + step, "most") <= longest:
        side += step
    if side > draft.side and ENLARGED_EPOCHS * find_epoch_seconds(side, "full") > WHOLE_SHARE * seconds:
        levels = levels[:-1]
    while is_side_free and side - step >= least and find_epoch_seconds(side, "last") > share:
        side -= step
    probe_side = side
    while len(levels) > 1 and count_fewest() * find_epoch_seconds(side, levels[-1]) > share:
        if is_side_free and levels[-1] == "most" and side - step >= least:
            side -= step
        else:
            levels = levels[:-1]
    if len(levels) == 1:
        side = probe_side
    elif side + step > draft.data.side or "linear_probe" in map(_part_of, others):
        probe_side = side  # the images have no more to show it, or the command has its own idea of it
    epoch_seconds = find_epoch_seconds(side, levels[-1])
    if are_epochs_free:
        epochs = min(epochs, max(count_fewest(), int(share / epoch_seconds)))
    full_trials = rules.USED_SHARE * seconds * draft.machine.slots / (draft.setup_seconds + epochs * epoch_seconds)
    levels = levels[1:] or levels  # the head alone is left to the probe
    preset = draft.preset if full_trials >= draft.preset.trials[0] else replace(draft.preset, level=0)
    pace = f"an epoch of the deepest level takes about {_round(epoch_seconds)} here, and the search may take"
    made = replace(draft, preset=preset, epochs=epochs, levels=levels, side=side, probe_side=probe_side)
    return made, f"{pace} {format_seconds(seconds)}"

"""Requests of a command: check one, and hand it to the driver, or to the ledger if none runs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ledger.events import AnyRequest, StopRequested, TrialAdded
from ledger.folder import open_folder
from ledger.record import SweepRecord
from ledger.requests import list_requests, send_request
from ledger.trials import UNFINISHED
from search.arguments import absolute_paths
from spaces.load import change_recipe, load_recipe
from spaces.reading.known_backbones import check_backbones
from spaces.space import Space
from training.contract.part import CODE
from training.errors import UserError
from training.recipe import Recipe, read_recipe


def request_trial(record: SweepRecord, values: Sequence[str], full: bool = False) -> str:
    """Ask for one more trial, by a recipe's file and overrides, or by overrides of the baseline; return a sentence.

    What the file does not have is as in the baseline. With `full` ASHA does not stop the trial.
    """
    if record.replication is not None:
        raise UserError(f"{record.name} is a replication with a fixed list of trials, so no recipe can be added to it.")
    recipe = _check_recipe(record, read_added(record.space, values))
    if (known := next((trial for trial in record.trials if trial.recipe == recipe), None)) is not None:
        raise UserError(f"{record.name}: trial {known.name} has this recipe already. Change a value of it.")
    _refuse_second(record, recipe)
    _refuse_unloaded(record, recipe)
    when = _hand_over(record, TrialAdded(request=uuid.uuid4().hex, recipe=recipe, full=full))
    notes = []
    if record.space.search.scheduler.name == "asha" and not full:
        notes.append("ASHA may stop it early; --full lets it run to its end.")
    if record.space.encode(recipe) is None:
        notes.append("It lies outside the space, so the sampler does not learn from it.")
    return "\n".join([f"{record.name} will train this recipe as one more trial {when}", *notes])


def _refuse_second(record: SweepRecord, recipe: Recipe) -> None:
    """Refuse a recipe that was added before. Its trial may have other values, in place of `auto`."""
    events = [*record.events, *(event for _, event in list_requests(record.folder))]
    added = [event for event in events if isinstance(event, TrialAdded)]
    started = [trial.name for trial in record.trials if trial.origin == "added"]  # they start in their order
    for number, event in enumerate(added):
        if event.recipe.model_copy(update={"data": recipe.data}) == recipe:  # the images may have moved
            known = f"trial {started[number]} has this recipe already" if number < len(started) else ""
            raise UserError(
                f"{record.name}: {known or 'this recipe was added already, and its trial waits'}. Change a value of it."
            )


def _refuse_unloaded(record: SweepRecord, recipe: Recipe) -> None:
    """Refuse a recipe with a plugin that the driver does not have. Without a driver, the next one must have it."""
    if record.driver.plugins is None or not record.folder.is_running():
        return
    loaded = {None, *record.driver.plugins}  # what is bundled has no code
    parts = recipe.model_dump()
    if missing := [name for name in parts if isinstance(parts[name], dict) and parts[name].get(CODE) not in loaded]:
        raise UserError(
            f"{record.name}: its driver was started without the plugin of {', '.join(missing)}. Stop the sweep, and continue "
            f"it with the plugin: sweep stop {record.called}, then sweep resume {record.called} --plugin FILE."
        )


def _check_recipe(record: SweepRecord, recipe: Recipe) -> Recipe:
    """Return a recipe with absolute paths. Weights that no trial has are looked for, where the sweep runs on this machine."""
    given = absolute_paths(replace(record.space, recipe=recipe.model_dump()))
    check_backbones(given.recipe)
    recipe = read_recipe(given.recipe)
    is_new = not any(trial.recipe.backbone == recipe.backbone for trial in record.trials)
    if is_new and record.recorded_settings.address is None:
        from training.model.weights import locate_weights

        locate_weights(recipe.backbone)
    return recipe


def read_added(space: Space, values: Sequence[str]) -> Recipe:
    """Return the recipe for a sweep with this space, and with its data."""
    first, *rest = values
    is_file, base = "=" not in first, space.baselines()[0]
    recipe = load_recipe(first, rest, base) if is_file else change_recipe(base, values)
    from training.data.load_data import absolute

    if absolute(recipe.data) == base.data:
        return recipe.model_copy(update={"data": base.data})
    fields = [value.partition("=")[0] for value in (rest if is_file else values)]
    if field := next((field for field in fields if field.split(".")[0] == "data"), None):
        raise UserError(
            f"All trials of a sweep share its data, so {field} cannot be set here. Leave it out, or start a new sweep."
        )
    raise UserError(
        f"{first}: its data is not that of the sweep, and all trials of a sweep share their data. Give overrides of the "
        "baseline instead, such as optimizer.lr=0.01."
    )


def request_stop(record: SweepRecord, text: str) -> str:
    """Ask the driver to end a trial, and return a sentence for the user."""
    trial = record.find_trial(text, "--trial=")
    if trial.state not in UNFINISHED:
        raise UserError(f"--trial={text}: trial {trial.name} of {record.name} has ended already: it is {trial.state}.")
    when = _hand_over(record, StopRequested(request=uuid.uuid4().hex, trial=trial.number))
    return f"Trial {trial.name} of {record.name} will end after its current epoch, {when}"


def request_end(storage: Path, name: str) -> str:
    """Ask the driver of a sweep to end it, and return a sentence for the user."""
    folder = open_folder(storage, name)
    if not folder.is_running():
        raise UserError(f"{name} is not running.")
    folder.stop_request.touch()
    return f"{name} will end when its driver has read the request. Continue with: sweep resume {folder.called}"


def _hand_over(record: SweepRecord, event: AnyRequest) -> str:
    if record.folder.is_running():
        send_request(record.folder, event)
        return "when its driver has read the request."
    record.append(event)
    return f"when the sweep continues: sweep resume {record.called}"

"""Requests of a command: check one, and hand it to the driver, or to the ledger if none runs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ledger.events import AnyRequest, Noted, StopRequested, SweepPaused, TrialAdded
from ledger.folder import open_folder
from ledger.formatting import mask_secrets
from ledger.names import check_name
from ledger.record import SweepRecord
from ledger.requests import list_requests, send_request
from ledger.trials import UNFINISHED
from search.arguments import absolute_paths
from search.display.one_trial import find_trial
from spaces.load import change_recipe, load_recipe
from spaces.reading.known_backbones import check_backbones
from spaces.space import Space
from training.contract.part import CODE
from training.errors import UserError
from training.recipe import Recipe, read_recipe

LONGEST_NOTE = 500


@dataclass(frozen=True)
class Target:
    """The sweep that a request is for. `uri` is the store through which it is reached; None for its folder here."""

    record: SweepRecord
    uri: str | None

    @classmethod
    def find(cls, storage: Path, name: str, uri: str | None) -> Target:
        """Find a sweep in the storage folder, or in a store if one is named."""
        if uri is None:
            return cls(SweepRecord.open(open_folder(storage, name)), None)
        from analysis.reading.remote import fetch_record

        return cls(fetch_record(uri, check_name(name)), uri)

    def hand_over(self, event: AnyRequest) -> str:
        """Hand over a request, and return when it takes effect as the end of a sentence."""
        record = self.record
        if self.uri is not None:
            from search.tracking.own_run import send_request as send_by_store

            send_by_store(self.uri, record.name, event)
            return "when its driver has read the request, within about 10 seconds."
        if record.folder.is_running():
            send_request(record.folder, event)
            return "when its driver has read the request."
        record.append(event)
        return f"when the sweep continues: sweep resume {record.name}"


def request_trial(target: Target, values: Sequence[str], full: bool = False) -> str:
    """Ask for one more trial, by a recipe's file and overrides, or by overrides of the baseline; return a sentence.

    What the file does not have is as in the baseline. With `full` ASHA does not stop the trial.
    """
    record = target.record
    if record.replication is not None:
        raise UserError(f"{record.name} is a replication with a fixed list of trials, so no recipe can be added to it.")
    recipe = _check_recipe(record, read_added(record.space, values), is_here=target.uri is None)
    if (known := next((trial for trial in record.trials if trial.recipe == recipe), None)) is not None:
        raise UserError(f"{record.name}: trial {known.name} has this recipe already. Change a value of it.")
    _refuse_second(record, recipe)
    _refuse_unloaded(record, recipe)
    when = target.hand_over(TrialAdded(request=uuid.uuid4().hex, recipe=recipe, full=full))
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
    if record.plugins is None or not record.folder.is_running():
        return
    loaded = {None, *record.plugins}  # what is bundled has no code
    parts = recipe.model_dump()
    if missing := [name for name in parts if isinstance(parts[name], dict) and parts[name].get(CODE) not in loaded]:
        raise UserError(
            f"{record.name}: its driver was started without the plugin of {', '.join(missing)}. Stop the sweep, and continue "
            f"it with the plugin: sweep stop {record.name}, then sweep resume {record.name} --plugin FILE."
        )


def _check_recipe(record: SweepRecord, recipe: Recipe, is_here: bool) -> Recipe:
    """Return a recipe with absolute paths. Weights that no trial has are looked for, where the sweep runs on this machine."""
    given = absolute_paths(replace(record.space, recipe=recipe.model_dump()))
    check_backbones(given.recipe)
    recipe = read_recipe(given.recipe)
    is_new = not any(trial.recipe.backbone == recipe.backbone for trial in record.trials)
    if is_here and is_new and record.recorded_settings.address is None:
        from training.model.weights import locate_weights

        locate_weights(recipe.backbone)
    return recipe


def add_note(target: Target, text: str) -> str:
    """Add a note to a sweep, and return a sentence for the user."""
    line = mask_secrets(" ".join(text.split()))
    if not 0 < len(line) <= LONGEST_NOTE:
        raise UserError(f"the note has {len(line)} characters. Write 1 to {LONGEST_NOTE}.")
    record, event = target.record, Noted(request=uuid.uuid4().hex, text=line)
    if target.uri is not None or record.folder.is_running():
        return f"{record.name} gets the note {target.hand_over(event)}"
    from search.tracking.own_run import send_notes

    settings = record.settings  # before the note is written: a store that is refused is named, and the note given again
    target.hand_over(event)
    missing = "" if send_notes(record, settings) else " MLflow did not answer, so its run there does not have it."
    return f"{record.name} has the note.{missing}"


def read_added(space: Space, values: Sequence[str]) -> Recipe:
    """Return the recipe for a sweep with this space."""
    first, *rest = values
    is_file, base = "=" not in first, space.baselines()[0]
    recipe = load_recipe(first, rest, base) if is_file else change_recipe(base, values)
    fields = [value.partition("=")[0] for value in (rest if is_file else values)]
    return _with_data(space, recipe, first, next((field for field in fields if field.split(".")[0] == "data"), None))


def _with_data(space: Space, recipe: Recipe, name: str, field: str | None = None) -> Recipe:
    """Return the recipe with the data of the space. `field` is that of the data which the command sets, if any."""
    from training.data.load_data import absolute

    baseline = space.baselines()[0]
    if absolute(recipe.data) != baseline.data:
        if field:
            raise UserError(
                f"All trials of a sweep share its data, so {field} cannot be set here. Leave it out, or start a new sweep."
            )
        raise UserError(
            f"{name}: its data is not that of the sweep, and all trials of a sweep share their data. Give overrides of the "
            "baseline instead, such as optimizer.lr=0.01."
        )
    return recipe.model_copy(update={"data": baseline.data})


def request_stop(target: Target, text: str) -> str:
    """Ask the driver to end a trial, and return a sentence for the user."""
    record = target.record
    trial = find_trial(record, text)
    if trial.state not in UNFINISHED:
        raise UserError(f"--trial={text}: trial {trial.name} of {record.name} has ended already: it is {trial.state}.")
    when = target.hand_over(StopRequested(request=uuid.uuid4().hex, trial=trial.number))
    return f"Trial {trial.name} of {record.name} will end after its current epoch, {when}"


def request_pause(target: Target, is_paused: bool) -> str:
    """Ask a running sweep to start no new trials, or to start them again, and return a sentence for the user."""
    record = target.record
    if not record.folder.is_running():
        if record.is_done and record.replication is not None:
            raise UserError(f"{record.name} is not running: all its trials have ended.")
        way_on = f"extend {record.name} --trials 10" if record.is_done else f"resume {record.name}"
        raise UserError(f"{record.name} is not running. Continue it with: sweep {way_on}.")
    # The copy of the ledger in a store is some seconds late, so there the driver decides.
    waiting = [event for _, event in list_requests(record.folder) if isinstance(event, SweepPaused)]
    was_paused = waiting[-1].is_paused if waiting else record.trials.is_paused
    if target.uri is None and not is_paused and not was_paused:
        raise UserError(f"{record.name} is not paused.")
    when = target.hand_over(SweepPaused(request=uuid.uuid4().hex, is_paused=is_paused))
    if is_paused:
        store = f" --from {mask_secrets(target.uri)}" if target.uri else ""
        way_on = f"sweep unpause {record.name}{store}"
        return f"{record.name} starts no new trials {when} Running trials finish. Continue with: {way_on}"
    return f"{record.name} starts new trials again {when}"


def request_end(storage: Path, name: str, uri: str | None) -> str:
    """Ask the driver of a sweep to end it, through its folder or through a store, and return a sentence for the user."""
    if uri is not None:
        from search.tracking.own_run import request_stop as request_by_store

        request_by_store(uri, check_name(name))
        return f"{name} will end when its driver has read the request, within about 10 seconds."
    folder = open_folder(storage, name)
    if not folder.is_running():
        raise UserError(f"{name} is not running.")
    folder.stop_request.touch()
    return f"{name} will end when its driver has read the request. Continue with: sweep resume {name}"

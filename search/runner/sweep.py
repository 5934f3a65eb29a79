"""Run a sweep to its end: a new one, or one that an earlier driver left."""

from __future__ import annotations

import errno
import gc
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ledger.events import AnyEvent, Dataset, Extension, SettingsChanged, SweepStarted
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.requests import ingest
from ledger.settings import Settings
from ledger.trials import UNFINISHED
from ledger.trust import DEBUG, trust
from search.copies.place import check_place, has_sweep
from search.core.controller import Controller
from search.runner.display import Display
from search.runner.interrupt import hint_resume, resumable
from search.runner.machines.cluster import probe_cluster
from search.runner.machines.ray_process import end_left
from search.runner.start.moved_data import check_images, check_same, keep_files
from search.runner.start.prepare import Preparation, check_early
from search.runner.sweep_run import SweepEnd, SweepRun, record_runs
from search.tracking.writer import Tracking
from spaces.space import Space
from training.errors import UserError

NOTE = "# For a sweep that searches this space again. That of this sweep is in its ledger: a change here has no effect on it.\n"


def run_sweep(
    folder: SweepFolder,
    space: Space,
    settings: Settings,
    display: Display,
    opening: Sequence[AnyEvent] = (),
    preset: str = "",
    page: Path | None = None,
    began: float | None = None,
) -> SweepEnd:
    """Run a new sweep to its end, its time budget, or Ctrl-C.

    `opening` has the ledger's first events after its header: warm starts, or all trials of a replication. `preset` is the
    text of the space that a preset made; the folder keeps it. `page` is written by another process while the sweep runs;
    MLflow gets it too. `began` is the time of the monotonic clock from which the time budget counts, if not now.
    """
    trust(settings.tracking_uri, settings.address, settings.copy_to)
    probe_cluster(settings.address)
    if settings.copy_to:
        check_place(settings.copy_to)
        if has_sweep("--copy-to", settings.copy_to, folder.name):
            raise UserError(
                f"--copy-to={settings.copy_to}: it has a sweep {folder.name} already. Give another --name, or continue that "
                f"one: sweep resume {folder.called} --from {settings.copy_to}."
            )
    display.line(f"Sweep {folder.name} starts.")
    began = time.monotonic() if began is None else began
    with display.start(began):
        if settings.is_local:
            check_early(space, folder.path.parent, settings, display.phase)
        sweep_id = uuid.uuid4().hex
        tracking = _make_tracking(folder, sweep_id, space, settings, page)
        prepared = Preparation(space, settings, folder.path.parent, tracking, display).run()
    settings.remember()
    header = make_header(folder.name, sweep_id, prepared.space, settings, prepared.dataset)
    create_folder(folder, header, *opening, preset=preset)
    keep_files(folder, prepared.files)
    tracking.replay([header, *opening])
    with folder.locked():
        controller = Controller(
            prepared.space, Ledger(folder.ledger), seed=settings.seed, resolve=prepared.resolve, listeners=[tracking]
        )
        end = SweepRun(folder, controller, settings, prepared, tracking, display, began).run()
    return _restart_ray(end, display, page) if end.is_ray_lost else end


def _restart_ray(end: SweepEnd, display: Display, page: Path | None) -> SweepEnd:
    """Start Ray again after its servers on this machine ended, and continue the sweep; a second time is not tried."""
    display.line("Ray ended. It starts again, and the trials continue from their last epochs.")
    gc.collect()  # Tune's objects of the Ray that ended must not meet the next one
    again = resume_sweep(end.record.folder, display, end.seconds_left, is_restart=True, page=page)
    if again.is_ray_lost:
        raise UserError(f"Ray ended twice. Look for the reason, then continue with: sweep resume {end.record.called}")
    return again


def resume_sweep(
    folder: SweepFolder,
    display: Display,
    time_budget_seconds: float | None = None,
    more_trials: int = 0,
    changes: Mapping[str, Any] | None = None,
    is_restart: bool = False,
    page: Path | None = None,
) -> SweepEnd:
    """Continue a sweep after any kind of interruption.

    `more_trials` extends it. `changes` has settings that are other than before, such as the cluster or the MLflow store.
    `page` is that of `run_sweep`. `is_restart` is whether Ray was started again already.
    """
    with folder.locked():
        end_left(folder.processes)
        record = SweepRecord.open(folder)
        before, named = record.recorded_settings, changes or {}
        trust(*(named.get(place) for place in ("tracking_uri", "address", "copy_to")))
        settings = replace(before, **named).for_driver()
        if more_trials or not record.is_done:  # a refused command must not extend the sweep
            check_images(record, settings.is_local)
            settings = replace(settings, time_budget_seconds=time_budget_seconds)
        probe_cluster(settings.address)
        wanted = _list_changes(record, settings, more_trials)
        ledger = Ledger(folder.ledger, record.events)
        ingest(folder, ledger)
        record = SweepRecord(folder, [*ledger.events, *wanted])
        tracking = _make_tracking(folder, record.header.id, record.space, settings, page)
        if record.is_done:
            for event in wanted:
                ledger.append(event)
            return _deliver(record, tracking, is_moved=settings.masked().tracking_uri != before.tracking_uri)
        end = _run_again(record, ledger, wanted, settings, display, tracking)
    return _restart_ray(end, display, page) if end.is_ray_lost and not is_restart else end


def _list_changes(record: SweepRecord, settings: Settings, more_trials: int) -> list[AnyEvent]:
    """Return the events by which a sweep continues with other settings, or with more trials."""
    before, events = record.recorded_settings, list[AnyEvent]()
    masked = replace(settings, address=before.address if settings.address == DEBUG else settings.address).masked()
    if masked != before:
        events.append(SettingsChanged(settings=masked))
    if more_trials:
        if record.replication is not None:
            raise UserError(f"{record.name} is a replication with a fixed list of trials, and cannot be extended.")
        events.append(Extension(trials=more_trials))
    return events


def _run_again(
    record: SweepRecord,
    ledger: Ledger,
    new: Sequence[AnyEvent],
    settings: Settings,
    display: Display,
    tracking: Tracking,
) -> SweepEnd:
    folder, began = record.folder, time.monotonic()
    display.line(describe_progress(record))
    added = "".join(f" --trials {event.trials}" for event in new if isinstance(event, Extension))
    with resumable(hint_resume(folder.called + added, settings.time_budget_seconds)), display.start(began):
        # The ledger has all results, so a server that does not answer can get them later.
        prepared = Preparation(record.space, settings, folder.path.parent, tracking, display, patient=True).run()
    if prepared.dataset:
        check_same(record, prepared.dataset, lambda: prepared.files)
    for event in new:  # not before: what machines refuse stays as it was
        ledger.append(event)
    settings.remember()
    tracking.replay(ledger.events)
    controller = Controller(
        record.space, ledger, seed=settings.seed, resolve=prepared.resolve, available=prepared.space
    )
    controller.subscribe(tracking)
    controller.trials.reserve(folder.trial_numbers())
    controller.take_over()
    return SweepRun(folder, controller, settings, prepared, tracking, display, began).run()


def describe_progress(record: SweepRecord) -> str:
    """Return a sentence about a sweep that continues: how many trials are done, and how many were interrupted."""
    left = sum(trial.state in UNFINISHED for trial in record.trials)
    interrupted = f", {left} interrupted" if left else ""
    return f"Sweep {record.name} continues: {len(record.trials) - left} of {record.budget} trials done{interrupted}."


def _deliver(record: SweepRecord, tracking: Tracking, is_moved: bool) -> SweepEnd:
    """Send the missing events to MLflow for a sweep whose trials have all ended; a new store gets all of them."""
    if record.is_delivered and not is_moved:
        raise UserError(
            f"{record.name} is completed: all {len(record.trials)} trials have ended. To run more trials: "
            f"sweep resume {record.called} --trials N."
        )
    tracking.start()
    tracking.wait_ready()
    tracking.replay(record.events)
    undelivered = tracking.close("completed")
    controller = Controller(record.space, Ledger(record.folder.ledger, record.events), seed=record.settings.seed)
    record_runs(controller, tracking, undelivered)
    return SweepEnd(SweepRecord(record.folder, controller.ledger.events), "completed", undelivered, had_ended=True)


def make_header(
    name: str, sweep_id: str, space: Space, settings: Settings, dataset: Dataset | None = None
) -> SweepStarted:
    """Return the event that describes a new sweep. A password of its store is masked."""
    return SweepStarted(name=name, id=sweep_id, space=space.to_yaml(), settings=settings.masked(), dataset=dataset)


def create_folder(folder: SweepFolder, header: SweepStarted, *events: AnyEvent, preset: str = "") -> None:
    """Create a sweep's folder with its space and the first events of its ledger, completely or not at all."""
    partial = SweepFolder(folder.path.with_name(f".{folder.name}-{header.id}"))
    partial.path.mkdir(parents=True)
    try:
        partial.space.write_text(f"{NOTE}{header.space}", encoding="utf-8")
        if preset:
            partial.preset.write_text(preset, encoding="utf-8")
        ledger = Ledger(partial.ledger)
        for event in (header, *events):
            ledger.append(event)
        ledger.close()
        partial.path.rename(folder.path)
    except OSError as error:
        partial.remove()
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise UserError(
            f"--name={folder.name}: another sweep with this name has just started. Give this one another name."
        ) from None


def _make_tracking(folder: SweepFolder, sweep_id: str, space: Space, settings: Settings, page: Path | None) -> Tracking:
    return Tracking(
        settings.tracking_uri,
        settings.experiment,
        sweep=folder.name,
        sweep_id=sweep_id,
        metric=space.search.metric,
        ledger=folder.ledger,
        page=page,
    )

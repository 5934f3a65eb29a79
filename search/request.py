"""The options of a sweep, checked and read: its space and its settings. No image is read here, except for a preset."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger import EXPERIMENT, EXPERIMENT_VARIABLE, OWNER, TRACKING_URI
from ledger.secrets import URI
from ledger.trust import DEBUG
from search.arguments import absolute_paths, absolute_uri, check_share, check_store, parse_tags, read_seconds
from search.sweep_options import DriverOptions, ResumeOptions, SweepOptions
from training.errors import UserError
from training.process.text_files import read_text
from training.process.user import name_user

if TYPE_CHECKING:
    from ledger.settings import Settings
    from search.presets.make import MadeSpace
    from spaces.space import Space
    from training.recipe import Recipe


ALL = "all"  # for --warm-start in place of a name: the sweeps of the storage folder
PLACING = ("cpus_per_trial", "gpus_per_trial", "max_concurrent", "accelerator")  # where trials run, and how many


@dataclass(frozen=True)
class SweepRequest:
    """A sweep that a user asks for.

    The `space` has absolute paths and no options that cannot help; `notes` say what was removed from it. `warm_starts` are
    the best recipes of earlier sweeps. `preset` is the text of the space that a preset made; empty without one.
    """

    options: SweepOptions
    space: Space
    notes: list[str]
    settings: Settings
    storage: Path
    warm_starts: tuple[Recipe, ...]
    preset: str = ""
    began: float = 0.0  # by the monotonic clock


def read_request(options: SweepOptions, say: Callable[[str], object] = lambda sentence: None) -> SweepRequest:
    """Load the space of a sweep and make its settings; `say` gets what takes time."""
    began, name = time.monotonic(), options.name
    space, preset, overrides = read_source(options.space, options.overrides, options.preset, options.address)
    from ledger.folder import list_latest, open_folder
    from ledger.names import check_name

    home = Path(options.storage).absolute()
    if name is not None:
        check_name(name, "--name")
    named = list(options.warm_start)
    are_all = ALL in named
    earlier = list_latest(home) if are_all else [open_folder(home, sweep, "--warm-start") for sweep in named]
    settings = _read_settings(options)
    sized = [*overrides, f"search.trials={options.trials}"] if options.trials is not None else overrides
    made = None
    if preset is None:
        from spaces.load import load_space

        loaded = load_space(str(space), sized)
    else:
        say(f"preset {preset}: looking at the images")  # the imports for it take seconds
        kept = home / name if options.or_resume and name else None
        made = _use_preset(preset, sized, settings, kept, say)
        loaded, settings = made.space, replace(settings, time_budget_seconds=made.seconds)
    from search.evaluation.warm_start import collect_warm_starts
    from search.runner.start.prepare import leave_out_noise
    from spaces.reading.known_backbones import check_backbones

    loaded = absolute_paths(loaded)
    check_backbones(loaded.recipe)
    loaded, notes = leave_out_noise(loaded)
    found = collect_warm_starts(loaded, earlier, are_all)
    if named:
        origins = ", ".join(dict.fromkeys(sweep for sweep, _ in found)) or "no sweep: none here has one for this space"
        notes.append(f"Begins with the best recipes of {origins}.")
    reasons, text = (made.notes, made.text) if made else ([], "")
    warm_starts = tuple(recipe for _, recipe in found)
    return SweepRequest(options, loaded, [*reasons, *notes], settings, home, warm_starts, text, began)


def _read_settings(options: SweepOptions) -> Settings:
    """Return the settings; an option that is kept as the user gives it has the name of its setting."""
    from ledger.settings import Settings
    from search.copies.place import check_uri

    uri = options.tracking_uri if options.tracking_uri is not None else os.environ.get(URI, TRACKING_URI)
    experiment = options.experiment
    if experiment is None:
        experiment = os.environ.get(EXPERIMENT_VARIABLE) or EXPERIMENT
    tags = parse_tags(options.tags)
    _check_shares(options)
    read: dict[str, Any] = {
        "tracking_uri": absolute_uri(uri),
        "experiment": experiment,
        "time_budget_seconds": read_seconds(options.time_budget),
        "address": find_address(options.address),
        "owner": tags.pop(OWNER, None) or name_user(),
        "tags": tags,
        "copy_to": check_uri("--copy-to", options.copy_to) if options.copy_to is not None else "",
    }
    names = [field.name for field in fields(Settings) if field.name not in read]
    return Settings(**read, **{name: getattr(options, name) for name in names})


def _check_shares(options: DriverOptions) -> None:
    check_share("--cpus-per-trial", options.cpus_per_trial)
    check_share("--gpus-per-trial", options.gpus_per_trial, or_zero=True)


def read_changes(options: ResumeOptions) -> dict[str, Any]:
    """Return the settings that a resume changes."""
    _check_shares(options)
    changes: dict[str, Any] = {name: kept for name in PLACING if (kept := getattr(options, name)) is not None}
    if options.tracking_uri is not None:
        check_store(options.tracking_uri, EXPERIMENT)
        changes["tracking_uri"] = absolute_uri(options.tracking_uri)
    return changes if options.address is None else {**changes, "address": find_address(options.address)}


def _use_preset(
    preset: str, overrides: Sequence[str], settings: Settings, existing: Path | None, say: Callable[[str], object]
) -> MadeSpace:
    from ledger.folder import SweepFolder
    from search.presets.make import make_preset, reread_preset

    seconds = settings.time_budget_seconds
    if existing is not None and (kept := SweepFolder(existing).preset).exists():
        return reread_preset(read_text(kept, str(kept)), preset, overrides, seconds)
    cpus, gpus = settings.cpus_per_trial, settings.gpus_per_trial
    return make_preset(preset, overrides, seconds=seconds, cpus=cpus, gpus=gpus, say=say)


def read_source(
    space: str | Path | None, overrides: Sequence[str] | None, preset: str | None, address: str | None
) -> tuple[str | Path | None, str | None, list[str]]:
    """Return the space, the preset and the values to set.

    With a preset there is no space, and the first word is such a value, or a folder of images. A folder alone means
    the usual preset.
    """
    values = list(overrides or [])
    if space and os.path.isdir(os.path.expanduser(space)):
        from spaces.load import bundled_names

        if str(space) not in bundled_names():
            space, preset = f"data.root={json.dumps(str(space), ensure_ascii=False)}", preset or "good"  # "photos #2"
    if preset is None:
        if space is None:
            raise UserError(
                "Name a bundled space, a YAML file or a folder of images. With --preset fast, good or best: data.root=FOLDER."
            )
        return space, None, values
    from search.presets.rules import find_preset

    find_preset(preset)
    if space is not None and "=" not in str(space):
        raise UserError(f"--preset={preset}: a preset makes the space. Leave {space} out, or leave --preset out.")
    if find_address(address) not in (None, DEBUG):
        raise UserError(
            f"--preset={preset}: a preset measures this machine, not a cluster. On a machine of the cluster, write its "
            f"space with `sweep space --preset {preset} data.root=FOLDER > {preset}.yaml`, then run that file."
        )
    given = values if space is None else [str(space), *values]
    return None, preset, [f"data.{one}" if one.startswith(("root=", "path=")) else one for one in given]


def find_address(address: str | None) -> str | None:
    """Return the address of a cluster; None for this machine."""
    return None if address == "local" else address

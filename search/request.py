"""The arguments of `run`, checked: what they ask for, before anything is looked at or made."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis import EXPERIMENT, TRACKING_URI
from search.arguments import (
    LARGEST_SEED,
    absolute_paths,
    absolute_uri,
    check_number,
    parse_duration,
    parse_tags,
    read_share,
)
from search.storage.secrets import URI
from training.errors import UserError

if TYPE_CHECKING:
    from search.storage.folder import SweepFolder
    from search.storage.settings import Settings
    from spaces.space import Space

STORAGE = Path("sweeps")


@dataclass(frozen=True)
class Request:
    """A sweep that a user asks for.

    Attributes:
        space: The space, with absolute paths and without options that cannot help.
        notes: Sentences about what was removed from it.
        settings: Its settings.
        storage: The folder of the sweeps.
        name: The name that the user gave; None if a name is chosen.
        or_resume: Whether a sweep with this name may exist, and then continues.
        earlier: The sweeps whose best recipes it begins with.
        preset: The text of the space that a preset made; empty without a preset.
    """

    space: Space
    notes: list[str]
    settings: Settings
    storage: Path
    name: str | None
    or_resume: bool
    earlier: list[SweepFolder]
    preset: str = ""


def read_request(
    space: str | Path | None,
    overrides: Sequence[str],
    *,
    preset: str | None = None,
    name: str | None = None,
    trials: int | None = None,
    time_budget: str | float | None = None,
    cpus_per_trial: float | str | None = None,
    gpus_per_trial: float | str | None = None,
    address: str | None = None,
    max_concurrent: int | None = None,
    accelerator: str | None = None,
    storage: str | Path = STORAGE,
    tracking_uri: str | None = None,
    experiment: str = EXPERIMENT,
    seed: int = 0,
    warm_start: Iterable[str] = (),
    keep_best: int = 5,
    owner: str | None = None,
    tags: Iterable[str] = (),
    or_resume: bool = False,
    copy_to: str | None = None,
    say: Callable[[str], object] = lambda sentence: None,
) -> Request:
    """Check the arguments of `search.run`, which explains them, and load the space; `say` gets what takes time.

    Raises:
        UserError: an argument or the space is wrong.
    """
    cpus = read_share("--cpus-per-trial", cpus_per_trial)
    gpus = read_share("--gpus-per-trial", gpus_per_trial, or_zero=True)
    check_number("--max-concurrent", max_concurrent)
    check_number("--trials", trials)
    check_number("--seed", seed, least=0, most=LARGEST_SEED)
    check_number("--keep-best", keep_best)
    seconds = read_seconds(time_budget)
    check_source(space, preset, find_address(address))
    named_tags = parse_tags(tags)
    if or_resume and name is None:
        raise UserError("--or-resume: give the name of the sweep with --name, or leave --or-resume out.")
    if accelerator is not None and find_address(address) is None:
        raise UserError(
            f"--accelerator={accelerator}: it chooses among the machines of a cluster. Give --address too, or leave it out."
        )
    from search.runner.start.early_checks import leave_out_noise
    from search.storage.copies import check_uri
    from search.storage.folder import open_folder
    from search.storage.names import check_name
    from search.storage.settings import Settings

    home = Path(storage).absolute()
    if name is not None:
        check_name(name, "--name")
    earlier = [open_folder(home, sweep, "--warm-start") for sweep in warm_start]
    if tracking_uri is None:
        tracking_uri = os.environ.get(URI, TRACKING_URI)
    settings = Settings(
        absolute_uri(tracking_uri),
        experiment,
        seed,
        keep_best,
        cpus,
        gpus,
        seconds,
        find_address(address),
        max_concurrent,
        accelerator,
        owner if owner is not None else getpass.getuser(),
        named_tags,
        check_uri("--copy-to", copy_to) if copy_to is not None else "",
    )
    from spaces.reading.known_backbones import check_backbones

    sized = [*overrides, f"search.trials={trials}"] if trials is not None else list(overrides)
    text, reasons = "", list[str]()
    if preset is None:
        from spaces.load import load_space

        loaded = load_space(str(space), sized)
    else:
        loaded, text, reasons, seconds = _use_preset(
            preset, sized, settings, home / name if or_resume and name else None, say
        )
        settings = replace(settings, time_budget_seconds=seconds)
    loaded = absolute_paths(loaded)
    check_backbones(loaded.recipe)
    loaded, notes = leave_out_noise(loaded)
    return Request(loaded, [*reasons, *notes], settings, home, name, or_resume, earlier, text)


def _use_preset(
    preset: str,
    overrides: Sequence[str],
    settings: Settings,
    existing: Path | None,
    say: Callable[[str], object],
) -> tuple[Space, str, list[str], float | None]:
    """Return the space of a preset with its text, its reasons and its time; that of an existing sweep does not change."""
    from search.presets.make import make_preset, reread_preset
    from search.storage.folder import SweepFolder

    seconds = settings.time_budget_seconds
    if existing is not None and (kept := SweepFolder(existing).preset).exists():
        text = kept.read_text(encoding="utf-8")
        return reread_preset(text, preset, overrides), text, [], seconds
    cpus, gpus = settings.named_cpus, settings.named_gpus
    made = make_preset(preset, overrides, seconds=seconds, cpus=cpus, gpus=gpus, say=say)
    return made.space, made.text, made.notes, made.seconds


def check_source(space: str | Path | None, preset: str | None, address: str | None) -> None:
    """Refuse a sweep that has neither a space nor a preset, or both, or a preset for a cluster.

    Raises:
        UserError: it is one of these.
    """
    if preset is not None:
        from search.presets.make import check_arguments

        check_arguments(space, preset, address)
    elif space is None:
        raise UserError(
            "Name a bundled space or a YAML file, or give --preset fast, good or best, with data.root=FOLDER."
        )


def find_address(address: str | None) -> str | None:
    """Return the address of a cluster; None for this machine."""
    return None if address == "local" else address


def read_seconds(time_budget: str | float | None) -> float | None:
    """Return a time budget in seconds, which may be text such as `2h`.

    Raises:
        UserError: it is not a time.
    """
    if isinstance(time_budget, str):
        return parse_duration(time_budget)
    check_number("--time-budget", time_budget)
    return time_budget

"""Arguments and options of several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from search.api import STORAGE as STORAGE
from training.errors import UserError


def _load(files: list[str] | None) -> list[str] | None:
    from training.own import load

    load(files or [])
    return files


def part_space(space: str | None, overrides: list[str] | None, preset: str | None) -> tuple[str | None, list[str]]:
    """Return the space and the values to set: with a preset there is no space, and the first word is such a value."""
    if preset is not None and space is not None and "=" in space:
        return None, [space, *(overrides or [])]
    return space, overrides or []


def complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Return the sweeps in the storage folder, for the completion of a shell."""
    from search.storage.folder import list_folders

    try:
        folders = list_folders(Path(context.params.get("storage") or STORAGE).absolute())
    except UserError:  # the command itself reports it
        return []
    return [folder.name for folder in folders if folder.name.startswith(incomplete)]


Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATH=VALUE]...", help="Set a value, such as `epochs=3` or `search.trials=20`."),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Make the space by the images of `data.root=FOLDER`, by this machine and by the time: `fast`, `good` or `best`.",
        metavar="NAME",
    ),
]
Storage = Annotated[Path, typer.Option(help="Folder that holds the sweeps.", envvar="SWEEP_STORAGE")]
TrackingUri = Annotated[
    str, typer.Option(help="MLflow store: a database or a server.", envvar="MLFLOW_TRACKING_URI", show_envvar=True)
]
Experiment = Annotated[str, typer.Option(help="MLflow experiment.")]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        help="Load the techniques, data and backbones of this Python file; may be repeated.",
        metavar="FILE",
        callback=_load,
    ),
]
Name = Annotated[str, typer.Argument(help="Name of a sweep; `sweep list` shows them.", autocompletion=complete_name)]
TimeBudget = Annotated[str | None, typer.Option(help="Stop after this time, such as `90s`, `15m` or `2h`.")]

NUMBER = "NUMBER"
Cpus = Annotated[
    str | None,
    typer.Option(
        help="CPUs of each trial; `auto`: as many trials on a machine without GPUs as its memory and CPUs allow.",
        metavar=NUMBER,
    ),
]
Gpus = Annotated[
    str | None,
    typer.Option(
        help="GPUs of each trial; may be a fraction. `auto`: as many trials on a GPU as its memory allows.",
        metavar=NUMBER,
    ),
]

# Options of commands that can read a sweep of another machine.
FromStore = Annotated[
    str | None,
    typer.Option("--tracking-uri", help="Read the sweep from this MLflow store, not from the storage folder."),
]

# Options of commands that continue a sweep; without them, the sweep keeps its settings.
OtherCpus = Annotated[
    str | None, typer.Option("--cpus-per-trial", help="CPUs of each trial from now on, or `auto`.", metavar=NUMBER)
]
OtherGpus = Annotated[
    str | None, typer.Option("--gpus-per-trial", help="GPUs of each trial from now on, or `auto`.", metavar=NUMBER)
]
OtherAddress = Annotated[
    str | None, typer.Option("--address", help="Head node of another Ray cluster; `local`: this machine.")
]
OtherStore = Annotated[
    str | None, typer.Option("--tracking-uri", help="Another MLflow store; it gets the earlier trials too.")
]

Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Serve the sweep's dashboard on 127.0.0.1 while the command runs.")
]

CopyTo = Annotated[
    str | None, typer.Option(help="Copy it there too, below the sweep's name, such as s3://bucket/sweeps.")
]

# Options of commands whose results other programs read.
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print a table in CSV for other programs.")]


def check_form(as_json: bool, as_csv: bool) -> None:
    """Refuse both forms together.

    Raises:
        UserError: both were given.
    """
    if as_json and as_csv:
        raise UserError("--json and --csv: give one of them.")

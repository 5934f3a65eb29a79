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


Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATH=VALUE]...", help="Set a value, such as `epochs=3` or `search.trials=20`."),
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
Name = Annotated[str, typer.Argument(help="Name of a sweep; `sweep list` shows them.")]
TimeBudget = Annotated[str | None, typer.Option(help="Stop after this time, such as `90s`, `15m` or `2h`.")]

# Options of commands that can read a sweep of another machine.
FromStore = Annotated[
    str | None,
    typer.Option("--tracking-uri", help="Read the sweep from this MLflow store, not from the storage folder."),
]

# Options of commands that continue a sweep; without them, the sweep keeps its settings.
OtherCpus = Annotated[float | None, typer.Option("--cpus-per-trial", help="CPUs of each trial from now on.")]
OtherGpus = Annotated[float | None, typer.Option("--gpus-per-trial", help="GPUs of each trial from now on.")]
OtherAddress = Annotated[
    str | None, typer.Option("--address", help="Head node of another Ray cluster; `local`: this machine.")
]
OtherStore = Annotated[
    str | None, typer.Option("--tracking-uri", help="Another MLflow store; it gets the earlier trials too.")
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

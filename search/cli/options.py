"""Arguments and options of several commands."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer
from typer.models import ParameterInfo

from search.sweep_options import EXPERIMENT_NAME, NAME, OVERRIDES, PLUGIN, PRESET, STORAGE_FOLDER, STORE, TIME_BUDGET
from training.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from ledger.record import SweepRecord

Command = TypeVar("Command", bound=Callable[..., None])

Overrides = Annotated[list[str] | None, OVERRIDES]
Preset = Annotated[str | None, PRESET]
Storage = Annotated[Path, STORAGE_FOLDER]
TrackingUri = Annotated[str, STORE]
Experiment = Annotated[str, EXPERIMENT_NAME]
Plugins = Annotated[list[str] | None, PLUGIN]
Name = Annotated[str, NAME]
TimeBudget = Annotated[str | None, TIME_BUDGET]

# Options of commands whose results other programs read.
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]


def options_of(
    options: Callable[..., object], only: Container[str] | None = None, **defaults: object
) -> Callable[[Command], Command]:
    """Give a command the fields of `options` as its arguments and options, in place of its `**given`.

    With `only`, it gets these fields alone. `defaults` are those that the command line shows.
    """

    def decorate(command: Command) -> Command:
        given = signature(options).parameters.values()
        fields = [_read_field(each) for each in given if isinstance(get_args(each.annotation)[1], ParameterInfo)]
        fields = [field for field in fields if only is None or field.name in only]
        fields = [field.replace(default=defaults.get(field.name, field.default)) for field in fields]
        parameters = [
            parameter
            for parameter in signature(command, eval_str=True).parameters.values()
            if parameter.kind != parameter.VAR_KEYWORD
        ]
        vars(command)["__signature__"] = signature(command).replace(parameters=[*fields, *parameters])
        return command

    return decorate


def _read_field(field: Parameter) -> Parameter:
    """Return a field as the command line reads it, with the first type of a union: Typer has no unions."""
    value_type, option, *_ = get_args(field.annotation)
    first, *others = get_args(value_type) or [value_type]
    single = first | None if NoneType in others else first
    value_type = list[str] if field.default == () else single
    return field.replace(annotation=Annotated[value_type, option], kind=Parameter.KEYWORD_ONLY)


def open_sweep(name: str, storage: Path) -> SweepRecord:
    """Open the sweep that a command names."""
    from ledger.folder import open_folder
    from ledger.record import SweepRecord

    return SweepRecord.open(open_folder(storage.absolute(), name))


def name_latest(place: Mapping[str, Any], console: Console) -> str:
    """Return the name of a sweep that the user gave, else that of the latest sweep, which is printed."""
    if (name := place["name"]) is not None:
        return str(name)
    if (uri := place["tracking_uri"]) is not None:
        raise UserError(f"--from={uri}: name the sweep. MLflow's own page lists them.")
    from ledger.folder import find_latest

    name = find_latest(place["storage"].absolute()).name
    console.print(f"Sweep {name}, the latest one:", markup=False)
    return name

"""The options of a sweep, once: the command line has them as options, the Python functions as arguments."""

# Without `from __future__ import annotations`: Typer and the documentation read these annotations. The command line
# reads the first type of a union.

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar, get_args

import typer
from rich.console import Console

from ledger import EXPERIMENT_VARIABLE, STORAGE_VARIABLE, SWEEPS
from ledger.trust import DEBUG
from search.arguments import LARGEST_SEED, absolute_uri, check_number
from training.errors import UserError

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

STORAGE = Path(SWEEPS)


def load_plugins(files: Iterable[str | Path] | None) -> Iterable[str | Path] | None:
    """Load the user's own files, and return them for Typer."""
    from training.plugins import load

    load(files or [])
    return files


def complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Return the sweeps in the storage folder, for the completion of a shell."""
    from ledger.folder import list_folders

    try:
        folders = list_folders(Path(context.params.get("storage") or STORAGE).absolute())
    except UserError:  # the command itself reports it
        return []
    return [folder.name for folder in folders if folder.name.startswith(incomplete)]


def complete_trial(context: typer.Context, incomplete: str) -> list[str]:
    """Return the trials of the sweep that the command names."""
    from ledger.folder import open_folder
    from ledger.record import SweepRecord

    try:
        storage = Path(context.params.get("storage") or STORAGE).absolute()
        trials = SweepRecord.open(open_folder(storage, context.params.get("name") or ""), only_shown=True).trials
    except UserError:  # also without a name, which may come later
        return []
    return [trial.name for trial in trials if trial.name.startswith(incomplete)]


def complete_field(incomplete: str) -> list[str]:
    """Return the fields of a recipe and of a search, as the left side of a value to set."""
    from spaces.search import Search
    from training.recipe import Recipe, flatten

    fields = [*Recipe().flat(), *flatten({"search": Search().model_dump()})]
    return [f"{field}=" for field in fields if field.startswith(incomplete)]


def complete_space(incomplete: str) -> list[str]:
    """Return the bundled spaces, and the files of spaces here."""
    from spaces.load import bundled_names

    names = [*bundled_names(), *(path.name for ending in ("yaml", "yml") for path in Path().glob(f"*.{ending}"))]
    return [name for name in names if name.startswith(incomplete)]


# Other commands have these too.
SPACE = typer.Argument(
    help="A folder of images, a bundled space (`quick`, `card`, `full`) or a YAML file; none with `--preset`.",
    autocompletion=complete_space,
)
OVERRIDES = typer.Argument(
    metavar="[PATH=VALUE]...",
    help="Set a value, such as `epochs=3` or `search.trials=20`.",
    autocompletion=complete_field,
)
MOVED = typer.Argument(metavar="[data.root=FOLDER]", help="The new place of the images, if they moved.")
PRESET = typer.Option(
    help="Choose a space for the images of `data.root`, the machine and the time budget: `fast`, `good` or `best`.",
    metavar="NAME",
)
NAME = typer.Argument(help="Name of a sweep; `sweep list` shows them.", autocompletion=complete_name)
ADDRESS = typer.Option(
    help="Head node of a Ray cluster. `local`: this machine. `debug`: this process, one trial at a time, for a debugger."
)
TIME_BUDGET = typer.Option(help="Stop after this time, such as `90s`, `15m` or `2h`.")
STORAGE_FOLDER = typer.Option(help="Folder that holds the sweeps.", envvar=STORAGE_VARIABLE)
STORE = typer.Option(help="MLflow store: a database or a server.", envvar="MLFLOW_TRACKING_URI", show_envvar=True)
FROM_STORE = typer.Option(
    "--from",
    help="Read from this MLflow store, not from the storage folder.",
    callback=lambda uri: None if uri is None else absolute_uri(uri, "--from"),
)
EXPERIMENT_NAME = typer.Option(help="MLflow experiment.", envvar=EXPERIMENT_VARIABLE)
FOLLOW = typer.Option("--follow", help="Write the report every 20 seconds while the sweep runs: reports/NAME.html.")
PLUGIN = typer.Option(
    "--plugin",
    help="Load the techniques, data and backbones of this Python file; may be repeated.",
    metavar="FILE",
    callback=load_plugins,
)
# What Python's documentation says in other words than the help. A field with text alone is no option of a command.
FILES = "Python files with techniques, data or backbones of your own; they stay loaded in this process."
CONSOLE = "A Rich console for progress. Default: the terminal or the notebook."
SECONDS = 'The time after which the sweep ends: seconds, or text such as `"2h"`.'


@dataclass(frozen=True, kw_only=True)
class DriverOptions:
    """The options of a sweep that runs, new or continued."""

    time_budget: Annotated[str | float | None, TIME_BUDGET, SECONDS] = None
    cpus_per_trial: Annotated[float | None, typer.Option(help="CPUs per trial.")] = None
    gpus_per_trial: Annotated[
        float | None, typer.Option(help="GPUs per trial, also a fraction: with `0.25`, four trials share a GPU.")
    ] = None
    max_concurrent: Annotated[
        int | None, typer.Option(help="Maximum concurrent trials; the autoscaler sees pending ones.")
    ] = None
    accelerator: Annotated[
        str | None,
        typer.Option(
            help="What trials need of a machine: a type of GPU, such as `A100`, a resource or a label `KEY=VALUE`."
        ),
    ] = None
    address: Annotated[str | None, ADDRESS] = None
    storage: Annotated[Path | str, STORAGE_FOLDER] = STORAGE
    follow: Annotated[bool, FOLLOW] = False
    plugins: Annotated[Iterable[str | Path], PLUGIN, FILES] = ()
    console: Annotated[Console | None, CONSOLE] = None


@dataclass(frozen=True)
class SweepOptions(DriverOptions):
    """The options of a new sweep."""

    space: Annotated[str | Path | None, SPACE] = None
    overrides: Annotated[Sequence[str], OVERRIDES] = ()
    _: KW_ONLY
    preset: Annotated[str | None, PRESET] = None
    name: Annotated[str | None, typer.Option(help="Name of the sweep. Default: the space's name and a number.")] = None
    trials: Annotated[int | None, typer.Option(help="Number of trials, including the baselines.")] = None
    tracking_uri: Annotated[
        str | None, STORE, "MLflow store. Default: `MLFLOW_TRACKING_URI`, else a database in this folder."
    ] = None
    experiment: Annotated[
        str | None, EXPERIMENT_NAME, "MLflow experiment. Default: `MLFLOW_EXPERIMENT_NAME`, else `technique-search`."
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search; the recipe has its own seed.")] = 0
    warm_start: Annotated[
        Iterable[str],
        typer.Option(
            help="Begin with the best recipes of this earlier sweep; may be repeated. `all`: those of this folder."
        ),
        'Earlier sweeps, or `["all"]` for those of the storage folder; this one begins with their best recipes.',
    ] = ()
    keep_best: Annotated[int, typer.Option(min=1, help="Number of completed trials that keep their weights.")] = 5
    tags: Annotated[
        Iterable[str],
        typer.Option(
            "--tag",
            help="Tag of the sweep in MLflow, such as `team=vision`; may be repeated. `owner=ada`: its user there.",
        ),
        'Texts such as `"team=vision"`.',
    ] = ()
    or_resume: Annotated[
        bool,
        typer.Option(
            "--or-resume",
            help="Continue the sweep `--name` if it exists, for example after a scheduler restarted the job.",
        ),
    ] = False
    copy_to: Annotated[
        str | None,
        typer.Option(
            help="Copy the ledger and all checkpoints to this URI, such as s3://bucket/sweeps.", envvar="SWEEP_COPY_TO"
        ),
    ] = None

    def __post_init__(self) -> None:
        check_number("--max-concurrent", self.max_concurrent)
        check_number("--trials", self.trials)
        check_number("--seed", self.seed, least=0, most=LARGEST_SEED)
        check_number("--keep-best", self.keep_best)
        if self.or_resume and self.name is None:
            raise UserError("--or-resume: give the name of the sweep with --name, or leave --or-resume out.")
        if self.accelerator is not None and self.address in (None, "local", DEBUG):
            raise UserError(
                f"--accelerator={self.accelerator}: it chooses among the machines of a cluster. Give --address too, or "
                "leave it out."
            )


@dataclass(frozen=True)
class ResumeOptions(DriverOptions):
    """The options of a sweep that continues; without them, it keeps its settings, but for the time budget."""

    name: Annotated[str, NAME]
    trials: Annotated[
        int | None, typer.Option(help="Number of additional trials; the sampler uses the results of all earlier ones.")
    ] = None
    _: KW_ONLY
    overrides: Annotated[Sequence[str], MOVED] = ()
    tracking_uri: Annotated[
        str | None, typer.Option(help="Log to another MLflow store; the earlier trials are copied to it.")
    ] = None
    copy: Annotated[
        str | None,
        typer.Option("--from", help="Fetch the sweep from this URI, which was given as `--copy-to`.", metavar="URI"),
    ] = None

    def __post_init__(self) -> None:
        check_number("--max-concurrent", self.max_concurrent)
        check_number("--trials", self.trials)


@dataclass(frozen=True)
class SweepPlace:
    """Where a sweep is found."""

    name: Annotated[str, NAME]
    _: KW_ONLY
    storage: Annotated[Path | str, STORAGE_FOLDER] = STORAGE


@dataclass(frozen=True, kw_only=True)
class OpenOptions(SweepPlace):
    """The options of a sweep that is read, in the storage folder here, or in a store that its driver writes to."""

    tracking_uri: Annotated[str | None, FROM_STORE] = None
    plugins: Annotated[Iterable[str | Path], PLUGIN, FILES] = ()
    console: Annotated[Console | None, CONSOLE] = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions(OpenOptions):
    """The options of a sweep that is read, whose images may have moved."""

    overrides: Annotated[Sequence[str], MOVED] = ()


def takes(options: Callable[P, T]) -> Callable[[Callable[[T], R]], Callable[P, R]]:
    """Give a function of `options` their fields as its arguments, also in its signature and its documentation."""

    def decorate(function: Callable[[T], R]) -> Callable[P, R]:
        @wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            return function(options(*arguments, **named))

        fields = list(inspect.signature(options).parameters.values())
        signature = inspect.signature(function).replace(
            parameters=[field.replace(annotation=get_args(field.annotation)[0]) for field in fields]
        )
        described = (f"    {field.name}: {_describe(field.annotation)}" for field in fields)
        text, raises, errors = inspect.cleandoc(function.__doc__ or "").partition("Raises:")
        call.__doc__ = "\n".join([text.rstrip(), "", "Args:", *described, "", raises + errors])
        vars(call)["__signature__"] = signature
        return call

    return decorate


def _describe(annotation: object) -> str:
    """Return the text for Python's documentation, else the help."""
    _, *notes = get_args(annotation)
    return notes[-1] if isinstance(notes[-1], str) else notes[-1].help

"""The `sweep` command. Heavy imports happen inside the commands, so that help comes at once."""

from __future__ import annotations

import atexit
import errno
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from analysis import EXPERIMENT, TRACKING_URI
from analysis.report.formatting import mask_secrets
from search.cli.arguments import (
    LARGEST_SEED,
    absolute_paths,
    absolute_uri,
    check_database,
    check_number,
    check_share,
    check_store,
    parse_duration,
)
from search.cli.output import guard_output, report_lost_output
from search.cli.usage import UsageError, describe_usage, make_plain
from search.core.secrets import mask_logs
from search.runner.interrupt import Interrupted, leave_on_signals, listen
from training.errors import UserError

app = typer.Typer(
    help="Search which techniques are worth using to fine-tune an image classifier, and with what values.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATH=VALUE]...", help="Set a value, such as `epochs=3` or `search.trials=20`."),
]
Storage = Annotated[Path, typer.Option(help="Folder that holds the sweeps.", envvar="SWEEP_STORAGE")]
TrackingUri = Annotated[
    str, typer.Option(help="MLflow store: a database or a server.", envvar="MLFLOW_TRACKING_URI", show_envvar=True)
]
Experiment = Annotated[str, typer.Option(help="MLflow experiment.")]
Name = Annotated[str, typer.Argument(help="Name of a sweep; `sweep list` shows them.")]
TimeBudget = Annotated[str | None, typer.Option(help="Stop after this time, such as `90s`, `15m` or `2h`.")]

STORAGE = Path("sweeps")


def main() -> None:
    """Run the command; a user's mistake ends in one sentence and exit code 2."""
    guard_output()
    listen()
    mask_logs()
    code = _run_command()
    # Nothing is left to save: another signal ends the clean-up.
    leave_on_signals(code)
    # Ray, MLflow and temporary folders clean up here. To take torch's modules apart after that would cost seconds.
    atexit._run_exitfuncs()
    if report_lost_output():
        code = code or 2
    sys.stderr.flush()
    os._exit(code)


def _run_command() -> int:
    try:
        return app(standalone_mode=False) or 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except UsageError as error:
        if len(sys.argv) < 2:
            error.show()  # the help
            return 2
        return _say(describe_usage(error, sys.argv[1:]), 2)
    except typer.Abort:
        return _say("nobody answered the question, so nothing was done. Give --yes to be asked none.", 2)
    except UserError as error:
        return _say(str(error), 2)
    except Interrupted as end:
        return _say(str(end), end.exit_code)
    except Exception as error:  # noqa: BLE001 - a fault of ours, shown whole
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            return _say(f"{error.filename}: no file can have so long a name. Shorten it.", 2)
        print(mask_secrets(traceback.format_exc()), file=sys.stderr, end="")
        return 1


def _say(sentence: str, code: int) -> int:
    sys.stdout.flush()  # this is the last line
    print(f"sweep: {make_plain(mask_secrets(sentence))}", file=sys.stderr)
    return code


@app.command()
def run(
    space: Annotated[str, typer.Argument(help="A bundled space (`quick`, `card`, `full`) or a YAML file.")],
    overrides: Overrides = None,
    name: Annotated[str | None, typer.Option(help="Name of the sweep. Default: the space's name and a number.")] = None,
    trials: Annotated[int | None, typer.Option(help="Trials to run, baselines included.")] = None,
    time_budget: TimeBudget = None,
    cpus_per_trial: Annotated[float | None, typer.Option(help="CPUs of each trial.")] = None,
    gpus_per_trial: Annotated[float | None, typer.Option(help="GPUs of each trial; may be a fraction.")] = None,
    address: Annotated[str | None, typer.Option(help="Head node of a Ray cluster. Default: this machine.")] = None,
    storage: Storage = STORAGE,
    tracking_uri: TrackingUri = TRACKING_URI,
    experiment: Experiment = EXPERIMENT,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search; the recipe's seed is its own.")] = 0,
    warm_start: Annotated[
        list[str] | None, typer.Option(help="Begin with the best recipes of this earlier sweep; may be repeated.")
    ] = None,
    keep_best: Annotated[int, typer.Option(min=1, help="Completed trials that keep their weights.")] = 5,
) -> None:
    """Search a space: the baseline first, then recipes the sampler proposes, stopped early by ASHA.

    Ctrl-C ends the sweep cleanly; `sweep resume` goes on with it.
    """
    check_share("--cpus-per-trial", cpus_per_trial)
    check_share("--gpus-per-trial", gpus_per_trial, or_zero=True)
    check_number("--trials", trials)
    check_number("--seed", seed, least=0, most=LARGEST_SEED)
    check_number("--keep-best", keep_best)
    seconds = parse_duration(time_budget) if time_budget is not None else None
    from search.core.folder import new_folder, open_folder
    from search.core.names import check_name
    from search.runner.early_checks import leave_out_noise

    if name is not None:
        check_name(name, "--name")
    earlier = [open_folder(storage.absolute(), sweep, "--warm-start") for sweep in warm_start or []]
    check_store(tracking_uri, experiment)
    from search.display.tables import make_console
    from spaces.load import load_space
    from spaces.reading.known_backbones import check_backbones

    if trials is not None:
        overrides = [*(overrides or []), f"search.trials={trials}"]
    loaded = absolute_paths(load_space(space, overrides or []))
    check_backbones(loaded.recipe)
    loaded, notes = leave_out_noise(loaded)
    folder = new_folder(storage.absolute(), name, loaded.name)
    from search.cli.conclusion import conclude
    from search.core.events import WarmStart
    from search.core.record import SweepRecord
    from search.core.settings import Settings
    from search.followup.warm_start import collect_warm_starts
    from search.runner.driver import run_sweep

    opening = [WarmStart(recipes=collect_warm_starts(loaded, map(SweepRecord.open, earlier)))]
    settings = Settings(
        absolute_uri(tracking_uri), experiment, seed, keep_best, cpus_per_trial, gpus_per_trial, seconds, address
    )
    console = make_console()
    for note in notes:
        console.print(note)
    conclude(run_sweep(folder, loaded, settings, console, opening), console)


@app.command()
def resume(name: Name, storage: Storage = STORAGE, time_budget: TimeBudget = None) -> None:
    """Go on with a sweep that was interrupted: its ledger tells which trials ran and how far."""
    seconds = parse_duration(time_budget) if time_budget is not None else None
    from search.core.folder import open_folder

    folder = open_folder(storage.absolute(), name)
    from search.cli.conclusion import conclude
    from search.display.tables import make_console
    from search.runner.driver import resume_sweep

    console = make_console()
    conclude(resume_sweep(folder, console, seconds), console)


@app.command()
def extend(
    name: Name,
    trials: Annotated[int, typer.Option(help="Trials to run on top of those there are.")],
    storage: Storage = STORAGE,
    time_budget: TimeBudget = None,
) -> None:
    """Go on with a sweep beyond its budget: the sampler knows everything it learned so far."""
    check_number("--trials", trials)
    seconds = parse_duration(time_budget) if time_budget is not None else None
    from search.core.folder import open_folder

    folder = open_folder(storage.absolute(), name)
    from search.cli.conclusion import conclude
    from search.display.tables import make_console
    from search.runner.driver import resume_sweep

    console = make_console()
    conclude(resume_sweep(folder, console, seconds, more_trials=trials), console)


@app.command()
def space(
    space: Annotated[
        str | None, typer.Argument(help="A bundled space (`quick`, `card`, `full`) or a YAML file.")
    ] = None,
    overrides: Overrides = None,
    default: Annotated[bool, typer.Option("--default", help="Print the default recipe: every technique off.")] = False,
) -> None:
    """Show a space as a table: what is searched, in which domain, under which condition."""
    from spaces.load import dump_recipe, load_space
    from training.recipe import Recipe

    if default:
        print(dump_recipe(Recipe()), end="")
        return
    if space is None:
        raise UserError("Name a bundled space or a file, or ask for --default.")
    from search.display.tables import make_console, space_table
    from spaces.reading.known_backbones import check_backbones

    loaded = load_space(space, overrides or [])
    check_backbones(loaded.recipe)
    make_console().print(space_table(loaded))


@app.command()
def techniques(
    name: Annotated[str | None, typer.Argument(help="One of them. Default: all, a line each.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown: one card, or all of them, as in docs/techniques.md.")
    ] = False,
) -> None:
    """Show what techniques there are, or one's card: what it does, its fields, domain, interactions and cost."""
    from analysis.report.technique_cards import find_card, read_cards
    from analysis.report.technique_page import format_card, format_page
    from search.cli.technique_view import show_card, show_index
    from search.display.tables import make_console

    if markdown:
        print(format_card(find_card(name)) if name is not None else format_page(read_cards()), end="")
        return
    console = make_console()
    console.print(show_card(find_card(name), console.width) if name is not None else show_index(read_cards()))


@app.command()
def data(
    source: Annotated[
        str, typer.Argument(help="digits, cifar10, cifar100, a folder of images, a .csv, a recipe's file or a space.")
    ],
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("data.png"),
    check: Annotated[
        bool, typer.Option("--check", help="Read every image file, name the broken ones, and end.")
    ] = False,
    speed: Annotated[bool, typer.Option("--speed", help="Measure images a second of each backend as well.")] = False,
) -> None:
    """Show what would be fed: classes, split, what is odd, statistics, and a picture of augmented training images."""
    from search.cli.data_command import show_data
    from search.display.tables import make_console

    show_data(source, overrides or [], out, check, speed, make_console())


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe: a YAML file. Of a space, its baseline is trained.")],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder for weights and summary. Default: trained/<n>.")] = None,
    metric: Annotated[str, typer.Option(help="Score that chooses the best epoch.")] = "val_accuracy",
    cpus: Annotated[
        int | None, typer.Option(min=1, help="Default: as in the summary.json beside the recipe, else all.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: a GPU where there is one.")] = None,
    tracking_uri: TrackingUri = TRACKING_URI,
    experiment: Experiment = EXPERIMENT,
) -> None:
    """Train one recipe, without a search: the same trainer and the same logging as in a sweep."""
    check_store(tracking_uri, experiment)
    from search.display.tables import make_console
    from search.runner.early_checks import warn_of_noise
    from search.runner.single_training import train_single
    from spaces.load import load_baseline

    check_number("--cpus", cpus)
    loaded, is_space = load_baseline(recipe, overrides or [])
    console = make_console()
    for note in warn_of_noise(loaded):
        console.print(note)
    if is_space:
        console.print(f"{recipe} is a space: training its baseline, with the default in every hole.")
    train_single(
        loaded,
        Path(recipe),
        out,
        metric=metric,
        cpus=cpus,
        device=device,
        tracking_uri=absolute_uri(tracking_uri),
        experiment=experiment,
        console=console,
    )


@app.command()
def export(
    name: Name,
    out: Annotated[Path | None, typer.Option(help="Folder to write. Default: exports/NAME.")] = None,
    trial: Annotated[str | None, typer.Option(help="A trial such as 0007. Default: the best.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write model.onnx too, checked against the model.")] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Write model.int8.onnx too, and say what it costs.")] = False,
    register: Annotated[str | None, typer.Option(help="Register as this model in MLflow.", metavar="MODEL")] = None,
    optuna: Annotated[
        str | None, typer.Option(help="Write all trials as an Optuna study, as in sqlite:///study.db.", metavar="URL")
    ] = None,
    storage: Storage = STORAGE,
) -> None:
    """Write the best trial's recipe, weights, summary and card, ready for `sweep train` and `sweep predict`."""
    from search.core.folder import open_folder

    folder = open_folder(storage.absolute(), name)
    from search.core.record import SweepRecord
    from search.followup.trial_export import Extras, export_trial

    record, study = SweepRecord.open(folder), None
    if optuna is not None:
        from search.followup.optuna_study import write_study

        study = write_study(record, optuna)
    print(export_trial(record, trial, out, Extras(onnx, int8, register)))
    if study:
        print(study)


@app.command()
def predict(
    export: Annotated[Path, typer.Argument(help="A folder that `sweep export` wrote.")],
    images: Annotated[Path, typer.Argument(help="A folder of images, of whatever depth, or one image.")],
    out: Annotated[Path, typer.Option(help="The table to write.")] = Path("predictions.csv"),
) -> None:
    """Label images: a line for each, with the probability of every class."""
    from analysis.export.bundle import check_export
    from analysis.export.writable import check_file

    check_export(export)
    check_file("--out", out)
    from analysis.export.prediction import predict_images

    predicted, unreadable = predict_images(export, images, out)
    if predicted:
        print(f"Labelled {predicted} image{'s' * (predicted != 1)}: {out}.")
    if unreadable:
        if not predicted:
            out.unlink()
        raise UserError(
            f"{len(unreadable)} of the files cannot be read and are left out: {'; '.join(unreadable[:5])}. "
            "Repair or remove them."
        )


@app.command()
def confirm(
    name: Name,
    top: Annotated[
        int | None, typer.Option(help="Best recipes to train again, beside the baseline. Default: 3.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Fresh seeds of each. Default: 5.")] = None,
    final: Annotated[
        bool, typer.Option("--final", help="Then train the winner on training and validation images, and export it.")
    ] = False,
    storage: Storage = STORAGE,
) -> None:
    """Train the best recipes and the baseline on fresh seeds; then score the winner, once, on the test part."""
    from search.display.tables import make_console
    from search.followup.replication import open_searched

    source, console = open_searched(storage.absolute(), name), make_console()
    from search.cli.conclusion import conclude_replication
    from search.followup.confirmation import run_confirmation

    state, record = run_confirmation(source, top, seeds, console)
    confirmed = conclude_replication(record, state, console)
    if final:
        from search.followup.release import train_release

        train_release(confirmed, console)


@app.command()
def ablate(
    name: Name,
    seeds: Annotated[int | None, typer.Option(help="Fresh seeds of each recipe. Default: 5.")] = None,
    storage: Storage = STORAGE,
) -> None:
    """Say what each technique is worth: the winner without it and the baseline with it, on the same fresh seeds."""
    from search.display.tables import make_console
    from search.followup.replication import open_searched

    source, console = open_searched(storage.absolute(), name), make_console()
    from search.cli.conclusion import conclude_replication
    from search.followup.ablation import run_ablation

    state, record = run_ablation(source, seeds, console)
    conclude_replication(record, state, console)


@app.command(name="list")
def list_(storage: Storage = STORAGE) -> None:
    """List the sweeps in the storage folder."""
    from search.core.folder import list_folders
    from search.display.sweep_list import describe_sweeps
    from search.display.tables import make_console, sweeps_table

    console = make_console()
    rows, problems = describe_sweeps(list_folders(storage.absolute()))
    if rows or not problems:
        console.print(sweeps_table(rows))
    for problem in problems:
        console.print(f"! {problem}", markup=False)


@app.command()
def show(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, help="Trials to list.")] = 20,
    storage: Storage = STORAGE,
) -> None:
    """Show a sweep's leaderboard, each score with its standard error, and how many trials tie with the best."""
    from search.core.folder import open_folder

    folder = open_folder(storage.absolute(), name)
    from search.core.record import SweepRecord
    from search.display.tables import leaderboard, make_console

    make_console().print(leaderboard(SweepRecord.open(folder).trials, limit=limit))


@app.command()
def report(
    name: Name,
    out: Annotated[Path | None, typer.Option(help="The page to write. Default: reports/NAME.html.")] = None,
    tracking_uri: TrackingUri = TRACKING_URI,
    experiment: Experiment = EXPERIMENT,
) -> None:
    """Say what each technique was worth, what it cost and how sure that is: one HTML page, its gist here."""
    from analysis.export.writable import check_file
    from analysis.reading.find_sweep import check_sweep
    from search.core.names import check_name

    check_name(name)
    out = out or Path("reports") / f"{name}.html"
    check_file("--out", out)
    check_sweep(absolute_uri(tracking_uri), experiment, name)
    from search.cli.report_command import report_sweep
    from search.display.tables import make_console

    report_sweep(name, out, absolute_uri(tracking_uri), experiment, make_console())


@app.command()
def stop(name: Name, storage: Storage = STORAGE) -> None:
    """Ask a running sweep to end as Ctrl-C would; it can be resumed."""
    from search.core.folder import open_folder

    folder = open_folder(storage.absolute(), name)
    if not folder.is_running():
        raise UserError(f"{name} is not running.")
    folder.stop_request.touch()
    print(f"{name} ends as soon as its driver sees the request. Go on with it: sweep resume {name}")


@app.command()
def rm(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    storage: Storage = STORAGE,
) -> None:
    """Remove a sweep's folder: ledger, recipes and weights. Its runs in MLflow stay."""
    from search.core.folder import find_folder

    folder = find_folder(storage.absolute(), name)
    if folder.is_running():
        raise UserError(f"{name} is running. Stop it first: sweep stop {name}.")
    if yes or typer.confirm(f"Remove {folder.path} and all weights in it?"):
        folder.remove()
        print(f"Removed {folder.path}; its runs in MLflow are still there.")


@app.command()
def repair(name: Name, storage: Storage = STORAGE) -> None:
    """Save what can be saved of a damaged sweep: every whole line of its ledger; the damaged file stays beside it."""
    from search.core.folder import find_folder
    from search.core.repair import repair_sweep

    print(repair_sweep(find_folder(storage.absolute(), name)))


@app.command()
def ui(
    tracking_uri: TrackingUri = TRACKING_URI,
    port: Annotated[int, typer.Option(help="Port; the next free one is taken if it is in use.")] = 5000,
) -> None:
    """Open the MLflow UI on 127.0.0.1 over the store that sweeps log to."""
    from search.cli.mlflow_ui import serve_ui

    uri = absolute_uri(tracking_uri)
    check_database(uri)
    serve_ui(uri, port)

"""Commands for spaces, techniques, data and single recipes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ledger import EXPERIMENT, TRACKING_URI
from search.arguments import MOST_THREADS, absolute_uri, check_number, check_store, read_seconds
from search.cli.options import AsJson, Experiment, Overrides, Plugins, Preset, TimeBudget, TrackingUri
from search.request import read_source


def space(
    space: Annotated[
        str | None,
        typer.Argument(
            help="A bundled space (`quick`, `card`, `full`) or a YAML file; `default`: the recipe with every technique off."
        ),
    ] = None,
    overrides: Overrides = None,
    preset: Preset = None,
    time_budget: TimeBudget = None,
    plugins: Plugins = None,
) -> None:
    """Check a space and print its YAML file; with --preset, make the file for the images, the machine and the time."""
    from spaces.load import change_recipe, dump_recipe, find_space, load_space
    from training.recipe import Recipe

    if space == "default" and not Path(space).exists():
        print(dump_recipe(change_recipe(Recipe(), overrides or [])), end="")
        return
    source, preset, values = read_source(space, overrides, preset, None)
    if preset is not None:
        from search.display.terminal import make_console
        from search.presets.make import make_preset

        console = make_console(sys.stderr)  # standard output gets the file alone
        if console.is_terminal:
            console.print(f"preset {preset}: looking at the images")
        made = make_preset(preset, values, seconds=read_seconds(time_budget), say=console.print)
        print(made.text, end="")
        return
    from spaces.reading.known_backbones import check_backbones

    loaded = load_space(str(source), values)
    check_backbones(loaded.recipe)
    print(loaded.to_yaml() if values else find_space(str(source))[0].read_text(encoding="utf-8"), end="")


def techniques(
    name: Annotated[str | None, typer.Argument(help="Name of a technique. Default: list all.")] = None,
    as_json: AsJson = False,
    plugins: Plugins = None,
) -> None:
    """List all techniques, or show the card of one: what it does, its fields, domain, interactions and cost."""
    from analysis.report.technique_cards import find_card, read_cards
    from search.cli.inspect.technique_view import show_card, show_index
    from search.display.terminal import make_console

    if as_json:
        from search.cli.json_output import to_json

        print(to_json(read_cards() if name is None else find_card(name)))
        return
    console = make_console()
    console.print(show_card(find_card(name), console.width) if name is not None else show_index(read_cards()))


def data(
    source: Annotated[
        str, typer.Argument(help="digits, cifar10, cifar100, a folder of images, a .csv, a recipe's file or a space.")
    ],
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="The picture to write.")] = Path("data.png"),
    check: Annotated[
        bool, typer.Option("--check", help="Only read every image file and name the broken ones.")
    ] = False,
    as_json: AsJson = False,
    plugins: Plugins = None,
) -> None:
    """Show a recipe's data: classes, split, anomalies, statistics, and a picture of augmented training images."""
    from search.cli.inspect.data_command import show_data
    from search.cli.inspect.data_source import FilesResult
    from search.cli.json_output import to_json
    from search.display.terminal import make_console

    console = make_console()
    console.quiet = as_json
    result = show_data(source, overrides or [], out, check, console)
    if as_json:
        print(to_json(result))
    if isinstance(result, FilesResult) and result.unreadable:
        raise typer.Exit(1)


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's YAML file. For a space, its baseline is trained.")],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder for weights and summary. Default: `trained/<n>`.")] = None,
    metric: Annotated[str, typer.Option(help="Metric of the score.")] = "val_accuracy",
    score: Annotated[Literal["best", "last"], typer.Option(help="The epoch that is scored and kept.")] = "best",
    cpus: Annotated[
        int | None, typer.Option(min=1, help="CPUs. Default: as in the summary.json beside the recipe, else all.")
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, typer.Option(help="Device. Default: a GPU if there is one.")
    ] = None,
    tracking_uri: TrackingUri = TRACKING_URI,
    experiment: Experiment = EXPERIMENT,
    plugins: Plugins = None,
) -> None:
    """Train one recipe without a search, with the same trainer and the same logging as in a sweep."""
    check_store(tracking_uri, experiment)
    from search.display.terminal import make_console
    from search.runner.single_training import train_single
    from search.runner.start.prepare import warn_of_noise
    from spaces.load import load_baseline

    check_number("--cpus", cpus, most=MOST_THREADS)
    loaded, is_space = load_baseline(recipe, overrides or [])
    console = make_console()
    for note in warn_of_noise(loaded):
        console.print(note)
    if is_space:
        console.print(f"{recipe} is a space: its baseline is trained, with the default of every search parameter.")
    train_single(
        loaded,
        Path(recipe),
        out,
        metric=metric,
        score=score,
        cpus=cpus,
        device=device,
        tracking_uri=absolute_uri(tracking_uri),
        experiment=experiment,
        say=console.print,
    )

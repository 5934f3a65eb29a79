"""Commands for the results of a sweep: its report, confirmation, ablation, exports and predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import search
from analysis import EXPERIMENT, TRACKING_URI
from analysis.export.forms import Form
from analysis.formatting import plural
from search.arguments import absolute_uri, check_database
from search.cli.image_list import choose_images
from search.cli.options import (
    STORAGE,
    AsCsv,
    AsJson,
    CopyTo,
    Experiment,
    FromStore,
    Name,
    Storage,
    TrackingUri,
    With,
    check_form,
    complete_name,
)
from search.storage.copies import copy_output
from search.storage.names import check_name
from training.errors import UserError


def report(
    name: Name,
    out: Annotated[Path | None, typer.Option(help="The page to write. Default: reports/NAME.html.")] = None,
    tracking_uri: TrackingUri = TRACKING_URI,
    experiment: Experiment = EXPERIMENT,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    copy_to: CopyTo = None,
    with_: With = None,
) -> None:
    """Write the report as one HTML page: the effect and cost of each technique, with intervals. Print a summary."""
    check_form(as_json, as_csv)
    from search.records.output import apart, print_result
    from search.records.report_rows import EffectRow, describe_findings
    from search.result import choose_page, write_report

    page = choose_page(name, out)
    with apart(as_json or as_csv) as console:
        findings = write_report(name, page, absolute_uri(tracking_uri), experiment, console)
        if copy_to is not None:
            console.print(copy_output(copy_to, name, page), markup=False)
    if as_json or as_csv:
        found = describe_findings(findings, page)
        print_result(found, found.effects, EffectRow, as_json)


def confirm(
    name: Name,
    top: Annotated[
        int | None, typer.Option(help="Number of best recipes to train again, besides the baseline. Default: 3.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Fresh seeds of each recipe. Default: 5.")] = None,
    final: Annotated[
        bool, typer.Option("--final", help="Then train the winner on training and validation images, and export it.")
    ] = False,
    storage: Storage = STORAGE,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    with_: With = None,
) -> None:
    """Train the best recipes and the baseline on fresh seeds, then score the winner once on the test part."""
    check_form(as_json, as_csv)
    from search.records.output import apart, print_result

    with apart(as_json or as_csv) as console:
        found = search.open(name, storage=storage, console=console).confirm(top, seeds, final=final)
    if as_json or as_csv:
        from search.records.replication_rows import ConfirmedRow, list_confirmed

        print_result(found.to_json(), list_confirmed(found), ConfirmedRow, as_json)


def ablate(
    name: Name,
    seeds: Annotated[int | None, typer.Option(help="Fresh seeds of each recipe. Default: 5.")] = None,
    storage: Storage = STORAGE,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    with_: With = None,
) -> None:
    """Measure each technique: train the winner without it and the baseline with it, on the same fresh seeds."""
    check_form(as_json, as_csv)
    from search.records.output import apart, print_result

    with apart(as_json or as_csv) as console:
        found = search.open(name, storage=storage, console=console).ablate(seeds)
    if as_json or as_csv:
        from search.records.replication_rows import WorthRow, list_worths

        print_result(found.to_json(), list_worths(found), WorthRow, as_json)


def soup(
    name: Name,
    out: Annotated[Path | None, typer.Option(help="Folder to write. Default: exports/NAME-soup.")] = None,
    storage: Storage = STORAGE,
    as_json: AsJson = False,
    with_: With = None,
) -> None:
    """Average the weights of the best trials, as long as validation gains, and export the mean as one model."""
    from search.display.records import to_json
    from search.records.output import apart

    with apart(as_json) as console:
        found = search.open(name, storage=storage, console=console).soup(out)
    if as_json:
        print(to_json(found))


def compare(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Two or more sweeps.", autocompletion=complete_name)
    ],
    storage: Storage = STORAGE,
    tracking_uri: Annotated[
        list[str] | None,
        typer.Option(help="Read the sweeps from this MLflow store, not from the storage folder; may be repeated."),
    ] = None,
    experiment: Experiment = EXPERIMENT,
    as_json: AsJson = False,
    with_: With = None,
) -> None:
    """Compare sweeps side by side: winners, what differs in data, space and settings, curves at rungs, and effects.

    With several stores, each sweep is read from every store that has it.
    """
    from search.comparing.comparison import compare as compare_sources
    from search.comparing.print_comparison import print_comparison
    from search.comparing.sources import read_sources
    from search.display.records import to_json
    from search.display.tables.columns import make_console

    uris = [absolute_uri(uri) for uri in tracking_uri or []]
    found = compare_sources(read_sources(names, storage.absolute(), uris, experiment))
    if as_json:
        print(to_json(found))
    else:
        print_comparison(found, make_console())


def export(
    name: Name,
    out: Annotated[Path | None, typer.Option(help="Folder to write. Default: exports/NAME.")] = None,
    trial: Annotated[str | None, typer.Option(help="A trial such as 0007. Default: the best.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write model.onnx too, checked against the model.")] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="Write model.int8.onnx too, and print the loss of accuracy.")
    ] = False,
    register: Annotated[str | None, typer.Option(help="Register as this model in MLflow.", metavar="MODEL")] = None,
    optuna: Annotated[
        str | None, typer.Option(help="Write all trials as an Optuna study, such as sqlite:///study.db.", metavar="URL")
    ] = None,
    push_to_hub: Annotated[
        str | None, typer.Option(help="Upload to this repository of the Hugging Face hub.", metavar="USER/NAME")
    ] = None,
    storage: Storage = STORAGE,
    tracking_uri: FromStore = None,
    experiment: Experiment = EXPERIMENT,
    copy_to: CopyTo = None,
    with_: With = None,
) -> None:
    """Write the best trial's recipe, weights, summary and card, ready for `sweep train` and `sweep predict`."""
    if tracking_uri is not None:
        if onnx or int8 or any(value is not None for value in (trial, register, optuna, push_to_hub)):
            raise UserError(
                f"--tracking-uri: the store has the export of the best trial only. For other trials and forms, export "
                f"{name} where its storage folder is."
            )
        from analysis.export.bundle import check_out
        from search.tracking.remote import fetch_export

        out = out or Path("exports") / check_name(name)
        check_out(out)
        fetch_export(absolute_uri(tracking_uri), experiment, name, out)
        print(f"Copied the export of {name}'s best trial to {out}.")
        if copy_to is not None:
            print(copy_output(copy_to, name, out))
        return
    from search.storage.folder import open_folder

    folder = open_folder(storage.absolute(), name)
    from search.core.record import SweepRecord
    from search.followup.trial_export import Extras, export_trial

    exported = export_trial(SweepRecord.open(folder), trial, out, Extras(onnx, int8, register, optuna, push_to_hub))
    print(exported.sentence)
    if copy_to is not None:
        print(copy_output(copy_to, name, exported.folder))


def predict(
    export: Annotated[Path, typer.Argument(help="A folder that `sweep export` wrote.")],
    images: Annotated[
        Path | None,
        typer.Argument(
            help="A folder of images, also in subfolders, or one image; `-` reads paths from standard input, one a line."
        ),
    ] = None,
    list_: Annotated[Path | None, typer.Option("--list", help="A text file with a path on each line.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write. Default: predictions.csv; with --json, standard output.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write a JSON object for each image, one a line.")] = False,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Write the best K labels only. Default: all probabilities.")
    ] = None,
    model: Annotated[Form, typer.Option(help="Form of the model: its ONNX files need --onnx or --int8.")] = "torch",
    device: Annotated[str, typer.Option(help="`cpu`, `cuda`, `cuda:1`, `mps`; `auto`: a GPU if any.")] = "auto",
    batch_size: Annotated[int, typer.Option(min=1, help="Images that are predicted at once.")] = 64,
    with_: With = None,
) -> None:
    """Label images: write a line for each, with the probability of every class or of the best."""
    from analysis.export.bundle import check_export
    from analysis.export.writable import check_file

    check_export(export, model)
    out = out or (None if json else Path("predictions.csv"))
    if out is not None:
        check_file("--out", out)
    chosen = choose_images(images, list_)
    from analysis.export.prediction import Options, predict_images

    predicted, unreadable = predict_images(export, chosen, out, Options(model, device, batch_size, top_k, json))
    if predicted and out is not None:
        print(f"Labelled {plural(predicted, 'image')}: {out}.")
    if unreadable:
        if not predicted and out is not None:
            out.unlink()
        raise UserError(
            f"{len(unreadable)} of the files cannot be read and are left out: {'; '.join(unreadable[:5])}. "
            "Repair or remove them."
        )


def ui(
    tracking_uri: TrackingUri = TRACKING_URI,
    port: Annotated[int, typer.Option(help="Port; if it is in use, the next free one is taken.")] = 5000,
) -> None:
    """Open the MLflow UI on 127.0.0.1 for the store that sweeps log to."""
    from search.cli.looking.mlflow_ui import serve_ui

    uri = absolute_uri(tracking_uri)
    check_database(uri)
    serve_ui(uri, port)

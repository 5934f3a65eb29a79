"""Commands for the results of a sweep: its report, confirmation, ablation, exports and predictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import search
from search.cli.options import AsJson, name_latest, open_sweep, options_of
from search.runner.interrupt import until_ctrl_c
from search.sweep_options import FOLLOW, OpenOptions, ReadOptions, complete_trial
from training.errors import UserError

if TYPE_CHECKING:
    from ledger.record import SweepRecord

Seeds = Annotated[int | None, typer.Option(help="Number of fresh seeds of each recipe. Default: 5.")]
SeedsBudget = Annotated[
    str | None,
    typer.Option("--time-budget", help="Use fewer seeds, as many as are likely to fit into a time such as `30m`."),
]
HERE = ("name", "overrides", "storage", "plugins")  # of a sweep that is trained further, which needs its folder


@options_of(ReadOptions, name=None)
def report(
    *,
    out: Annotated[Path | None, typer.Option(help="The page to write. Default: reports/NAME.html.")] = None,
    follow: Annotated[bool, FOLLOW] = False,
    as_json: AsJson = False,
    **place: Any,
) -> None:
    """Write the report as one HTML page: the effect and cost of each technique, with intervals. Print a summary.

    Without a name it is that of the latest sweep.
    """
    from search.cli.json_output import apart, describe_findings, to_json
    from search.result import choose_page

    with apart(as_json) as console:
        place["name"] = name_latest(place, console)
        record = search.open(**place, console=console).record
        page = choose_page(record.name, out, record.header.id)
        if follow:
            from search.display.sweep_display import SweepDisplay
            from search.evaluation.follow import follow_to_end, write_last

            def reread() -> SweepRecord:
                return search.open(**place, console=console).record

            with until_ctrl_c():
                follow_to_end(record, reread, page, SweepDisplay(console).line)
            record = reread()
        from search.display.results import report_sweep

        try:
            findings = report_sweep(record, page, console, place["tracking_uri"])
        except UserError:
            if follow:
                write_last(record, page)
            raise
    if as_json:
        print(to_json(describe_findings(findings, page)))


def _run(place: dict[str, Any], as_json: bool, method: Callable[[search.Result], object]) -> None:
    """Open a sweep and call one of its methods. For programs, print what it returns as JSON, apart from its messages."""
    from search.cli.json_output import apart, to_json

    with apart(as_json) as console:
        result = method(search.open(**place, console=console))
    if as_json:
        print(to_json(result))


@options_of(ReadOptions, only=HERE)
def confirm(
    *,
    top: Annotated[
        int | None, typer.Option(help="Number of best recipes to train again, besides the baseline. Default: 3.")
    ] = None,
    seeds: Seeds = None,
    time_budget: SeedsBudget = None,
    final: Annotated[
        bool, typer.Option("--final", help="Then train the winner on training and validation images, and export it.")
    ] = False,
    as_json: AsJson = False,
    **place: Any,
) -> None:
    """Train the best recipes and the baseline on fresh seeds, then score the winner once on the test split."""
    _run(place, as_json, lambda sweep: sweep.confirm(top, seeds, time_budget=time_budget, final=final).to_json())


@options_of(ReadOptions, only=HERE)
def ablate(*, seeds: Seeds = None, time_budget: SeedsBudget = None, as_json: AsJson = False, **place: Any) -> None:
    """Measure each technique: train the winner without it and the baseline with it, on the same fresh seeds."""
    _run(place, as_json, lambda sweep: sweep.ablate(seeds, time_budget=time_budget).to_json())


@options_of(OpenOptions, only=HERE)
def export(
    *,
    out: Annotated[Path | None, typer.Option(help="Folder to write. Default: exports/NAME.")] = None,
    trial: Annotated[
        str | None, typer.Option(help="A trial such as 0007. Default: the best.", autocompletion=complete_trial)
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write model.onnx too, checked against the model.")] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="Write model.int8.onnx too, and print the loss of accuracy.")
    ] = False,
    register: Annotated[str | None, typer.Option(help="Register as this model in MLflow.", metavar="MODEL")] = None,
    **place: Any,
) -> None:
    """Write the best trial's recipe, weights, summary and card, ready for `sweep train` and `sweep predict`."""
    from search.evaluation.trial_export import Extras, export_trial

    exported = export_trial(open_sweep(place["name"], place["storage"]), trial, out, Extras(onnx, int8, register))
    print(exported.sentence)

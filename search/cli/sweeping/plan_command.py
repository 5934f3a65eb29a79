"""The command that plans a sweep."""

from __future__ import annotations

from typing import Annotated

import typer

from search.cli.options import (
    STORAGE,
    AsCsv,
    AsJson,
    Overrides,
    Preset,
    Storage,
    TimeBudget,
    With,
    check_form,
    part_space,
)


def plan(
    space: Annotated[
        str | None, typer.Argument(help="A bundled space (`quick`, `card`, `full`) or a YAML file; none with --preset.")
    ] = None,
    overrides: Overrides = None,
    preset: Preset = None,
    time_budget: TimeBudget = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials, including the baselines.")] = None,
    cpus_per_trial: Annotated[float | None, typer.Option(help="CPUs of each trial.")] = None,
    gpus_per_trial: Annotated[float | None, typer.Option(help="GPUs of each trial; may be a fraction.")] = None,
    address: Annotated[str | None, typer.Option(help="Head node of a Ray cluster. Default: this machine.")] = None,
    max_concurrent: Annotated[int | None, typer.Option(help="Trials at the same time.")] = None,
    accelerator: Annotated[str | None, typer.Option(help="Type of GPU that trials need, such as `A100`.")] = None,
    price_per_gpu_hour: Annotated[float | None, typer.Option(help="Also print the price of the sweep.")] = None,
    storage: Storage = STORAGE,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    with_: With = None,
) -> None:
    """Say what a sweep will need: time, memory, trials at the same time, and money; some recipes are trained briefly.

    A few batches are measured of the baseline, of a recipe for each other choice that decides the cost, and of some random
    recipes, which show the error of the plan. `sweep run` with the same space and data, and its report, use the plan.
    """
    import search
    from search.planning.sweep_plan import RecipeRow
    from search.planning.view import describe_plan
    from search.records.output import apart, print_result

    check_form(as_json, as_csv)
    space, values = part_space(space, overrides, preset)
    with apart(as_json or as_csv) as console:
        found = search.plan(
            space,
            values,
            preset=preset,
            time_budget=time_budget,
            price_per_gpu_hour=price_per_gpu_hour,
            console=console,
            trials=trials,
            cpus_per_trial=cpus_per_trial,
            gpus_per_trial=gpus_per_trial,
            address=address,
            max_concurrent=max_concurrent,
            accelerator=accelerator,
            storage=storage,
        )
    if as_json or as_csv:
        print_result(found, found.recipes, RecipeRow, as_json)
    else:
        console.print(describe_plan(found))

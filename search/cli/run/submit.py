"""The command that runs a sweep as a job of a Ray cluster."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger import OWNER
from ledger.names import check_name
from ledger.secrets import has_secret
from search.arguments import change_places, check_address, check_experiment, parse_tags, take_in_files
from search.cli.options import list_options
from search.request import read_source
from training.errors import UserError
from training.process.user import name_user

if TYPE_CHECKING:
    from spaces.space import Space

NOT_SENT = ("space", "overrides", "name", "address", "or_resume", "publish", "plugins")  # `submit` sets these itself


def submit(
    context: typer.Context,
    address: Annotated[str, typer.Option(help="Jobs address of the cluster's head node, such as http://head:8265.")],
    follow: Annotated[bool, typer.Option("--follow", help="Show the sweep's output until it ends.")] = False,
) -> None:
    """Run a sweep as a job of a Ray cluster; its driver runs there, so this machine may disconnect.

    It takes a space, values to set, and every option of `sweep run`. The program and the space travel with the job;
    images, weights and the storage folder are paths of the cluster. If the job is started again, the sweep continues.
    """
    run = _read_run_options(context)
    given: dict[str, Any] = run.params
    space = _load(given)
    name = given["name"] or f"{space.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    check_name(name, "--name")
    from search.runner.start.submission import Job, follow_job, submit_job

    has_owner = OWNER in parse_tags(given["tags"] or [])
    owner = [] if has_owner else ["--tag", f"{OWNER}={name_user()}"]
    job = Job(name, space, [*list_options(run, NOT_SENT), *owner])
    job_id = submit_job(address, job)
    if given["check"]:
        print(f"Submitted the checks of sweep {name} as job {job_id}. It trains nothing.")
    else:
        watch = f"sweep show {name} --from {given['tracking_uri']}"
        print(f"Submitted sweep {name} as job {job_id}. Watch it: {watch}")
    print(f"Its output: ray job logs --follow {job_id} --address {address}")
    if follow and not follow_job(address, job_id):
        raise typer.Exit(1)


def _read_run_options(context: typer.Context) -> typer.Context:
    """Parse the arguments as those of `sweep run`.

    Raises:
        UsageError: `sweep run` would refuse them.
    """
    parent: Any = context.parent
    command = parent.command.commands["run"]
    parsed: typer.Context = command.make_context("submit", list(context.args), parent=parent)
    return parsed


def _load(given: dict[str, Any]) -> Space:
    """Read the space here, so that a mistake in it is found before anything is sent."""
    source, overrides = read_source(given["space"], given["overrides"], given["preset"], "a cluster")
    storage, uri = given["storage"], given["tracking_uri"]
    if not Path(storage).is_absolute():
        raise UserError(
            f"--storage={storage}: this path has no meaning on the cluster. Give the absolute path of a folder that every "
            "node has, such as /shared/sweeps."
        )
    if uri.startswith("sqlite:///") and not uri.startswith("sqlite:////"):
        raise UserError(
            f"--tracking-uri={uri}: this path has no meaning on the cluster. Give an MLflow server, such as "
            "http://mlflow-host:5000, that the cluster and this machine reach."
        )
    check_experiment(given["experiment"])
    check_address(uri)
    if has_secret(uri):
        raise UserError(
            "MLFLOW_TRACKING_URI: a password in it would be readable on the cluster's dashboard. Leave it out here, and set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD on the head node."
        )
    from spaces.load import load_space
    from spaces.reading.known_backbones import check_backbones

    space = take_in_files(load_space(str(source), overrides))
    check_backbones(space.recipe)
    change_places(space, _check_place)
    return space


def _check_place(field: str, place: str) -> str:
    if not Path(place).is_absolute():
        raise UserError(
            f"{field}={place}: this path has no meaning on the cluster. Give the absolute path that every node has."
        )
    return place

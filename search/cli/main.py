"""The `sweep` command: its start and its end. Heavy imports are inside the commands, so that the help is fast."""

from __future__ import annotations

import atexit
import errno
import os
import platform
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from importlib.metadata import version
from typing import Annotated, Any

import typer

from analysis.formatting import mask_secrets
from search.cli import ingredients, results, serve_command
from search.cli.looking import dashboard_command
from search.cli.output import guard_output, report_lost_output
from search.cli.sweeping import plan_command, running, standby, submit, sweeps
from search.cli.usage import UsageError, describe_usage, make_plain
from search.runner.interrupt import Interrupted, leave_on_signals, listen
from search.storage.secrets import mask_logs
from training.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

# Help lists them in this order.
COMMANDS = (
    sweeps.run,
    plan_command.plan,
    sweeps.resume,
    sweeps.extend,
    submit.submit,
    ingredients.space,
    ingredients.techniques,
    ingredients.data,
    ingredients.train,
    results.export,
    results.predict,
    serve_command.serve,
    results.confirm,
    results.ablate,
    results.soup,
    results.compare,
    sweeps.list_,
    sweeps.show,
    dashboard_command.dashboard,
    results.report,
    running.stop,
    running.pause,
    running.unpause,
    running.add,
    running.note,
    standby.up,
    standby.down,
    sweeps.rm,
    sweeps.repair,
    results.ui,
)


def _print_version(is_asked: bool) -> None:
    """Print the versions that a report of a fault needs, without importing the libraries."""
    if is_asked:
        libraries = ("ray", "torch", "torchvision", "lightning", "timm", "optuna", "mlflow")
        others = ", ".join(f"{name} {version(name)}" for name in libraries)
        print(f"sweep {version('technique-search')} (Python {platform.python_version()}, {others})")
        raise typer.Exit


def _keep_signals(command: Callable[..., None]) -> Callable[..., None]:
    """Raise `Interrupted` where the Python API raises KeyboardInterrupt: Typer would turn that into a silent exit 130."""

    @wraps(command)
    def call(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as end:
            if isinstance(end.__cause__, Interrupted):
                raise end.__cause__ from None
            raise

    return call


# `submit` passes on what it does not know to `run`.
FORWARDING: Any = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "options_metavar": "SPACE [PATH=VALUE]... [OPTIONS]",
}


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print versions.")
    ] = False,
) -> None:
    """Search the techniques and values that are best for fine-tuning an image classifier."""


for command in COMMANDS:
    more = FORWARDING if command is submit.submit else {}
    app.command(command.__name__.rstrip("_"), **more)(_keep_signals(command))


def main() -> None:
    """Run the command; a user's mistake ends in one sentence and exit code 2."""
    guard_output()
    listen()
    mask_logs()
    code = _run_command()
    # Everything is saved, so another signal may end the clean-up.
    leave_on_signals(code)
    # Ray, MLflow and temporary folders clean up here. Python's own clean-up of torch's modules would then take seconds.
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
        return _say("the question was not answered, so nothing was done. Give --yes to skip the question.", 2)
    except UserError as error:
        return _say(str(error), 2)
    except Interrupted as end:
        return _say(str(end), end.exit_code)
    except Exception as error:  # noqa: BLE001 - a fault of ours, shown whole
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            return _say(f"{error.filename}: the name of this file is too long. Shorten it.", 2)
        print(mask_secrets(traceback.format_exc()), file=sys.stderr, end="")
        return 1


def _say(sentence: str, code: int) -> int:
    sys.stdout.flush()  # this is the last line
    print(f"sweep: {make_plain(mask_secrets(sentence))}", file=sys.stderr)
    return code

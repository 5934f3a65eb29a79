"""The `sweep` command: its start and its end. Heavy imports are inside the commands, so that the help is fast."""

from __future__ import annotations

import atexit
import errno
import os
import platform
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.metadata import version
from typing import Annotated, Any

import typer

from ledger.formatting import mask_secrets, remove_controls
from ledger.secrets import mask_logs
from search.cli import predict, recipes, results
from search.cli.inspect import mlflow_ui, sweeps_command
from search.cli.output import guard_output, make_output_plain, report_lost_output
from search.cli.run import sweeps
from search.runner.interrupt import Interrupted, leave_on_signals, listen
from training.contract.own_parts import locate_fault
from training.errors import UserError, describe_error, plain_reason
from training.process.user import complete_user

# Typer exports only a subclass of this class, which is the base of all errors about options and arguments.
UsageError: Any = typer.BadParameter.__mro__[1]
SHOWN = 80  # characters at each end of a very long word
# Failures that no program can avoid, wherever they come.
OUTSIDE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ENOSPC, errno.EDQUOT)

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False)

# Help lists them in these groups, in this order.
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Search": (sweeps.run, sweeps.resume, recipes.space, recipes.techniques, recipes.data, recipes.train),
    "Results": (
        sweeps_command.list_,
        sweeps_command.show,
        results.report,
        results.confirm,
        results.ablate,
        results.export,
        predict.predict,
        predict.evaluate,
        mlflow_ui.ui,
    ),
    "A running sweep": (sweeps.stop, sweeps.add),
    "Housekeeping": (sweeps.rm,),
}


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
        make_output_plain()
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as end:
            if isinstance(end.__cause__, Interrupted):
                raise end.__cause__ from None
            raise

    return call


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print versions.")
    ] = False,
) -> None:
    """Search the techniques and values that are best for fine-tuning an image classifier."""


for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(command.__name__.rstrip("_"), rich_help_panel=panel)(_keep_signals(command))


def main() -> None:
    """Run the command; a user's mistake ends in one sentence and exit code 2."""
    complete_user()
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
        if place := locate_fault(end):
            return _say_fault(end, place)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except UsageError as error:
        if len(sys.argv) < 2:
            error.show()  # the help
            return 2
        return _say(_describe_usage(error, sys.argv[1:]), 2)
    except typer.Abort as error:
        if isinstance(error.__cause__, EOFError):  # of a library that read a file: a question has no cause
            return _show_fault(error.__cause__)
        return _say("the question was not answered, so nothing was done. Give --yes to skip the question.", 2)
    except UserError as error:
        return _say(str(error), error.exit_code)
    except Interrupted as end:
        return _say(str(end), end.exit_code)
    except Exception as error:  # noqa: BLE001 - a fault of ours, shown whole
        if isinstance(error, OSError) and error.errno in OUTSIDE:
            reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            way = "Shorten it" if error.errno == errno.ENAMETOOLONG else "Mend this, then give the command again"
            return _say(f"{reason}. {way}.", 2)
        cause: BaseException | None = error
        while cause and not isinstance(cause, Interrupted):  # libraries made it of the signal while they were imported
            cause = cause.__context__
        if isinstance(cause, Interrupted):
            return _say(str(cause), cause.exit_code)
        return _show_fault(error)


def _show_fault(error: Exception) -> int:
    if place := locate_fault(error):
        return _say_fault(error, place)
    print(remove_controls(mask_secrets("".join(traceback.format_exception(error)))), file=sys.stderr, end="")
    return 1


def _say_fault(error: BaseException, place: str) -> int:
    return _say(f"{place}: it raised {describe_error(error)}. Correct the file.", 2)


def _say(sentence: str, code: int) -> int:
    sys.stdout.flush()  # this is the last line
    print(f"sweep: {_make_plain(mask_secrets(sentence))}", file=sys.stderr)
    return code


def _describe_usage(error: Any, words: Sequence[str]) -> str:
    """Return a sentence with the option or argument, its value, the reason and the help; `words` follow `sweep`."""
    command = error.ctx.command_path if error.ctx else f"sweep {words[0]}"
    reason = error.format_message().rstrip(".")
    if type(error) is typer.BadParameter and error.param and (given := _find_value(error.param, words)):
        reason = f"{given}: {plain_reason(error.message).rstrip('.')}"
    return f"{reason}{'' if reason.endswith('?') else '.'} See {command} --help."


def _make_plain(sentence: str) -> str:
    """Return the sentence on one line, with very long words shortened and control characters as codes."""
    plain = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in sentence)
    return re.sub(rf"(\S{{{SHOWN}}})\S{{{SHOWN},}}(\S{{{SHOWN}}})", r"\1…\2", plain)


def _find_value(param: Any, words: Sequence[str]) -> str | None:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in param.opts:
            return f"{name}={value if equals else following}"
    variable = param.envvar if isinstance(param.envvar, str) else ""
    return f"{variable}={os.environ[variable]}" if variable in os.environ else None

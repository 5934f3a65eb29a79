"""Check the arguments of a user, and make paths and addresses absolute."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analysis.reading.store import make_absolute, sqlite_file
from ledger.formatting import mask_secrets
from ledger.secrets import refuse_secret
from training.errors import UserError
from training.process.optional import require_driver
from training.process.writable import cannot_write, check_file

if TYPE_CHECKING:
    from spaces.parameters.domains import Tree
    from spaces.space import Space

# Set by `--verbose`, also for workers: the driver prints the logs of trials and of Ray.
VERBOSE = "TECHNIQUE_SEARCH_VERBOSE"
STORES = r"(https?|(postgresql|mysql|mssql)(\+\w+)?)://.|sqlite:///.|databricks"
DATABASE = b"SQLite format 3\0"  # the first bytes of every SQLite file
NO_FILE = ("none", "pretrained", "letters")  # values of backbone.weights that are not files
LONGEST_SECONDS = 366 * 24 * 3600
MOST_OF_ANYTHING = 1_000_000
LEAST_SHARE = 0.001  # of a CPU or a GPU; Ray counts in ten-thousandths
MOST_THREADS = 1024  # torch aborts the process when the system refuses it more
LARGEST_SEED = 2**63 - 1


def parse_duration(text: str) -> float:
    """Return the seconds of `90s`, `15m`, `1.5h` or `1h30m`; a number alone counts seconds."""
    number = r"([0-9]{1,99}(?:\.[0-9]{1,99})?)"
    match = re.fullmatch(f"(?:{number}h)?(?:{number}m)?(?:{number}s)?|{number}", text)
    parts = zip(match.groups(), (3600, 60, 1, 1), strict=True) if match else ()
    seconds = sum(float(part or 0) * unit for part, unit in parts)
    if match and text and not seconds:
        raise UserError(f"--time-budget={text}: give more than 0 s, such as 90s, 15m, 2h or 1h30m.")
    if not seconds:
        raise UserError(f"--time-budget={text}: this is not a time. Write it as 90s, 15m, 2h or 1h30m.")
    if seconds > LONGEST_SECONDS:
        raise UserError(f"--time-budget={text}: longer than a year. Give less, or leave it out to run all trials.")
    return seconds


def parse_tags(texts: Iterable[str]) -> dict[str, str]:
    """Return the names and values of tags such as `team=vision`."""
    tags = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and value and value.isprintable() and re.fullmatch(r"[\w.-]{1,200}", name)):
            raise UserError(f"--tag={text}: write it as name=value, such as team=vision.")
        tags[name] = value
    return tags


def absolute_uri(uri: str, option: str = "--tracking-uri") -> str:
    """Check an address, and make the path of a database file absolute, because processes have other working folders."""
    check_address(uri, option)
    return make_absolute(refuse_secret(uri, option))


def check_store(uri: str, experiment: str) -> None:
    """Check an MLflow store as far as possible without importing MLflow."""
    if not experiment.strip():
        raise UserError(f"--experiment={experiment!r}: it needs a name. Leave the option out for the default.")
    if not experiment.isprintable():
        raise UserError(f"--experiment={experiment!a}: the name of an experiment is one line of text. Rename it.")
    check_address(uri)
    if file := sqlite_file(uri):
        check_file("--tracking-uri", file)
        check_database(uri)


def check_address(uri: str, option: str = "--tracking-uri") -> None:
    """Refuse an address that MLflow cannot use."""
    shown = f"{option}={mask_secrets(uri)}"
    if not re.match(STORES, uri):
        raise UserError(f"{shown}: this is not an MLflow store. Write it as sqlite:///mlflow.db or http://host:5000.")
    require_driver(shown, uri)
    if uri.startswith(("http", "sqlite", "databricks")):
        return
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except ImportError as error:
        raise UserError(
            f"{shown}: this needs the Python package {error.name}. Install it, or use PostgreSQL."
        ) from None
    except ArgumentError as error:
        raise UserError(f"{shown}: this is not the address of a database ({error}).") from None


def check_database(uri: str) -> None:
    """Refuse an existing file that is not an SQLite database. Other stores are not checked."""
    file = sqlite_file(uri)
    if file is None or not file.exists():
        return
    is_database = False
    try:
        if file.is_file():
            with file.open("rb") as opened:
                is_database = DATABASE.startswith(opened.read(len(DATABASE)))
    except OSError as error:
        raise cannot_write("--tracking-uri", file, error) from None
    if not is_database:
        raise UserError(f"--tracking-uri={uri}: this is not an SQLite database. Name another file.")


def absolute_paths(space: Space) -> Space:
    """Make the paths in a space absolute, and copy the content of files into it, so that it is valid everywhere."""
    from training.recipe import Recipe

    recipe = dict(space.recipe)
    for part in recipe:
        for name in getattr(Recipe.model_fields[part].default, "places", ()):
            recipe[part] = _expand_field(recipe[part], name)
    if "augmentation" in recipe:  # a resume must not need the file of a policy, or read a changed one
        recipe["augmentation"] = _take_in_policy(recipe["augmentation"])
    return replace(space, recipe=recipe)


def _expand_field(part: Any, name: str) -> Tree:
    if isinstance(part, dict):
        return {**part, name: _expand_paths(part[name])} if part.get(name) else part
    return replace(part, options=tuple(_expand_field(option, name) for option in part.options))


def _expand_paths(value: Any) -> Tree:
    from spaces.parameters.domains import Choice

    if isinstance(value, str):
        return value if value in NO_FILE or "://" in value else os.path.abspath(os.path.expanduser(value))
    if isinstance(value, Choice):
        return replace(value, options=tuple(map(_expand_paths, value.options)))
    return value  # null: no place


def _take_in_policy(augmentation: Any) -> Tree:
    from spaces.parameters.domains import Choice

    if isinstance(augmentation, Choice):
        return replace(augmentation, options=tuple(map(_take_in_policy, augmentation.options)))
    path = augmentation.get("path")
    if not isinstance(path, str) or augmentation.get("pipeline"):
        return augmentation
    from training.techniques.data.augmentation_file import read_pipeline

    return {**augmentation, "pipeline": read_pipeline(path)}


def check_number(option: str, value: float | None, *, least: float = 1, most: float = MOST_OF_ANYTHING) -> None:
    """Refuse a value that is not a number from `least` to `most`. None, for an option that was not given, is accepted."""
    if value is not None and not least <= value <= most:  # comparisons with nan are false
        raise UserError(f"{option}={value}: give a number from {least:g} to {most:,}.")


def check_share(option: str, value: float | None, *, or_zero: bool = False) -> None:
    """Refuse CPUs or GPUs of a trial that are not a finite number above 0. None, for no option, is accepted."""
    if value is None or LEAST_SHARE <= value <= MOST_OF_ANYTHING or (value == 0 and or_zero):
        return
    zero = "0, or " if or_zero else ""
    raise UserError(f"{option}={value:g}: give {zero}a number from {LEAST_SHARE:g} to {MOST_OF_ANYTHING:,}.")


def read_seconds(time_budget: str | float | None) -> float | None:
    """Return a time budget in seconds, which may be text such as `2h`."""
    if isinstance(time_budget, str):
        return parse_duration(time_budget)
    check_number("--time-budget", time_budget)
    return time_budget

"""Imported packages are declared, the locks have names, versions and hashes alone, and the image has every room."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])


def normalise(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement):
    return normalise(re.match(r"[\w.-]+", requirement)[0])


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def pins(name):
    return set(re.findall(r"^[\w.-]+==[^\s;]+", (ROOT / name).read_text(), flags=re.MULTILINE))


def test_every_imported_package_is_declared():
    project = PROJECT["project"]
    declared = {
        name_of(one) for group in (project["dependencies"], *project["optional-dependencies"].values()) for one in group
    }
    distributions = packages_distributions()
    roots = {name.split(".")[0] for room in ROOMS for path in (ROOT / room).rglob("*.py") for name in imported(path)}
    others = roots - ROOMS - set(sys.stdlib_module_names) - {"pydantic_core"}  # pydantic needs one version of it
    found = {root: {normalise(name) for name in distributions.get(root, [root])} for root in others}
    assert {root: names for root, names in found.items() if not names & declared} == {}


def test_the_locks_have_no_address_and_agree():
    locks = ("requirements.lock", "requirements-dev.lock")
    assert [name for name in locks if re.search(r"://|file:| @ |--(extra-)?index", (ROOT / name).read_text())] == []
    assert pins("requirements.lock") <= pins("requirements-dev.lock")


def test_the_docker_image_has_every_room():
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    steps = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    assert [room for room in ROOMS if f"COPY {room} {room}" not in steps or f"!{room}" not in ignored] == []

"""The walls of the house, computed from the sources: circles of imports, and the longest chain of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

HOME = Path(__file__).parents[1]
ROOMS = ("search", "analysis", "ledger", "spaces", "training")

# Whoever makes one of these smaller writes the new number here. None of them grows.
LONGEST_CHAIN = 16
LATE_CIRCLES = 1
VIEW = "training.contract.view"

Graph = dict[str, set[str]]


@cache
def sources() -> dict[str, ast.Module]:
    files = [file for room in ROOMS for file in (HOME / room).rglob("*.py") if file.stat().st_size]
    return {name_of(file): ast.parse(file.read_text()) for file in files}


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(HOME).with_suffix("").parts).removesuffix(".__init__")


def read_imports(*, late: bool) -> Graph:
    """Each module and the modules that it imports; `late` adds imports in functions and those for types alone."""
    return {
        name: {target for node in walk(tree, late=late) for target in targets_of(node)} - {name}
        for name, tree in sources().items()
    }


def walk(node: ast.AST, *, late: bool) -> Iterator[ast.AST]:
    if not late and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    if not late and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from walk(child, late=late)


def targets_of(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    else:
        return []
    return [name for name in names if name in sources()]


def find_circles(graph: Graph) -> list[list[str]]:
    """The groups of modules that import each other (Tarjan 1972)."""
    found: list[list[str]] = []
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in index:
                visit(target)
            if target in stack:
                low[name] = min(low[name], low[target])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[-len(group) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def find_longest_chain(graph: Graph) -> list[str]:
    """One of the longest; the graph has no circles."""

    @cache
    def chain(name: str) -> tuple[str, ...]:
        return (name, *max((chain(target) for target in sorted(graph[name])), key=len, default=()))

    return list(max((chain(name) for name in sorted(graph)), key=len))


def test_no_module_imports_itself_through_others():
    assert find_circles(read_imports(late=False)) == []


def test_circles_through_imports_in_functions_and_for_types_only_become_fewer():
    graph = read_imports(late=True)
    graph[VIEW] = set()  # it names the types of all fields for mypy, and imports nothing when it runs
    assert len(found := find_circles(graph)) == LATE_CIRCLES, found


def test_the_longest_chain_of_imports_only_becomes_shorter():
    assert len(found := find_longest_chain(read_imports(late=False))) == LONGEST_CHAIN, found


def test_a_chain_and_circles_are_found_where_they_are():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": set()}
    assert find_circles(graph) == [["b", "c"]]
    assert find_longest_chain({**graph, "c": set()}) == ["d", "a", "b", "c"]


def test_no_public_name_of_search_has_two_meanings():
    """Commands have the names of the functions that they call, and each program has a `main`."""
    places: dict[str, list[str]] = {}
    for name, tree in sources().items():
        for node in tree.body if name.startswith("search.") and not name.startswith("search.cli.") else ():
            if (
                isinstance(node, ast.FunctionDef | ast.ClassDef)
                and not node.name.startswith("_")
                and node.name != "main"
            ):
                places.setdefault(node.name, []).append(name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}

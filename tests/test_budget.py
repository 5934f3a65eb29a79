"""The size of the product, which may only fall: who needs more first finds as much to remove, then lowers the number."""

import ast
from pathlib import Path

import typer

from search.cli.main import app

ROOT = Path(__file__).parents[1]
FILES = [
    path for room in ("training", "spaces", "ledger", "analysis", "search") for path in (ROOT / room).rglob("*.py")
]
LINES, FULL_FILES, COMMANDS, OPTIONS, ANY, LONGEST_FUNCTION = 35_786, 297, 18, 46, 93, 60


def test_the_product_has_no_more_lines_and_files_than_before():
    texts = [path.read_text() for path in FILES]
    assert sum(text.count("\n") for text in texts) <= LINES
    assert sum(bool(text) for text in texts) <= FULL_FILES


def test_there_are_no_more_commands_and_options_than_before():
    commands = typer.main.get_command(app).commands
    options = {
        option.opts[0] for one in commands.values() for option in one.params if option.param_type_name == "option"
    }
    assert len(commands) <= COMMANDS
    assert len(options) <= OPTIONS


def test_no_function_is_longer_than_before():
    nodes = [node for path in FILES for node in ast.walk(ast.parse(path.read_text()))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert max(node.end_lineno - node.lineno + 1 for node in functions) <= LONGEST_FUNCTION


def test_no_more_places_take_any_type_than_before():
    names = [node.id for path in FILES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)]
    assert names.count("Any") <= ANY

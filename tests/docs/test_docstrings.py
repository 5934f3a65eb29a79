"""One rule for docstrings: every public function may raise `UserError`, so that they name other errors only."""

import ast
from pathlib import Path

PRODUCT = Path(__file__).parents[2]
ROOMS = ("training", "spaces", "ledger", "analysis", "search")


def test_no_docstring_lists_the_error_that_every_function_may_raise():
    listed = []
    for path in (path for room in ROOMS for path in (PRODUCT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                text = ast.get_docstring(node) or ""
                if "    UserError:" in text.partition("Raises:")[2]:
                    listed.append(f"{path.relative_to(PRODUCT)}: {node.name}")
    assert listed == []

"""The documentation as a site: `make docs-site`. It needs no network."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from sphinx.util.typing import stringify_annotation

sys.path.insert(0, str(Path(__file__).parent))

project = "Technique Search"
author = "Technique Search"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = project
smartquotes = False  # `--preset` keeps its two hyphens

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
napoleon_google_docstring = True

myst_heading_anchors = 3


def setup(app: Any) -> None:
    app.connect("builder-inited", write_commands)
    app.connect("builder-inited", write_techniques)
    app.connect("autodoc-process-docstring", describe_fields)
    app.connect("autodoc-process-signature", hide_signature)


def write_commands(_app: Any) -> None:
    page = Path(__file__).parents[1] / "build" / "commands.md"
    page.parent.mkdir(exist_ok=True)
    command = ["-m", "typer", "search.cli.main", "utils", "docs", "--name", "sweep", "--output", str(page)]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)


def write_techniques(_app: Any) -> None:
    from technique_pages import write_pages

    write_pages()


def describe_fields(_app: Any, _kind: str, _name: str, documented: Any, _options: Any, lines: list[str]) -> None:
    for name, field in getattr(documented, "model_fields", {}).items():
        if name != "time":
            annotation = stringify_annotation(field.annotation, "smart")
            lines += [f":param {name}: {field.description or ''}", f":type {name}: {annotation}"]


def hide_signature(_app: Any, _kind: str, _name: str, documented: Any, *_: Any) -> tuple[str, str] | None:
    return ("", "") if hasattr(documented, "model_fields") else None

"""Every notebook runs from top to bottom on a sweep, and is stored without outputs."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "analysis" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, storage, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    assert [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and not (not cell.outputs and cell.execution_count is None)
    ] == []
    parameters = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    given = {"name": "made-up-1", "names": ["made-up-1", "made-up-2"], "storage": str(storage)}
    names = [line.partition(" = ")[0] for line in parameters.source.splitlines()]
    parameters.source = "\n".join(f"{name} = {given[name]!r}" for name in names)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    forms = [output.get("data", {}) for output in shown]
    assert any("image/png" in form or "<iframe" in form.get("text/html", "") for form in forms), "no picture"
    texts = [output.data["text/plain"] for output in shown if "data" in output]
    assert not [text for text in texts if re.search(r"\w\(\w+=", text)], "a value is shown as Python writes it"
    recorded = [output.text for output in shown if output.get("name") == "stderr"]
    assert not [text for text in recorded if "IProgress" not in text]  # tqdm, which Optuna imports, prints this

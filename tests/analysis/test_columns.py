"""One declaration puts a column into all tables of trials."""

import json
import os
import subprocess
import sys

from tests.analysis.made_up import simulate, write

# What a new column takes: the declaration. The rest asks each table for it, as a user does.
PROGRAM = """
import contextlib, io, json, sys
from ledger import columns
from ledger.columns import TrialColumn

columns.COLUMNS.append(TrialColumn("speed", float | None, lambda trial: 100.0 + trial.number, "speed", "images/s"))

from pathlib import Path
from analysis import load
from search.cli.main import app

def call(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        app(list(arguments), standalone_mode=False)
    return out.getvalue()

sweep = load("mine")
print(json.dumps({
    "frame": sweep.trials.speed.tolist(),
    "over": "over" in sweep.plot.scores(over="speed").settings,
    "json": [row["speed"] for row in json.loads(call("show", "mine", "--json"))["trials"]],
    "shown": call("show", "mine"),
    "report": call("report", "mine", "--out", "page.html"),
    "columns": sweep.plot.scores().sweep.columns,
}))
"""


def test_a_declared_column_is_in_data_frames_json_sweep_show_and_the_report(tmp_path, space):
    (tmp_path / "sweeps").mkdir()
    write(tmp_path / "sweeps", "mine", space, simulate(space).events)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "200"},
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    speeds = [100.0 + number for number in range(30)]
    assert found["frame"] == speeds
    assert found["over"]
    assert sorted(found["json"]) == speeds
    assert "speed" in found["shown"].splitlines()[0]
    assert found["columns"][-1] == {"name": "speed", "title": "speed (images/s)", "listed": True}
    page = (tmp_path / "page.html").read_text()
    assert '<th class="n">speed</th>' in page

"""The documentation builds as a site, without a network and without a warning."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from ledger.events import EpochReported
from search.cli.main import app

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_without_a_network(tmp_path):
    nowhere = "http://127.0.0.1:9"
    environment = {**os.environ, "http_proxy": nowhere, "https_proxy": nowhere}
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        str(DOCS),
        str(tmp_path / "site"),
    ]
    done = subprocess.run(command, cwd=DOCS.parent, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "api.html").read_text()
    for name in ("training.train.train", "training.contract.technique.Technique", "spaces.load.load_space"):
        assert f'id="{name}"' in page
    commands = (tmp_path / "site" / "commands.html").read_text()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        (section,) = re.findall(rf'<section id="sweep-{name}">(.*?)</section>', commands, flags=re.DOTALL)
        options = {one.opts[0] for one in command.params if one.param_type_name == "option"}
        assert options <= set(re.findall(r">(--[a-z0-9-]+)", section)), name
    assert EpochReported.model_fields["best_epoch"].description in (tmp_path / "site" / "ledger.html").read_text()

"""The documentation builds as a site, without a network and without a warning."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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

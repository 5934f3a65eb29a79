"""`ray job submit` runs a sweep on a cluster, and a job that starts again continues it."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_a_sweep_runs_as_a_job_and_a_job_that_starts_again_continues_it(tmp_path):
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "RAY_AUTH_MODE": "disabled"}
    port, dashboard, agent = free_port(), free_port(), free_port()
    head = subprocess.Popen(
        [
            *(programs / "ray", "start", "--head", "--block", f"--port={port}", f"--dashboard-port={dashboard}"),
            *("--num-cpus=1", f"--temp-dir=/tmp/job-{port}", "--disable-usage-stats"),
            f"--dashboard-agent-listen-port={agent}",
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            assert time.monotonic() < deadline, "the head node did not answer"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", dashboard)) == 0:
                    break
            time.sleep(0.5)
        command = [programs / "ray", "job", "submit", "--address", f"http://127.0.0.1:{dashboard}"]
        command += ["--working-dir", ROOT, "--", "python", "-m", "search", "run", "quick", "epochs=3"]
        command += ["backbone.weights=none", "--name", "job", "--address", "auto", "--or-resume", "--trials", "3"]
        command += ["--storage", f"{tmp_path}/sweeps", "--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db"]
        first = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=400)
        assert first.returncode == 0, first.stdout + first.stderr
        assert "3 trials after" in first.stdout
        again = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "Sweep job starts" not in again.stdout
    finally:
        head.terminate()
        head.wait(30)
        shutil.rmtree(f"/tmp/job-{port}", ignore_errors=True)

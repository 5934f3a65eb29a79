"""A cluster as docs/cluster.md starts it, and one whose head node is lost while a sweep runs, and comes back."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from ledger.file import read_events
from search.cli.inspect.mlflow_ui import find_free_port
from tests.real_sweeps import FAST, SPACE, call, check_truth, environment, mlflow_runs, reports, start, wait_for

ROOT = Path(__file__).parents[3]


@contextmanager
def head_node(port):
    """Ray's processes of a head node; none is left at the end."""
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}"]
    command += ["--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"]
    head = subprocess.Popen(
        command, env=environment(FAST_EPOCH_SECONDS="0.5"), stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    try:
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert head.poll() is None
            time.sleep(0.1)
        yield head
    finally:
        end_all(head)


def end_all(head):
    for process in [*psutil.Process(head.pid).children(recursive=True), head] if head.poll() is None else []:
        process.kill()
    head.wait()


@pytest.mark.cluster
@pytest.mark.parametrize(("page", "title"), [("docs/cluster.md", "4. Start Ray"), ("README.md", "A cluster")])
def test_the_lines_of_a_page_start_a_cluster_with_a_token(page, title, tmp_path):
    [lines] = re.findall(
        rf"^## {title}\n[^`]*```\n(.*?)(?:^sweep run|```)", (ROOT / page).read_text(), flags=re.S | re.M
    )
    address = socket.gethostbyname(socket.gethostname())
    script = lines.replace("HEAD", address).replace("6379", str(find_free_port(22_000)))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = environment(HOME=str(tmp_path), PATH=path, RAY_TMPDIR=tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        variables.pop(name, None)
    joined = variables | {"RAY_AUTH_MODE": "token"}
    try:
        done = subprocess.run(["bash", "-ec", script], env=variables, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        deadline, status = time.monotonic() + 60, done.stdout
        while status.partition("Active:")[2].partition("Pending:")[0].count("node_") < 2:
            assert time.monotonic() < deadline, status  # a node is shown some seconds after it has joined
            time.sleep(1)
            status = subprocess.run(["ray", "status"], env=joined, capture_output=True, text=True, timeout=60).stdout
    finally:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("RAY_TMPDIR") == variables["RAY_TMPDIR"]:
                    process.kill()
        shutil.rmtree(variables["RAY_TMPDIR"], ignore_errors=True)


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_a_lost_head_ends_the_driver_in_one_sentence_and_the_sweep_continues_when_it_is_back(folder):
    port = find_free_port(21_000)
    address, ledger = f"127.0.0.1:{port}", folder / "sweeps" / "headless" / "ledger.jsonl"
    with head_node(port) as head:
        driver = start(
            folder, "run", "tiny.yaml", "--name", "headless", "--trials", "20", "--address", address, command=FAST
        )
        try:
            wait_for(ledger, lambda events: len(reports(events)) >= 2, driver)
            end_all(head)
            printed = driver.communicate(timeout=200)[0]
        finally:
            driver.kill()
    assert f"--address={address}: the head node of the cluster no longer answers." in printed
    assert "sweep resume headless" in printed
    assert "Traceback" not in printed
    assert driver.returncode == 2
    assert list(read_events(ledger))[-2].event == "close"
    assert [run.info.status for run in mlflow_runs(folder, "headless")[1] if "trial" not in run.data.tags] == ["KILLED"]
    with head_node(port):
        call(folder, "resume", "headless", command=FAST)
    check_truth(folder, "headless", 20)


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_a_second_sweep_gets_its_part_of_a_full_cluster_at_once_and_no_trial_starts_without_room(folder):
    port = find_free_port(21_500)
    ledgers = {name: folder / "sweeps" / name / "ledger.jsonl" for name in ("long", "short")}

    def run(name, *options):
        address = f"127.0.0.1:{port}"
        return start(folder, "run", "tiny.yaml", "--name", name, "--address", address, *options, command=FAST)

    with head_node(port):
        drivers = [run("long", "--trials", "2", "epochs=120")]
        try:
            wait_for(ledgers["long"], lambda events: {trial for trial, _ in reports(events)} == {0, 1}, drivers[0])
            titles = {" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])}
            assert any(title.startswith("ray::long.") for title in titles), titles
            drivers.append(run("short"))
            printed = [driver.communicate(timeout=400)[0] for driver in drivers]
        finally:
            for driver in drivers:
                driver.kill()
    assert [driver.returncode for driver in drivers] == [0, 0], printed
    assert all("2 sweeps share the cluster" in text for text in printed), printed
    assert re.search("waits, and keeps [0-9]+ epochs: another sweep", printed[0]), printed[0]
    assert "The other sweep has ended: this one has the whole cluster now." in printed[0]
    check_truth(folder, "long", 2, epochs=120)
    check_truth(folder, "short", 6)
    events = {name: list(read_events(path)) for name, path in ledgers.items()}
    assert [event.cause for event in events["long"] if event.event == "lost"] == ["share"]
    assert events["short"][-1].time < min(event.time for event in events["long"] if event.event == "end")
    running = set()
    for name, event in sorted(((n, e) for n, es in events.items() for e in es), key=lambda pair: pair[1].time):
        if event.event in ("start", "resume"):
            running.add((name, event.trial))
        elif event.event in ("lost", "end"):
            running.discard((name, event.trial))
        assert len(running) <= 2, running  # the CPUs of the cluster


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_the_last_trainings_run_on_the_nodes_of_a_cluster_and_not_on_its_head(tmp_path):
    from ray.cluster_utils import Cluster

    (tmp_path / "tiny.yaml").write_text(SPACE.replace("weights: none", "weights: letters"))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    cluster.add_node(num_cpus=1)
    try:
        options = ("--name", "timed", "--trials", "3", "--time-budget", "3m", "--address", cluster.address)
        printed = call(tmp_path, "run", "tiny.yaml", *options)
    finally:
        cluster.shutdown()
    assert printed.count("on training and validation images, 3 epochs.") == 4, printed
    summary = json.loads((tmp_path / "exports" / "timed" / "summary.json").read_text())
    assert (summary["members"], summary["trained_on"]) == (4, "train and validation")
    assert summary["threads"] == 1  # those of a trial; in this process they would be all

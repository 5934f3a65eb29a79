"""During a sweep nothing listens but Ray: no port of the product is open."""

import re

import psutil
import pytest

from tests.real_sweeps import make_user_folder, start, wait_for

# The processes of Ray that listen, and the workers that it starts, each with a port of its core.
RAY = re.compile(r"^(gcs_server|raylet|ray::)|/ray/(dashboard/dashboard|autoscaler/_private/monitor)\.py")


def listening(process):
    """The ports at which a process listens. `net_connections` of a process has those of all its threads."""
    return {one.laddr.port for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN}


def end(driver):
    try:
        return driver.communicate(timeout=300)[0]
    finally:
        driver.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_process_of_a_sweep_listens_on_a_port_but_those_of_ray(tmp_path):
    folder = make_user_folder(tmp_path)
    driver = start(folder, "run", "tiny.yaml", "--name", "mine", "--follow")
    try:
        ledger = folder / "sweeps" / "mine" / "ledger.jsonl"
        wait_for(ledger, lambda events: any(event.event == "report" for event in events), driver)
        parent, found, own = psutil.Process(driver.pid), {}, set()
        for process in parent.children(recursive=True):
            try:
                command = " ".join([process.name(), *process.cmdline()])
                own |= {process.name()} if "search.evaluation.follow" in command else set()
                if ports := listening(process):
                    found[command] = ports
            except psutil.NoSuchProcess:
                continue
        of_driver = listening(parent)
    finally:
        output = end(driver)
    assert driver.returncode == 0, output
    assert own, "the process that writes the page was not seen"
    assert found, "the processes of Ray were not seen"
    assert [command for command in found if not RAY.search(command)] == []
    # The driver is a worker of Ray too, with the port of its core and no other.
    assert len(of_driver) <= 1

"""Kill or drain the parts of a sweep, or of several, at random, continue them each time, and count the faults.

    python benchmarks/chaos.py --kills 30 --seed 0 [--sweeps 2] [--fast] [--json FILE]

The sweeps share a cluster of three nodes on this machine, copy themselves to a store, and log to an MLflow server over
PostgreSQL (over SQLite, where PostgreSQL is not installed). `--fast` trains nothing (see fast_trainer.py); everything else
is the real code. It needs no network.

driver, worker, node, server, postgres: kill -9, and it starts again. head: drivers, cluster and all files but the store are
lost. drain: a node gets notice, and goes 20 s later. join: a node joins, then another is lost. sigterm: a worker is evicted.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.sweep_scene.faults import count_faults, find_faults
from benchmarks.sweep_scene.scene import Scene
from benchmarks.sweep_scene.servers import PATIENCE_SECONDS, find_postgres, wait_until

KINDS = ("driver", "worker", "node", "server", "join", "drain", "sigterm", "head", "postgres")
LOSSES_OF_DRIVER = ("driver", "head")


def run_chaos(folder: Path, kills: list[str], sweeps: int, seed: int, fast: bool) -> dict[str, int]:
    """Run sweeps with these kills, and return counts of events and of faults."""
    draw = random.Random(seed)
    # Six trials, about 30 epochs under ASHA on three nodes, take longer than a kill.
    trials = 8 + 6 * len(kills) // sweeps
    with Scene(folder, sweeps, trials, fast, with_postgres="postgres" in kills) as scene:
        try:
            return _kill_and_count(scene, kills, draw)
        except TimeoutError:
            print(*(sweep.log.read_text()[-3000:] for sweep in scene.sweeps), file=sys.stderr)
            raise


def _kill_and_count(scene: Scene, kills: list[str], draw: random.Random) -> dict[str, int]:
    done: Counter[str] = Counter()
    gave_up = 0
    for kind in kills:
        # A driver may also be killed while it starts.
        in_start = kind in LOSSES_OF_DRIVER and draw.random() < 0.3 and all(one.ledger.exists() for one in scene.sweeps)
        enough = scene.count_reports() + draw.randint(2, 8)
        if not in_start:
            wait_until(lambda: scene.have_ended() or scene.count_reports() >= enough, "reports")  # noqa: B023
        time.sleep(draw.uniform(0, 8 if in_start else 0.5))
        gave_up += restart_those_that_gave_up(scene)
        if scene.have_ended():
            break  # the sweeps ended before all kills
        getattr(scene, f"kill_{kind}")()
        done[kind] += 1
    wait_until(scene.have_ended, "the end of the sweeps", 4 * PATIENCE_SECONDS)
    while gave_up < len(kills) and (again := restart_those_that_gave_up(scene)):
        gave_up += again
        wait_until(scene.have_ended, "the end of the sweeps", 4 * PATIENCE_SECONDS)
    late = 0
    for sweep in 3 * scene.sweeps:
        if sweep.undelivered():  # the server did not answer at the end, and the sweep reported this
            late += 1
            sweep.start()
            sweep.driver.wait(PATIENCE_SECONDS)
    wait_until(scene.server.answers, "an answer of the MLflow server")
    counts = {"kills": done.total(), **done, "resumed for MLflow alone": late}
    return counts | count_faults(scene, done.total()) | {"drivers that gave up": gave_up}


def restart_those_that_gave_up(scene: Scene) -> int:
    gave_up = [sweep for sweep in scene.sweeps if sweep.has_ended() and sweep.driver.returncode != 0]
    for sweep in gave_up:
        sweep.restart()
    return len(gave_up)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweeps", type=int, default=1, help="sweeps that share the cluster")
    parser.add_argument("--fast", action="store_true", help="train nothing")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if kind != "postgres" or find_postgres()]
    kills = [kinds[number % len(kinds)] for number in range(arguments.kills)]
    random.Random(arguments.seed).shuffle(kills)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        counts = run_chaos(Path(folder), kills, arguments.sweeps, arguments.seed, arguments.fast)
    faults = find_faults(counts, KINDS)
    table = Table("count", "found", title=f"{counts['kills']} kills in {time.perf_counter() - began:.0f} s")
    for name, count in counts.items():
        table.add_row(name, f"[red]{count}[/]" if name in faults else str(count))
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(counts, indent=2))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()

"""Time and CPU of the dashboard on a large sweep: start, first page, and an update while one trial reports."""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import psutil

from ledger.events import AnyEvent, DriverStarted, EpochReported, TrialEnded, TrialStarted
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.settings import Settings
from search.runner.sweep import create_folder, make_header
from spaces.load import load_space
from spaces.parameters.draws import RandomTrial
from training.errors import UserError
from training.recipe import read_recipe

METRICS = {
    "val_loss": 0.5,
    "train_loss": 0.4,
    "lr": 0.01,
    "train_seconds": 12.5,
    "peak_memory_mb": 2100.0,
    "val_ece": 0.03,
}


def draw_recipes(space, number):
    """Return random recipes of a space; a few hundred different ones are enough."""
    found, seed = [], 0
    while len(found) < min(number, 300):
        seed += 1
        try:
            found.append(read_recipe(space.suggest(RandomTrial(seed))))
        except UserError:  # its techniques conflict
            continue
    return [found[n % len(found)] for n in range(number)]


def list_events(space, trials: int) -> list[AnyEvent]:
    """Return the events of trials of which most are stopped at an early rung."""
    rng, now = np.random.default_rng(0), time.time() - 3600
    events: list[AnyEvent] = [DriverStarted(threads=2, slots=8, host="here")]
    for number, recipe in enumerate(draw_recipes(space, trials)):
        events.append(TrialStarted(time=now, trial=number, recipe=recipe, params=None, origin="sampler"))
        length = recipe.epochs if rng.random() < 0.1 else max(1, recipe.epochs // int(rng.choice([4, 8, 16])))
        scores = np.maximum.accumulate(0.5 + 0.4 * rng.random(length))
        for epoch, score in enumerate(scores, 1):
            events.append(report(number, epoch, float(score), now))
        events.append(TrialEnded(time=now, trial=number, state="completed" if length == recipe.epochs else "stopped"))
    return events


def report(trial, epoch, score, now):
    return EpochReported(
        time=now, trial=trial, epoch=epoch, score=score, standard_error=0.01, best_epoch=epoch,
        metrics={"val_accuracy": score, **METRICS},
    )  # fmt: skip


def time_browser(address: str, trials: int) -> None:
    """Print the seconds until Chromium shows the first trials, and all of them; needs Playwright and Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        for state in ("while the ledger is read", "after it was read"):
            began = time.perf_counter()
            page.goto(address)
            page.locator(".trials tbody tr").first.wait_for()
            first = time.perf_counter() - began
            page.get_by_text(f"{trials:,} of {trials:,} trials").wait_for(timeout=300_000)
            every = time.perf_counter() - began
            print(f"Chromium, {state}: a table after {first:.1f} s, all trials after {every:.1f} s")
        browser.close()


def fetch(address: str) -> dict:
    with urllib.request.urlopen(address, timeout=300) as answer:
        return json.loads(answer.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=20)
    args = parser.parse_args()
    space = load_space("card")
    with tempfile.TemporaryDirectory() as home:
        folder = SweepFolder(Path(home, "big"))
        events = list_events(space, args.trials)
        create_folder(folder, make_header("big", "1", space, Settings()))
        with folder.ledger.open("ab") as file:
            file.write(b"".join(event.model_dump_json().encode() + b"\n" for event in events))
        size = folder.ledger.stat().st_size / 2**20
        print(f"{args.trials:,} trials, {len(events):,} events, {size:.0f} MB")
        command = [sys.executable, "-m", "search", "dashboard", "big", "--storage", home, "--port", "0"]
        began = time.perf_counter()
        with folder.locked():
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            address = re.search(r"http://\S+", server.stdout.readline())[0]
            print(f"server ready after {time.perf_counter() - began:.1f} s")
            time_browser(address, args.trials)
            began = time.perf_counter()
            first = fetch(f"{address}state?since=0")
            size = len(json.dumps(first)) / 2**20
            print(f"the state of all trials: {time.perf_counter() - began:.2f} s, {size:.1f} MB")
            process = psutil.Process(server.pid)
            before = sum(process.cpu_times()[:2])
            ledger, version = Ledger(folder.ledger, []), first["version"]
            for number in range(args.updates):
                recipe = draw_recipes(space, 1)[0]
                ledger.append(TrialStarted(trial=args.trials + number, recipe=recipe, params=None, origin="sampler"))
                ledger.append(report(args.trials + number, 1, 0.7, time.time()))
                time.sleep(1)
                version = fetch(f"{address}state?since={version}&session={first['session']}")["version"]
            spent = sum(process.cpu_times()[:2]) - before
            print(f"an update: {1000 * spent / args.updates:.0f} ms of CPU")
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()

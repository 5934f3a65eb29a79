"""The `sweep` command with a trainer that takes no time, to test everything around it, such as workers and drivers.

    python benchmarks/fast_trainer.py run SPACE ...

Everything except the fit is the real code. An epoch is a short sleep, with a score computed from the recipe; its
checkpoint and its reports have the same form as those of the real trainer.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EPOCH_SECONDS = float(os.environ.get("FAST_EPOCH_SECONDS", "0.2"))

logger = logging.getLogger("training.fast")


def train(recipe: Any, folder: Path, *, metric: str, score: str, resources: object, on_report: Any) -> Any:
    """Behave like `training.train.train`: checkpoint first, then the report; a resume repeats earlier reports first."""
    from training.loop.epoch_report import Outcome, Report

    if problem := os.environ.get("FAST_PROBLEM"):
        from training.errors import UserError

        raise UserError(problem)
    checkpoint = folder / "last.ckpt"
    reports = [Report(**report) for report in json.loads(checkpoint.read_text())] if checkpoint.exists() else []
    going = all(list(map(on_report, reports)))  # all are reported, also after one that stops
    quality = int(hashlib.sha256(recipe.model_dump_json(exclude_defaults=True).encode()).hexdigest()[:8], 16) / 2**32
    for epoch in range(len(reports) + 1, recipe.epochs + 1 if going else 0):
        logger.info("Epoch %d begins.", epoch)
        time.sleep(EPOCH_SECONDS)
        value = quality * (1 - math.exp(-epoch / 3))
        reports.append(
            Report(epoch, {metric: value, "train_seconds": epoch * EPOCH_SECONDS}, value, 0.01, epoch, [], time.time())
        )
        partial = checkpoint.with_suffix(".partial")
        partial.write_text(json.dumps([asdict(report) for report in reports]))
        partial.replace(checkpoint)
        if not on_report(reports[-1]):
            going = False
            break
    return Outcome("completed" if going else "stopped", recipe, (), reports)


def run_trial(config: dict[str, Any]) -> None:
    """Run `search.runner.worker.run_trial` with the fast trainer."""
    module = ModuleType("training.train")
    module.train = train  # type: ignore[attr-defined]
    sys.modules["training.train"] = module
    from search.runner.worker import run_trial

    run_trial(config)


def prepare_machine(storage: str, inputs: list[dict[str, Any]], gpus: float, is_shared: bool = True) -> Any:
    """Return the facts of a machine that needs no preparation; the variable FAST_PROBLEM makes it fail."""
    from search.runner.machines.preparation import MachineFacts

    return MachineFacts(problem=os.environ.get("FAST_PROBLEM"), host=os.uname().nodename)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("TECHNIQUE_SEARCH_FORK_SERVER", "0")  # it would import torch and Lightning for nothing
    import search.runner.executor
    import search.runner.machines.cluster
    import search.runner.machines.preparation
    import search.runner.start.prepare
    import search.runner.sweep
    from search.cli.main import main as run_command
    from search.runner.worker import bootstrap

    def fast(module: str, function: str) -> Any:
        return bootstrap("benchmarks.fast_trainer", function)

    search.runner.executor.bootstrap = search.runner.machines.preparation.bootstrap = fast
    search.runner.start.prepare.prepare_machine = prepare_machine
    search.runner.start.prepare.load_checked = lambda spec: None
    run_command()


if __name__ == "__main__":
    main()

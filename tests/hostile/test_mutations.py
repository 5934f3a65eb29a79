"""Valid files with one part changed, by the thousand: no command crashes, hangs, or leaves something after a refusal."""

from __future__ import annotations

import copy
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hostile_home import SPACE, build_exports, make_sweep, sweep_events, write
from PIL import Image
from test_hostile import command, nothing_starts, run, take_stock  # noqa: F401 - fixtures

import search.runner.machines.preparation
import search.runner.single_training
import search.runner.start.prepare
from spaces.load import load_space
from training.errors import UserError

LONGEST_SECONDS = 60
STARTS = "nothing starts in this test."
DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]
ODD: list[Any] = [
    None,
    True,
    -1,
    10**30,
    1e308,
    float("nan"),
    "",
    "\ud800\x1b[31m",
    "../x" * 1300,
    [],
    [None],
    {},
    DEEP,
]


class Hung(BaseException):
    """A command took too long."""


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each part of a JSON value, the whole included."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from list_paths(child, (*path, key))


def change(value: Any, path: tuple[Any, ...], part: Any) -> Any:
    """Return a copy of a JSON value in which the part at `path` is another one."""
    if not path:
        return part
    changed = copy.deepcopy(value)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = part
    return changed


def mutate(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each change of one part to each odd value, and each mapping without one of its keys, with a description."""
    for path in list_paths(value):
        where = ".".join(map(str, path)) or "all"
        for number, odd in enumerate(ODD):
            yield f"{where} = odd value {number}", change(value, path, odd)
        if path and isinstance(path[-1], str):
            holder = value
            for key in path[:-1]:
                holder = holder[key]
            rest = {key: part for key, part in holder.items() if key != path[-1]}
            yield f"without {where}", change(value, path[:-1], rest)


def every_event() -> list[dict[str, Any]]:
    """Return the lines of a ledger that has every kind of event; its last trial is interrupted."""
    space = load_space("space.yaml").to_yaml()
    events = sweep_events("changed", space, trials=2)[:-2]
    for report in (event for event in events if event.get("event") == "report"):
        report |= {"labels": [0, 1], "probabilities": "ff0000ff"}
    recipe = events[3]["recipe"]
    probe = {"backbone": "test_resnet", "linear": {"val_accuracy": 0.5}, "knn": {"val_accuracy": 0.4}}
    probe |= {"linear_standard_error": 0.02, "train_images": 20, "val_images": 30, "seconds": 2.0}
    replicated = {"label": "baseline", "recipe": recipe, "origin": "baseline"}
    more: list[dict[str, Any]] = [
        {"event": "warm_start", "recipes": [recipe]},
        {"event": "probe", **probe},
        {"event": "extend", "trials": 1},
        {"event": "add", "request": "a", "recipe": recipe},
        {"event": "stop_trial", "request": "b", "trial": 1},
        {"event": "settings", "settings": events[1]["settings"]},
        {"event": "infeasible", "trial": 2, "params": {"batch_size": 16}, "reason": "they conflict"},
        {"event": "start", "trial": 2, "recipe": recipe, "params": {"batch_size": 16}, "origin": "sampler"},
        {"event": "lost", "trial": 2, "reason": "died", "cause": "worker"},
        {"event": "resume", "trial": 2},
        {"event": "end", "trial": 2, "state": "interrupted", "reason": "Ctrl-C"},
        {"event": "close", "state": "interrupted"},
        {"event": "runs", "ids": {"0": "abc"}, "undelivered": 0},
        {"event": "test_opened", "by": "changed-confirm"},
        {"event": "test", "trial": 0, "openings_before": 0, "classes": ["0", "1"], "results": {"accuracy": 0.5}},
        {"event": "list", "kind": "confirm", "of": "done-1", "seeds": [1], "notes": ["a note"], "trials": [replicated]},
    ]
    return [*events, *({"time": 1.7e9 + 50 + number, **event} for number, event in enumerate(more))]


LEDGER_COMMANDS = (
    *(
        "show changed",
        "show changed --json",
        "show changed --trial 2",
        "list",
        "resume changed",
        "export changed --out o",
    ),
    *("resume changed --trials 1", "confirm changed", "add changed epochs=2"),
)


def change_ledgers(home: Path) -> Iterator[tuple[str, str]]:
    make_sweep(home / "sweeps", "done")
    lines = every_event()
    folder = make_sweep(home / "sweeps", "changed")
    commands = cycle(LEDGER_COMMANDS)
    for number, line in enumerate(lines):
        for what, changed in mutate(line):
            text = "".join(json.dumps(changed if at == number else each) + "\n" for at, each in enumerate(lines))
            write(folder / "ledger.jsonl", text)
            write(folder / "space.yaml", lines[1]["space"])
            yield next(commands), f"line {number + 1}, {line.get('event')}, {what}"


def change_summaries(home: Path) -> Iterator[tuple[str, str]]:
    build_exports(home / "exports")
    Image.new("RGB", (16, 16)).save(home / "photo.png")
    file = home / "exports/good/summary.json"
    summary = {**json.loads(file.read_text()), "flip_average": False, "metrics": {"val_accuracy": 0.5}, "sweep": "one"}
    commands = cycle(("predict exports/good photo.png", "train exports/good/recipe.yaml"))
    for what, changed in mutate(summary):
        write(file, json.dumps(changed))
        yield next(commands), f"summary.json, {what}"


def change_recipes(home: Path) -> Iterator[tuple[str, str]]:
    recipe = {**every_event()[3]["recipe"], "optimizer": {"name": "adamw", "lr": 0.1, "weight_decay": 0.1}, "seed": 3}
    recipe |= {
        "mixup": {"alpha": 0.2},
        "unfreeze": {"level": "most"},
        "label_smoothing": {"alpha": 0.1},
        "batch_size": 8,
    }
    space = {"format": 1, "recipe": recipe, "search": {"trials": 3, "metric": "val_accuracy", "sampler": "random"}}
    commands = cycle(("space mine.yaml", "run mine.yaml"))
    for what, changed in mutate(space):
        write(home / "mine.yaml", json.dumps(changed))
        yield next(commands), f"mine.yaml, {what}"


def change_tables(home: Path) -> Iterator[tuple[str, str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    Image.new("RGB", (8, 8)).save(home / "photo.png")
    images = [{"bytes": (home / "photo.png").read_bytes(), "path": None}] * 8
    rows = pa.table({"image": images, "label": [0, 1] * 4})
    label = {"_type": "ClassLabel", "names": ["cat", "dog"]}
    for what, changed in mutate({"info": {"features": {"image": {"_type": "Image"}, "label": label}}}):
        shutil.rmtree(home / "rows", ignore_errors=True)
        (home / "rows").mkdir()
        described = rows.replace_schema_metadata({"huggingface": json.dumps(changed)})
        pq.write_table(described, home / "rows/train.parquet")
        yield "run quick 'data={name: parquet, root: rows}'", f"metadata of Parquet, {what}"


def change_requests(home: Path) -> Iterator[tuple[str, str]]:
    make_sweep(home / "sweeps", "changed", completed=False)
    request = next(line for line in every_event() if line.get("event") == "add")
    for what, changed in mutate(request):
        write(home / "sweeps/changed/requests/1-a.json", json.dumps(changed))
        yield "add changed epochs=2", f"a request, {what}"


LEAST = {"a ledger": 750, "the summary of an export": 130, "a space": 170, "a table": 130, "a request": 20}
SOURCES: dict[str, tuple[Callable[[Path], Iterator[tuple[str, str]]], int]] = {
    "a ledger": (change_ledgers, 4),
    "the summary of an export": (change_summaries, 1),
    "a space": (change_recipes, 2),
    "a table": (change_tables, 1),
    "a request": (change_requests, 10),
}


def hang(*_: object) -> None:
    raise Hung


def start(*_: object, **__: object) -> None:
    raise UserError(STARTS)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("source", SOURCES)
def test_a_changed_file_is_read_or_refused(source, tmp_path, monkeypatch, capfd):
    """Each command line ends with 0 or 2 and without a traceback; a refusal leaves the files as they were."""
    home = tmp_path / "home"
    write(home / "space.yaml", SPACE)
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for module, name in ((search.runner.start.prepare, "start_ray"), (search.runner.single_training, "_train")):
        monkeypatch.setattr(module, name, start)
    # Their threads would still write files while the next command is judged.
    monkeypatch.setattr(search.runner.start.prepare, "prepare_machine", start)
    monkeypatch.setattr(search.runner.single_training, "Tracking", Mock())
    make, step = SOURCES[source]
    faults, count = [], 0
    signal.signal(signal.SIGALRM, hang)
    for line, what in islice(make(home), 0, None, step):
        before = take_stock(home)
        signal.alarm(LONGEST_SECONDS)
        try:
            code: int | str = run(line, monkeypatch)
        except Hung:
            code = "a hang"
        finally:
            signal.alarm(0)
        said = capfd.readouterr()
        if code not in (0, 2) or "Traceback" in said.out + said.err:
            faults.append(f"{line}: {code} ({what}): {said.err.strip().splitlines()[-1:]}")
        is_refused = code == 2 and STARTS not in said.err
        if is_refused and (changed := take_stock(home).items() ^ before.items()):
            faults.append(f"{line} ({what}) was refused and changed {sorted(path for path, _ in changed)[:3]}")
        count += 1
    assert count >= LEAST[source]
    assert not faults, f"{len(faults)} of {count}:\n" + "\n".join(faults[:20])

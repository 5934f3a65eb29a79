"""`sweep repair`: what can be saved of a sweep whose files were damaged, with the damaged originals beside it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from search.core.folder import SweepFolder
from search.core.ledger import FORMAT, Event, check_format, read_lines, sweep_header
from training.errors import UserError


def repair_sweep(folder: SweepFolder) -> str:
    """Keep every whole line of the ledger and put `space.yaml` back; returns a sentence about what was done.

    Raises:
        UserError: a driver runs the sweep, or the lines that say what it is are lost.
    """
    with folder.locked():
        lines = list(read_lines(folder.ledger)) if folder.ledger.is_file() else []
        header = _check_can_be_saved(folder, lines)
        done = []
        if damaged := [str(number) for number, line in enumerate(lines, start=1) if line is None]:
            kept = _replace(folder.ledger, _keep_whole(folder.ledger, lines, header))
            done.append(
                f"Kept {len(lines) - len(damaged)} of {len(lines)} lines of the ledger; damaged: {', '.join(damaged)}. "
                f"The original is {kept}."
            )
        if _read(folder.space) != header["space"].encode():
            kept = _replace(folder.space, header["space"].encode())
            done.append("Put space.yaml back." + (f" What was there is {kept}." if kept else ""))
        if lost := _set_aside_trials(folder, lines):
            done.append(f"What started {', '.join(lost)} is lost, so that a trial of that number runs anew.")
    if not done:
        return f"{folder.name}: nothing is damaged."
    return f"{' '.join(done)} Go on with it: sweep resume {folder.name}"


def _check_can_be_saved(folder: SweepFolder, lines: list[Event | None]) -> Event:
    """The event that says what the sweep is."""
    events = [line for line in lines if line is not None]
    if lines and lines[0] is not None:
        check_format(folder.ledger, lines[0])
    kinds = {event.get("event") for event in events}
    is_list = any(event.get("origin") == "listed" for event in events)
    if "sweep" in kinds and ("list" in kinds or not is_list):
        return sweep_header(folder.ledger, events)
    again = f" Search its space again: sweep run {folder.space}." if folder.space.is_file() and not is_list else ""
    raise UserError(
        f"{folder.name}: it cannot be repaired, because its ledger has lost the line that says what the sweep is. Weights "
        f"that are left are in {folder.trials}.{again} Remove the sweep: sweep rm {folder.name}."
    )


def _keep_whole(path: Path, lines: list[Event | None], header: Event) -> bytes:
    """The whole lines as they were; the first, which holds the format alone, is made anew where it is damaged."""
    first = json.dumps({"time": header["time"], "format": FORMAT}).encode() + b"\n" if lines[0] is None else b""
    texts = path.read_bytes().split(b"\n")  # what follows the last newline has no event
    return first + b"".join(text + b"\n" for text, line in zip(texts, lines, strict=False) if line is not None)


def _set_aside_trials(folder: SweepFolder, lines: list[Event | None]) -> list[str]:
    """Rename the folders of trials whose start is lost, so that the next of that number begins with an empty one."""
    started = {line.get("trial") for line in lines if line is not None and line.get("event") == "start"}
    folders = [
        path for path in sorted(folder.trials.glob("*")) if path.name.isdigit() and int(path.name) not in started
    ]
    for path in folders:
        path.rename(_name_beside(path))
    return [path.name for path in folders]


def _name_beside(path: Path) -> Path:
    """A name for what is damaged, beside the place that it leaves."""
    number = 1
    while (beside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return beside


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _replace(path: Path, content: bytes) -> Path | None:
    """Write a file anew, whole or not at all; returns the name that its original has from now on, if there was one."""
    kept = None
    if path.is_file():
        kept = _name_beside(path)
        shutil.copy2(path, kept)
    new = path.with_name(f"{path.name}.partial")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    return kept

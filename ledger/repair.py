"""`sweep repair`: repair the files of a damaged sweep, and keep the damaged originals beside them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ledger.events import AnyEvent, Replication, SweepStarted, TrialStarted
from ledger.file import check_format, find_header, first_line, is_format_line, read_lines, try_decode
from ledger.folder import SweepFolder
from training.errors import UserError


def repair_sweep(folder: SweepFolder) -> str:
    """Keep every complete line of the ledger, restore `space.yaml`, and return sentences about what was done."""
    with folder.locked():
        lines = read_lines(folder.ledger) if folder.ledger.is_file() else []
        has_format = bool(lines) and is_format_line(lines[0])
        if has_format:
            check_format(folder.ledger, lines[0])
        events = [try_decode(line) for line in lines]
        whole = [event is not None or (number == 0 and has_format) for number, event in enumerate(events)]
        header = _check_can_be_saved(folder, events)
        done = []
        if damaged := [str(number) for number, is_whole in enumerate(whole, start=1) if not is_whole]:
            kept = _replace(folder.ledger, _keep_whole(lines, whole, header))
            done.append(
                f"Kept {len(lines) - len(damaged)} of {len(lines)} lines of the ledger; damaged: {', '.join(damaged)}. "
                f"The original is {kept}."
            )
        if _read(folder.space) != header.space.encode():
            kept = _replace(folder.space, header.space.encode())
            done.append("Restored space.yaml." + (f" The changed file is {kept}." if kept else ""))
        if lost := _set_aside_trials(folder, events):
            done.append(f"The start of {', '.join(lost)} is lost, so a new trial with that number will run.")
    if not done:
        return f"{folder.name}: nothing is damaged."
    return f"{' '.join(done)} Continue with: sweep resume {folder.name}"


def _check_can_be_saved(folder: SweepFolder, events: list[AnyEvent | None]) -> SweepStarted:
    """Return the event that describes the sweep."""
    is_replication = any(isinstance(event, TrialStarted) and event.origin == "listed" for event in events)
    kinds = {type(event) for event in events}
    if SweepStarted in kinds and (Replication in kinds or not is_replication):
        return find_header(folder.ledger, [event for event in events if event is not None])
    again = (
        f" Search its space again: sweep run {folder.space}." if folder.space.is_file() and not is_replication else ""
    )
    raise UserError(
        f"{folder.name}: it cannot be repaired, because its ledger has lost the line that describes the sweep. The remaining "
        f"weights are in {folder.trials}.{again} Remove the sweep: sweep rm {folder.name}."
    )


def _keep_whole(lines: list[bytes], whole: list[bool], header: SweepStarted) -> bytes:
    """Keep the complete lines unchanged. The first line has only the format, and is written again if it is damaged."""
    first = b"" if is_format_line(lines[0]) else first_line(header.time)
    return first + b"".join(line + b"\n" for line, is_whole in zip(lines, whole, strict=True) if is_whole)


def _set_aside_trials(folder: SweepFolder, events: list[AnyEvent | None]) -> list[str]:
    """Rename the folders of trials whose start is lost, so that the next trial with that number gets an empty one."""
    started = {event.trial for event in events if isinstance(event, TrialStarted)}
    folders = [
        path for path in sorted(folder.trials.glob("*")) if path.name.isdigit() and int(path.name) not in started
    ]
    for path in folders:
        path.rename(_name_beside(path))
    return [path.name for path in folders]


def _name_beside(path: Path) -> Path:
    """Return a free name for a damaged file or folder, in the same folder."""
    number = 1
    while (beside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return beside


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _replace(path: Path, content: bytes) -> Path | None:
    """Replace a file atomically, and return the new name of the original, if there was one."""
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

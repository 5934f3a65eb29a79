"""Remarks on what only the decoded pixels show: images of one colour, and deep grey levels whose range was guessed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from training.data.files.check import find_odd_pixels
from training.data.files.grey_levels import Range
from training.data.files.images import Remark
from training.errors import printable

_NAMED = 3


def remark_pixels(paths: Sequence[str]) -> Iterable[Remark]:
    """Yield the remarks on these files. All are decoded, unless the check of the images has done so."""
    if not paths:
        return
    odd = find_odd_pixels(paths)
    if plain := odd["one_colour"]:
        count = f"{len(plain):,} image{' has' if len(plain) == 1 else 's have'}"
        yield Remark(
            f"{count} one colour only",
            f"{count} one colour only after reading: {_list(plain)}. If a viewer shows more, save all images in 8 bits.",
        )
    if odd["guessed_ranges"]:
        yield _remark_ranges(odd["guessed_ranges"])


def _remark_ranges(guessed: Mapping[str, Range]) -> Remark:
    files_of: dict[tuple[float, ...], list[str]] = defaultdict(list)
    for path, levels in guessed.items():
        files_of[tuple(sorted(levels))].append(path)
    by_count = sorted(files_of.items(), key=lambda item: (-len(item[1]), item[0]))
    used = [f"{len(paths):,} from {low:,g} to {high:,g} ({printable(min(paths))})" for (low, high), paths in by_count]
    more = f" and {len(used) - _NAMED} other ranges" if len(used) > _NAMED else ""
    count = f"{len(guessed):,} grey image{'' if len(guessed) == 1 else 's'} of more than 8 bits"
    advice = " Where the ranges differ, equal levels have different greys: save all in 8 bits." if len(used) > 1 else ""
    return Remark(
        f"{count} scaled by their own levels",
        f"{count} {'does' if len(guessed) == 1 else 'do'} not name their range, so each is scaled by its own levels: "
        f"{', '.join(used[:_NAMED])}{more}.{advice}",
    )


def _list(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
    return f"{', '.join(map(printable, sorted(paths)[:_NAMED]))}{more}"

"""Find oddities of a data set that do not prevent training, and report them before a sweep starts."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from PIL import Image

from training.contract.specs import Data
from training.data.files.check import DECODED_IMAGES
from training.data.files.decode import UnreadableImage, read_headers
from training.data.files.images import ImageData, Remark
from training.data.inspection.copies import Image as Seen
from training.data.inspection.copies import find_copies
from training.errors import name_some, printable

FEW_IMAGES = 5  # a class with fewer validation images is reported
IMBALANCE = 10  # a larger ratio of the largest class to the smallest is reported
ALIKE_SHARE = 0.1  # a larger share of near copies is seldom an accident
_NAMED = 3


def list_remarks(data: ImageData, spec: Data | None = None, *, whole: bool = False) -> list[Remark]:
    """Return the oddities of the data. With `spec` a remark about broken files has the command that names them.

    With more than 20,000 files, copies and sizes are checked only if `whole` is set.
    """
    remarks = [*data.remarks, *_remark_files(data, spec), *_remark_classes(data), *_remark_balance(data)]
    if whole or are_few_files(data):
        remarks += [*_remark_copies(data), *_remark_headers(data)]
    return remarks


def are_few_files(data: ImageData) -> bool:
    """Return whether all files can be read in about half a minute."""
    return len(data.paths) <= DECODED_IMAGES


def summarise_remarks(remarks: Sequence[Remark], spec: Data) -> str:
    """Return all remarks in one line, empty if there are none."""
    if not remarks:
        return ""
    # Without it, the command would refuse the files that the recipe leaves out.
    skip = " data.skip_unreadable=true" if getattr(spec, "skip_unreadable", False) else ""
    return f"Data: {', '.join(remark.short for remark in remarks)}. See: {_command(spec)}{skip}"


def _command(spec: Data) -> str:
    source = spec.name
    if spec.reads_files:
        source = getattr(spec, "path", None) or getattr(spec, "root", None) or spec.name
    return f"sweep data {shlex.quote(printable(source))}"


def _remark_files(data: ImageData, spec: Data | None) -> Iterable[Remark]:
    if files := data.not_read:
        kinds = Counter(os.path.splitext(path)[1].lower() or "without an ending" for path in files)
        listed = ", ".join(f"{count} {ending}" for ending, count in kinds.most_common(_NAMED))
        more = f" and {len(kinds) - _NAMED} other kinds" if len(kinds) > _NAMED else ""
        yield Remark(
            f"{_count(len(files), 'file')} not read",
            f"{_count(len(files), 'file')} among the images {_be(len(files))} not read, because the format is not known: "
            f"{listed}{more}. The first is {printable(files[0])}.",
        )
    if folders := [os.path.basename(folder) for folder in data.unused]:
        names = name_some(folders)
        yield Remark(
            f"{names} not used",
            f"{names} {'lies' if len(folders) == 1 else 'lie'} beside the parts train, val and test, and no image in it is "
            "used. Rename a folder that is a part.",
        )
    if left_out := len(data.left_out):
        total = left_out + sum(map(len, (data.train, data.val, data.test)))
        yield Remark(
            f"{left_out} of {total} images unreadable and left out",
            f"{left_out} of {total} images cannot be read and {_be(left_out)} left out."
            + (f" To name {'it' if left_out == 1 else 'them'}: {_command(spec)} --check" if spec else ""),
        )


def _remark_classes(data: ImageData) -> Iterable[Remark]:
    spellings = defaultdict(list)
    for name in data.classes:
        spellings[name.casefold().strip()].append(name)
    for names in spellings.values():
        if len(names) > 1:
            yield Remark(
                f"{name_some(names)} are two classes",
                f"The classes {name_some(names)} differ only in upper and lower case.",
            )
    for part, word in ((data.val, "validation"), (data.test, "test")):
        counts = np.bincount(part.labels, minlength=len(data.classes))
        missing = [data.classes[label] for label in np.flatnonzero(counts == 0)]
        if missing and len(part):  # data may do without a test part
            yield Remark(
                f"no {word} images of {name_some(missing, 1)}",
                f"The {word} split has no image of {name_some(missing)}: no score can show how well "
                f"{'that class is' if len(missing) == 1 else 'these classes are'} recognised.",
            )
        few = [data.classes[label] for label in np.flatnonzero((counts > 0) & (counts < FEW_IMAGES))]
        if few and word == "validation":
            least = int(counts[counts > 0].min())
            yield Remark(
                f"fewer than {FEW_IMAGES} validation images of {name_some(few, 1)}",
                f"The validation split has fewer than {FEW_IMAGES} images of {name_some(few)} (at the least {least}): scores "
                "can hardly distinguish recipes there. Add images.",
            )


def _remark_balance(data: ImageData) -> Iterable[Remark]:
    counts = np.bincount(data.train.labels, minlength=len(data.classes))
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] >= IMBALANCE * counts[least]:
        yield Remark(
            f"imbalance of {counts[most]:,} to {counts[least]:,}",
            f"Training has {counts[most]:,} images of {data.classes[most]!r} and {counts[least]:,} of "
            f"{data.classes[least]!r}: a model may ignore rare classes and still score well. Choose "
            "search.metric=val_balanced_accuracy, and try loss.name=logit_adjusted or class_balance.",
        )


def _remark_copies(data: ImageData) -> Iterable[Remark]:
    groups = find_copies(data)
    if shared := [group for group in groups if len({image.part for image in group}) > 1]:
        first = next(iter(shared))
        other = next(image for image in first if image.part != first[0].part)
        yield Remark(
            f"{_count(len(shared), 'image')} in more than one part",
            f"{_count(len(shared), 'image')} {_be(len(shared))} in more than one part, byte for byte, so the score "
            f"rewards memorising: {first[0].name} ({first[0].part}) is {other.name} ({other.part}). Keep one of each.",
        )
    if torn := [group for group in groups if len({image.label for image in group}) > 1]:
        first = next(iter(torn))
        other = next(image for image in first if image.label != first[0].label)
        yield Remark(
            f"{_count(len(torn), 'image')} with two labels",
            f"{_count(len(torn), 'image')} {'has' if len(torn) == 1 else 'have'} more than one label: {first[0].name} is "
            f"{data.classes[first[0].label]!r}, {other.name} is {data.classes[other.label]!r}. Keep the right one.",
        )


def remark_near_copies(pairs: Sequence[tuple[Seen, Seen]], data: ImageData) -> Remark:
    """Describe images that almost equal one of another part; there is at least one."""
    held_out = len(data.val) + len(data.test)
    advice = (
        "Images of one subject, such as digits or the frames of a film, are alike by nature: then keep those of one origin "
        "in one part, with a manifest that has the column group."
        if len(pairs) > ALIKE_SHARE * held_out
        else "Keep one of each, or both in one part."
    )
    count = f"{len(pairs):,} of {held_out:,} validation and test images"
    return Remark(
        f"{_count(len(pairs), 'near copy', 'near copies')} in other splits",
        f"{count} {_be(len(pairs))} almost the same as an image of another split, as resized or re-encoded copies are, so the "
        f"score rewards memorising. {advice}",
    )


def _remark_headers(data: ImageData) -> Iterable[Remark]:
    limit = Image.MAX_IMAGE_PIXELS or 0
    paths = data.paths
    try:
        headers = read_headers(paths) if paths else np.empty((0, 3), np.int64)
    except UnreadableImage:  # the check of the images reports it
        return
    if more := int(headers[:, 2].sum()):
        yield Remark(
            f"{_count(more, 'image')} of several pages",
            f"{more:,} of {_count(len(paths), 'image')} {'has' if more == 1 else 'have'} several pages or frames, such as "
            f"{printable(paths[headers[:, 2].argmax()])}: only the first is used.",
        )
    pixels = headers[:, :2].prod(axis=1)
    if huge := int((pixels > limit).sum()):
        (height, width, _), path = headers[pixels.argmax()], paths[pixels.argmax()]
        yield Remark(
            f"{_count(huge, 'huge image')}",
            f"{_count(huge, 'image')} {'has' if huge == 1 else 'have'} more than {limit // 10**6} million pixels, "
            f"{printable(path)} the largest ({width}×{height}): large images take long to decode. Make them smaller.",
        )


def _count(number: int, thing: str, things: str = "") -> str:
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"

"""Tar files in the form of WebDataset (Aizman et al. 2019): a sample's files have the same name up to its first dot."""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn, Self

from pydantic import Field

from training.contract.specs import FileData
from training.data.files.images import ImageData
from training.data.files.listing import is_image_name, is_no_label
from training.data.files.system_files import is_system_path
from training.errors import printable
from training.process.text_files import encoding_of

if TYPE_CHECKING:
    from training.data.files.unpacked import Sample

_LABEL = ".cls"


class _Member(tarfile.TarInfo):
    """A member whose archive must have an end: tarfile takes damage after the first member for the end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the block of zeros that ends an archive
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} at byte {archive.offset}") from None


class WebDataset(FileData):
    """A folder of tar files in the form of WebDataset: each sample is an image and a label, such as `7.jpg` and `7.cls`."""

    endings: ClassVar[tuple[str, ...]] = (".tar", ".tar.gz", ".tgz")

    name: Literal["webdataset"] = "webdataset"
    root: str = Field(min_length=1, description="Path of the folder.")

    def load(self) -> ImageData:
        """Unpack the images of all tar files; the name of a class is the text of its `.cls` files."""
        from training.data.files.unpacked import load_packed

        return load_packed(self, self.root, partial(_read, self), partial(_has_labels, self))


class _Unpaired(Exception):
    """The files of a sample, by the rule that is tried, are not one image and one label."""


def _read(spec: WebDataset, file: str) -> Iterator[Sample]:
    """Yield the samples by the names up to the first dot, or up to the last one, if only that pairs all files."""
    count = 0
    try:
        for sample in _read_samples(spec, file, _first_dot):
            yield sample
            count += 1
    except _Unpaired:
        groups = _list_groups(spec, file, _last_dot)
        if any(sorted(map(_is_label, names)) != [False, True] for _, names in groups):
            _refuse_unpaired(spec, file)
        # If the last dot pairs all files, the samples so far are the same by both rules.
        yield from islice(_read_samples(spec, file, _last_dot), count, None)


def _has_labels(spec: WebDataset, file: str) -> bool:
    """Return whether a file has a label; -1 and an empty text stand for none."""
    labels = (content() for _, name, content in _list_files(spec, file) if _is_label(name))
    return any(not is_no_label(_read_label(label)) for label in labels)


def _first_dot(name: str) -> str:
    return name.partition(".")[0]


def _last_dot(name: str) -> str:
    return name.rpartition(".")[0]


def _is_label(name: str) -> bool:
    return name.endswith(_LABEL)


def _read_label(content: bytes) -> str:
    return content.decode(encoding_of(content), "replace").strip()


def _list_files(spec: WebDataset, file: str) -> Iterator[tuple[str, str, Callable[[], bytes]]]:
    try:
        with tarfile.open(file, "r|*", tarinfo=_Member) as archive:
            for member in archive:
                folder, name = os.path.split(member.name)
                # A link or a device is never followed.
                if not member.isfile() or is_system_path(member.name) or not (is_image_name(name) or _is_label(name)):
                    continue
                stream = archive.extractfile(member)
                assert stream is not None
                yield folder, name, stream.read
    except (tarfile.TarError, EOFError, zlib.error) as error:
        reason = str(error) or type(error).__name__
        spec.refuse(f"{printable(file)} is not a complete tar file ({reason})", "Get the file again.")


def _read_samples(spec: WebDataset, file: str, stem: Callable[[str], str]) -> Iterator[Sample]:
    files = (
        (f"{folder}/{stem(name)}", _is_label(name), content)
        for folder, name, content in _list_files(spec, file)
        # By the first dot, `7.mask.cls` is another file of sample 7.
        if not _is_label(name) or stem(name) + _LABEL == name
    )
    for key, sample in groupby(files, itemgetter(0)):
        found = dict[bool, bytes]()  # the label and the image of a sample
        for _, is_label, content in sample:
            if is_label in found:
                raise _Unpaired
            found[is_label] = content()
        if len(found) != 2:
            raise _Unpaired
        label = _read_label(found[True])
        if not label:
            name = printable(key.lstrip("/"))
            spec.refuse(f"{name}{_LABEL} in {printable(file)} is empty", "Write the class into it.")
        yield found[False], label


def _list_groups(spec: WebDataset, file: str, stem: Callable[[str], str]) -> list[tuple[str, list[str]]]:
    """Return the names of the files beside each other that belong together, by their stem."""
    files = ((f"{folder}/{stem(name)}", name) for folder, name, _ in _list_files(spec, file))
    return [(key, [name for _, name in group]) for key, group in groupby(files, itemgetter(0))]


def _refuse_unpaired(spec: WebDataset, file: str) -> NoReturn:
    key, names, images, labels = "", list[str](), list[str](), list[str]()
    for key, names in _list_groups(spec, file, _first_dot):  # noqa: B007
        labels = [name for name in names if name == f"{_first_dot(name)}{_LABEL}"]
        images = [name for name in names if not _is_label(name)]
        if (len(images), len(labels)) not in ((1, 1), (0, 0)):
            break
    listed = ", ".join(map(printable, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    spec.refuse(
        f"the sample {printable(key.lstrip('/'))} of {printable(file)} has {len(images)} images and {len(labels)} {_LABEL} "
        f"files ({listed})",
        "The files of a sample have the same name up to its first dot, and lie beside each other in the same tar file. "
        "Each sample needs one image and one label.",
    )

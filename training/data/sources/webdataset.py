"""Tar files in the form of WebDataset (Aizman et al. 2019): the files of a sample have the same name up to its first dot."""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from training.contract.specs import FileData
from training.data.files.images import ImageData
from training.data.files.listing import is_image_name
from training.data.files.system_files import is_system_path
from training.errors import printable

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
    root: str = Field(
        min_length=1, description="Path of the folder, or hf://datasets/OWNER/NAME of the Hugging Face hub."
    )

    def load(self) -> ImageData:
        """Unpack the images of all tar files; the name of a class is the text of its `.cls` files.

        Raises:
            UserError: the folder has no tar file, one is damaged, or a sample lacks its image or its label.
        """
        from training.data.files.unpacked import load_packed

        return load_packed(self, self.root, partial(_read, self))


def _read(spec: WebDataset, file: str) -> Iterator[Sample]:
    key, images, labels = "", list[bytes](), list[bytes]()
    try:
        with tarfile.open(file, "r|*", tarinfo=_Member) as archive:
            for member in archive:
                # A link or a device is never followed.
                if not member.isfile() or is_system_path(member.name):
                    continue
                folder, name = os.path.split(member.name)
                stem, dot, ending = name.partition(".")
                if f"{folder}/{stem}" != key:
                    yield from _pair(spec, file, key, images, labels)
                    key, images, labels = f"{folder}/{stem}", [], []
                if dot and (is_image_name(name) or f".{ending}" == _LABEL):
                    stream = archive.extractfile(member)
                    assert stream is not None
                    (labels if f".{ending}" == _LABEL else images).append(stream.read())
    except (tarfile.TarError, EOFError, zlib.error) as error:
        reason = str(error) or type(error).__name__
        spec.refuse(f"{printable(file)} is not a complete tar file ({reason})", "Get the file again.")
    yield from _pair(spec, file, key, images, labels)


def _pair(spec: WebDataset, file: str, key: str, images: list[bytes], labels: list[bytes]) -> Iterator[Sample]:
    if not images and not labels:
        return
    name = printable(key.lstrip("/"))
    if len(images) != 1 or len(labels) != 1:
        spec.refuse(
            f"the sample {name} of {printable(file)} has {len(images)} images and {len(labels)} {_LABEL} files",
            "Each needs one of both, beside each other in the same tar file.",
        )
    label = labels[0].decode("utf-8", "replace").strip()
    if not label:
        spec.refuse(f"{name}{_LABEL} in {printable(file)} is empty", "Write the class into it.")
    yield images[0], label

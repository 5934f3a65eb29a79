"""Tar files in the form of WebDataset (Aizman et al. 2019): the files of a sample have the same name up to its first dot."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator

from training.contract.specs import WebDataset
from training.data.files.decode import printable
from training.data.files.images import ImageData
from training.data.sources.folders.image_folder import assemble
from training.data.sources.folders.listing import is_image_name, refuse
from training.data.sources.packed.unpacked import Sample, find_packed, unpack

_LABEL = ".cls"


def load_webdataset(spec: WebDataset) -> ImageData:
    """Unpack the images of all tar files; the name of a class is the text of its `.cls` files.

    Raises:
        UserError: the folder has no tar file, one is damaged, or a sample lacks its image or its label.
    """

    def read(files: list[str]) -> Iterator[Sample]:
        for file in files:
            yield from _read(spec, file)

    parts = find_packed(spec, ".tar", ".tar.gz", ".tgz")
    return assemble(spec, {part: unpack(spec, files, read, spec.name) for part, files in parts.items()})


def _read(spec: WebDataset, file: str) -> Iterator[Sample]:
    key, images, labels = "", list[bytes](), list[bytes]()
    try:
        with tarfile.open(file, "r|*") as archive:
            for member in archive:
                if not member.isfile():  # a link or a device is never followed
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
    except (tarfile.TarError, EOFError) as error:
        reason = str(error) or type(error).__name__
        refuse(spec, f"{printable(file)} is not a complete tar file ({reason})", "Get the file again.")
    yield from _pair(spec, file, key, images, labels)


def _pair(spec: WebDataset, file: str, key: str, images: list[bytes], labels: list[bytes]) -> Iterator[Sample]:
    if not images and not labels:
        return
    name = printable(key.lstrip("/"))
    if len(images) != 1 or len(labels) != 1:
        refuse(
            spec,
            f"the sample {name} of {printable(file)} has {len(images)} images and {len(labels)} {_LABEL} files",
            "Each needs one of both, beside each other in the same tar file.",
        )
    label = labels[0].decode("utf-8", "replace").strip()
    if not label:
        refuse(spec, f"{name}{_LABEL} in {printable(file)} is empty", "Write the class into it.")
    yield Sample(images[0], label)

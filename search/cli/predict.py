"""`sweep predict`: labels for images, by an exported model."""

from __future__ import annotations

import codecs
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from analysis.export.summary import Form
from ledger.formatting import plural
from search.cli.options import Plugins
from training.errors import UserError
from training.process.text_files import encoding_of

LARGEST_BYTES = 2**26  # of a list; about half a million paths


def predict(
    export: Annotated[Path, typer.Argument(help="A folder that `sweep export` wrote.")],
    images: Annotated[
        Path | None,
        typer.Argument(
            help="A folder of images, with subfolders, or one image; `-` reads one path per line from standard input."
        ),
    ] = None,
    list_: Annotated[Path | None, typer.Option("--list", help="A text file with a path on each line.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write. Default: predictions.csv; with --json, standard output.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object per line for each image.")] = False,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Write the best K labels only. Default: all probabilities.")
    ] = None,
    model: Annotated[
        Form, typer.Option(help="Model file to use; `sweep export --onnx` and `--int8` write the ONNX files.")
    ] = "torch",
    device: Annotated[
        str, typer.Option(help="Device: `cpu`, `cuda`, `cuda:1` or `mps`; `auto`: a GPU if there is one.")
    ] = "auto",
    batch_size: Annotated[int, typer.Option(min=1, help="Number of images per batch.")] = 64,
    plugins: Plugins = None,
) -> None:
    """Classify images: write one line per image, with the probabilities of all classes or of the best ones."""
    from analysis.export.bundle import check_export
    from training.process.writable import check_file

    check_export(export, model)
    out = out or (None if json else Path("predictions.csv"))
    if out is not None:
        check_file("--out", out)
    chosen = choose_images(images, list_)
    is_replaced = out is not None and out.is_file() and out.stat().st_size > 0
    from analysis.export.prediction import Options, predict_images

    predicted, unreadable = predict_images(export, chosen, out, Options(model, device, batch_size, top_k, json))
    if predicted and out is not None:
        replaced = ", in place of the earlier file" if is_replaced else ""
        print(f"Labelled {plural(predicted, 'image')}: {out}{replaced}.")
    if unreadable:
        if not predicted and out is not None:
            out.unlink()
        count, total = len(unreadable), plural(predicted + len(unreadable), "file")
        verb, them = ("is", "it") if count == 1 else ("are", "them")
        raise UserError(
            f"{count} of {total} cannot be read and {verb} left out: {'; '.join(unreadable[:5])}. Repair or remove {them}."
        )


def choose_images(images: Path | None, list_: Path | None) -> Path | list[str]:
    """Return the folder or image as it is, else the paths that a list has; empty lines are skipped."""
    if (images is None) == (list_ is None):
        problem = "no images are named" if images is None else f"{images} and --list={list_} cannot be combined"
        raise UserError(f"{problem}. Name a folder, an image, - for standard input, or a list: --list files.txt.")
    if images is not None and str(images) != "-":
        return images
    place = "standard input" if list_ is None else f"--list={list_}"
    # `<(command)` of a shell is in /dev/fd.
    if list_ is not None and list_.is_fifo() and list_.parts[:2] != ("/", "dev"):
        raise UserError(
            f"{place}: a named pipe may never end. Name a text file, or give - and send the paths to standard input."
        )
    try:
        with nullcontext(sys.stdin.buffer) if list_ is None else list_.open("rb") as stream:
            content = stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{place}: it cannot be read ({error.strerror or error}). Name a text file.") from None
    if len(content) > LARGEST_BYTES:
        raise UserError(f"{place}: it has more than {LARGEST_BYTES // 2**20} MiB. Give it in parts.")
    if (encoding := encoding_of(content)) == "utf-16":
        content = content.decode(encoding, "replace").encode("utf-8", "replace")
    # Names keep bytes that are not valid text. A name cannot have a zero byte, so such a file is no list.
    lines = [line.removeprefix(codecs.BOM_UTF8) for line in content.splitlines()]  # joined lists have several marks
    paths = [os.fsdecode(line) for line in lines if line.strip()]
    if not paths:
        raise UserError(f"{place}: it has no path of an image. Write one on each line.")
    if b"\0" in content:
        raise UserError(
            f"{place}: it is not a text file with a path on each line. To label one image, leave --list out."
        )
    return paths

"""`sweep predict` and `sweep evaluate`: labels for images by an exported model, and its score on labelled ones."""

from __future__ import annotations

import codecs
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.export.summary import Form
from ledger.formatting import plural
from search.cli.options import AsJson, Plugins
from training.errors import UserError
from training.process.text_files import encoding_of
from training.process.writable import check_file

if TYPE_CHECKING:
    from analysis.export.evaluation import Evaluation

LARGEST_BYTES = 2**26  # of a list; about half a million paths
SHOWN = 30  # classes in the table of the terminal; the page has all
METHOD = (
    "The interval of a share is Wilson's at 95 %, over images. It holds for images of the same kind that the model has "
    "not seen; for those of its training, and those by which it was chosen, the figures are too good."
)

Export = Annotated[Path, typer.Argument(help="A folder that `sweep export` wrote.")]
ModelForm = Annotated[Form, typer.Option(help="Model file; `sweep export --onnx` and `--int8` write the ONNX files.")]
Device = Annotated[str, typer.Option(help="Device: `cpu`, `cuda`, `cuda:1` or `mps`; `auto`: a GPU if there is one.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Number of images per batch.")]


def predict(
    export: Export,
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
    model: ModelForm = "torch",
    device: Device = "auto",
    batch_size: BatchSize = 64,
    plugins: Plugins = None,
) -> None:
    """Classify images: write one line per image, with the probabilities of all classes or of the best ones."""
    from analysis.export.bundle import check_export

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
        raise UserError(f"{place}: it is no text file with a path on each line. To label one image, leave --list out.")
    return paths


def evaluate(
    export: Export,
    folder: Annotated[Path, typer.Argument(help="A folder with one subfolder of images per class.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("evaluation.html"),
    as_json: AsJson = False,
    model: ModelForm = "torch",
    device: Device = "auto",
    batch_size: BatchSize = 64,
    plugins: Plugins = None,
) -> None:
    """Score a model on labelled images: accuracy with its interval, classes, mistakes and a page with the worst ones."""
    from analysis.export.bundle import check_export

    check_export(export, model)
    check_file("--out", out)
    from analysis.export.evaluation import evaluate_folder
    from analysis.export.prediction import Options
    from analysis.held_out.score_page import RECALL, list_recall, render_score
    from analysis.report.page import render_page
    from search.cli.json_output import apart, to_json
    from search.display.terminal import Column, Columns
    from search.evaluation.follow import write_page

    with apart(as_json) as console:
        found = evaluate_folder(export, folder, Options(model, device, batch_size))
        accuracy, *others = _describe(found, folder)
        sections = render_score("", [accuracy, *others, METHOD], found.score, found.classes, found.worst)
        write_page(out, render_page(f"{export.name} on {folder}", sections))
        console.print(accuracy)
        weakest = sorted(found.score["recall"], key=lambda row: row["found"] / row["images"] if row["images"] else 2)
        console.print(Columns([Column(name) for name in RECALL], list_recall(weakest[:SHOWN])))
        for sentence in [*others, f"The page: {out}"]:
            console.print(sentence)
    if as_json:
        print(to_json({"page": str(out), **found.score, "unreadable": found.unreadable}))


def _describe(found: Evaluation, folder: Path) -> list[str]:
    from analysis.export.evaluation import find_confusions
    from analysis.held_out.score_page import format_found

    score = found.score
    images = plural(score["images"], "image")
    sentences = [f"Accuracy {format_found(score['accuracy'])}: {score['correct']:,} of {images} of {folder}."]
    if pairs := find_confusions(found):
        taken = "; ".join(f"{true} for {guess} ({count})" for true, guess, count in pairs)
        sentences.append(f"Most often taken for another class: {taken}.")
    if found.unreadable:
        listed = "; ".join(found.unreadable[:3])
        sentences.append(f"Left out, as they cannot be read: {plural(len(found.unreadable), 'file')}: {listed}.")
    return sentences

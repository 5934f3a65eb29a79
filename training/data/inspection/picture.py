"""A contact sheet of training images as the model gets them, each above its label."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import nn

from training.contract.setup import TrainingSetup
from training.contract.specs import Preprocessing
from training.data.files.images import ImageData
from training.data.pipelines.loaders import make_loaders
from training.process.isolation import isolated_process
from training.recipe import Recipe
from training.techniques.data.mixing import change_batch

PICTURED = 32
COLUMNS = 8
_LEAST_SIDE = 112  # smaller images are enlarged, pixel by pixel
_TEXT = 15


def draw_training(data: ImageData, recipe: Recipe, device: str) -> Image.Image:
    """Draw the first training images of a resolved recipe, augmented, erased and mixed."""
    setup = TrainingSetup(nn.Identity(), device, len(data.classes), (), recipe.preprocessing.side)
    for technique in (recipe.random_erasing, recipe.mixup, recipe.cutmix, recipe.fmix, recipe.mixing):
        if technique.is_on:
            technique.apply(setup)
    images, targets = [], []
    loaders = make_loaders(data, recipe, workers=0, device=device)
    try:
        with isolated_process(recipe.seed, torch.get_num_threads()):
            for batch, labels in loaders.train:
                batch, labels = change_batch(setup, batch, labels)
                images.append(batch)
                targets += list(labels)
                if len(targets) >= PICTURED:
                    break
    finally:
        loaders.close()
    captions = [caption_of(target, data.classes) for target in targets[:PICTURED]]
    return draw_sheet(torch.cat(images)[:PICTURED], captions, recipe.preprocessing)


def draw_sheet(images: torch.Tensor, captions: Sequence[str], preprocessing: Preprocessing) -> Image.Image:
    """Undo the normalisation of images (N, 3, side, side) and arrange them in rows of eight, with lines of text below."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (preprocessing.mean, preprocessing.std))
    pixels = ((images.cpu().float() * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)
    side = pixels.shape[-1] * max(1, -(-_LEAST_SIDE // pixels.shape[-1]))
    rows = -(-len(pixels) // COLUMNS)
    texts = [caption.split("\n") for caption in captions]
    cell = side + 4, side + _TEXT * max(map(len, texts), default=1) + 7
    sheet = Image.new("RGB", (cell[0] * min(COLUMNS, len(pixels)) + 4, cell[1] * rows + 4), "white")
    pen = ImageDraw.Draw(sheet)
    for index, (image, lines) in enumerate(zip(pixels.permute(0, 2, 3, 1).numpy(), texts, strict=True)):
        left, top = 4 + index % COLUMNS * cell[0], 4 + index // COLUMNS * cell[1]
        enlarged = Image.fromarray(np.ascontiguousarray(image)).resize((side, side), Image.Resampling.NEAREST)
        sheet.paste(enlarged, (left, top))
        for number, line in enumerate(lines):
            # Raqm, the other engine, refuses some texts.
            font = ImageFont.truetype(find_font(f"{line}…"), _TEXT - 3, layout_engine=ImageFont.Layout.BASIC)
            pen.text((left, top + side + 1 + number * _TEXT), _shorten(line, side, font), fill="black", font=font)
    return sheet


def caption_of(target: torch.Tensor, classes: Sequence[str]) -> str:
    """Return the name of a label (), or the shares of a mixed target (classes,): `cat 70% + dog 30%`."""
    if target.dim() == 0:
        return classes[int(target)]
    shares = [(float(share), name) for share, name in zip(target, classes, strict=True) if share >= 0.005]
    if len(shares) == 1:
        return shares[0][1]
    return " + ".join(f"{name} {100 * share:.0f}%" for share, name in sorted(shares, reverse=True))


def _shorten(text: str, width: int, font: ImageFont.FreeTypeFont) -> str:
    if font.getlength(text) <= width:
        return text
    while len(text) > 1 and font.getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text}…"


@lru_cache(maxsize=1000)
def find_font(text: str) -> str:
    """Return the file of a font that has all letters of a text; DejaVu Sans, which comes with matplotlib, if there is none."""
    from matplotlib.font_manager import findfont, findSystemFonts

    usual, wanted = findfont("DejaVu Sans"), {ord(letter) for letter in text if not letter.isspace()}
    if wanted <= _letters_of(usual):
        return usual
    return next((font for font in sorted(findSystemFonts()) if wanted <= _letters_of(font)), usual)


@lru_cache(maxsize=1000)
def _letters_of(font: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(font).get_charmap())
    except (OSError, RuntimeError):  # FreeType cannot read this kind
        return frozenset()

"""Pretraining without a download: on rendered letters A–Z, for transfer to other small images."""

from __future__ import annotations

import hashlib
import string
from pathlib import Path

import cv2
import numpy as np
import timm
import torch
import torchvision
from filelock import FileLock
from platformdirs import user_cache_dir
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from training.contract.specs import Backbone
from training.data.sources.digits import SIDE, enlarge
from training.errors import UserError
from training.model.backbones import build_bare
from training.model.stages import list_backbone_tensors
from training.process.isolation import isolated_process
from training.process.text_files import refuse_irregular

VERSION = 3  # increase it after any change below that changes the weights
IMAGES_PER_LETTER = 300
EPOCHS = 2
BATCH_SIZE = 64
PEAK_LR = 0.005
SMOOTHING = 0.1  # label smoothing; it improves the transfer by .03 to .06 when only a new head trains
# cv2.FONT_HERSHEY_*; OpenCV 5 replaces some. Font 5 is left out as a small copy of another.
FONTS = (0, 1, 2, 3, 4, 6, 7)
CANVAS = 64  # side in pixels of the drawing of a letter, before it is reduced to the 8×8 of the digits
WARP = 6.0  # largest shift of each corner of the canvas, in pixels


def letters_weights(backbone: Backbone) -> dict[str, torch.Tensor]:
    """Return the backbone's weights without its head, after pretraining on letters.

    They are trained once per machine and then cached. If several processes need them at the same time, one trains and the
    others wait for its file.
    """
    versions = (VERSION, *(library.__version__ for library in (torch, timm, torchvision, cv2)))
    code = [backbone.code] if backbone.code else []
    key = hashlib.sha256(repr((backbone.source, backbone.name, *code, versions)).encode()).hexdigest()[:16]
    path = Path(user_cache_dir("technique-search")) / f"letters-{backbone.name}-{key}.safetensors"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if (weights := _recall(path)) is None:
                partial = path.with_suffix(".partial")
                save_file(weights := _pretrain(backbone), partial)
                partial.replace(path)
            return weights
    except (OSError, SafetensorError) as error:  # safetensors raises its own error on a full disk
        raise UserError(
            f"backbone.weights=letters: the weights are cached in {path.parent}, which cannot be written to "
            f"({getattr(error, 'strerror', None) or error}). Set XDG_CACHE_HOME to a folder that can."
        ) from None


def _recall(path: Path) -> dict[str, torch.Tensor] | None:
    """Return the cached weights; None if there are none, or if a full disk or a kill has damaged the file."""
    try:
        refuse_irregular(path)
        return load_file(path)
    except (OSError, SafetensorError):
        return None


def render_letters(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw `count` images of each letter: uint8 of shape (26·count, 32, 32, 3), and labels of shape (26·count,)."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(26), count)
    # Reduce the letters to 8×8 first, so that they look like scikit-learn's digits.
    return enlarge(np.stack([_render(string.ascii_uppercase[label], rng) for label in labels])), labels


def _render(letter: str, rng: np.random.Generator) -> np.ndarray:
    """Render one letter as grey levels from 0 to 16: (8, 8)."""
    drawn = _fill_height(_bend(_draw(letter, rng), rng), rng)
    small = cv2.resize(drawn, (8, 8), interpolation=cv2.INTER_AREA)
    return np.minimum(small * (16 / 255) * rng.uniform(1.0, 1.6), 16)  # the strokes of the digits are saturated too


def _draw(letter: str, rng: np.random.Generator) -> np.ndarray:
    canvas = np.zeros((CANVAS, CANVAS), np.uint8)
    font, thickness, scale = int(rng.choice(FONTS)), int(rng.integers(1, 4)), rng.uniform(1.2, 1.9)
    (width, height), _ = cv2.getTextSize(letter, font, scale, thickness)
    corner = ((CANVAS - width) // 2, (CANVAS + height) // 2)
    cv2.putText(canvas, letter, corner, font, scale, (255,), thickness, cv2.LINE_AA)
    return canvas


def _bend(canvas: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    turn = cv2.getRotationMatrix2D((CANVAS / 2, CANVAS / 2), rng.uniform(-15, 15), 1.0)
    turn[0, 1] += rng.uniform(-0.25, 0.25)
    corners = np.array([[0, 0], [CANVAS, 0], [0, CANVAS], [CANVAS, CANVAS]], np.float32)
    moved = corners + rng.uniform(-WARP, WARP, (4, 2)).astype(np.float32)
    warp = cv2.getPerspectiveTransform(corners, moved) @ np.vstack([turn, [0, 0, 1]])
    return cv2.warpPerspective(canvas, warp, (CANVAS, CANVAS))


def _fill_height(canvas: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    rows, columns = np.nonzero(canvas > 64)
    cut = canvas[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    width = int(np.clip(cut.shape[1] * CANVAS / cut.shape[0] * rng.uniform(0.6, 0.9), 12, CANVAS))
    left = int(np.clip((CANVAS - width) // 2 + rng.integers(-4, 5), 0, CANVAS - width))
    filled = np.zeros_like(canvas)
    filled[:, left : left + width] = cv2.resize(cut, (width, CANVAS), interpolation=cv2.INTER_AREA)
    return filled


def _pretrain(backbone: Backbone) -> dict[str, torch.Tensor]:
    # One thread: beside other busy processes, the small layers' threads would wait for each other 30 times longer than
    # they compute.
    with isolated_process(seed=0, threads=1):
        images, targets = render_letters(IMAGES_PER_LETTER, seed=0)
        x = torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)
        x = (x - x.mean()) / x.std()
        y = torch.from_numpy(targets)
        model = build_bare(backbone, 26, SIDE)
        batches = len(y) // BATCH_SIZE
        optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, weight_decay=0.05)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_LR, total_steps=EPOCHS * batches)
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(y))[: batches * BATCH_SIZE].view(batches, BATCH_SIZE):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[batch]), y[batch], label_smoothing=SMOOTHING).backward()
                optimizer.step()
                schedule.step()
        return {name: value.detach().contiguous() for name, value in list_backbone_tensors(model).items()}

"""An embedded pretraining that needs no download: rendered letters A–Z, for transfer to other small images."""

from __future__ import annotations

import hashlib
import string

import numpy as np
import torch
from filelock import FileLock
from platformdirs import user_cache_path
from safetensors.torch import load_file, save_file
from torch import nn

from training.recipe import Backbone

VERSION = 1  # of everything below that changes the weights
IMAGE_SIZE = 32
IMAGES_PER_LETTER = 120
EPOCHS = 6
FONTS = (0, 1, 2, 3, 4, 6, 7)  # cv2.FONT_HERSHEY_*; 5 is a tiny version of another


def letters_weights(backbone: Backbone) -> dict[str, torch.Tensor]:
    """Weights of this backbone after pretraining on letters; trained once per machine, then cached.

    Several processes may ask at once: one trains, the others wait for its file.
    """
    key = hashlib.sha256(f"{backbone.source}/{backbone.name}/{VERSION}/{torch.__version__}".encode()).hexdigest()[:16]
    path = user_cache_path("technique-search", ensure_exists=True) / f"letters-{backbone.name}-{key}.safetensors"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            partial = path.with_suffix(".partial")
            save_file(_pretrain(backbone), partial)
            partial.replace(path)
    return load_file(path)


def render_letters(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw `count` images of each letter: uint8 of shape (26·count, 32, 32, 3), and labels of shape (26·count,)."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(26), count)
    return np.stack([_render(string.ascii_uppercase[label], rng) for label in labels]), labels


def _render(letter: str, rng: np.random.Generator) -> np.ndarray:
    import cv2

    canvas = np.zeros((64, 64), np.uint8)
    font, thickness = int(rng.choice(FONTS)), int(rng.integers(3, 7))
    scale = rng.uniform(1.4, 2.0)
    (width, height), _ = cv2.getTextSize(letter, font, scale, thickness)
    corner = (int((64 - width) / 2 + rng.integers(-4, 5)), int((64 + height) / 2 + rng.integers(-4, 5)))
    cv2.putText(canvas, letter, corner, font, scale, 255, thickness, cv2.LINE_AA)
    turn = cv2.getRotationMatrix2D((32, 32), rng.uniform(-15, 15), 1.0)
    turn[0, 1] += rng.uniform(-0.2, 0.2)  # shear, as in handwriting
    canvas = cv2.warpAffine(canvas, turn, (64, 64))
    # Down to 8×8 first: the letters then look like scikit-learn's digits.
    small = cv2.resize(canvas, (8, 8), interpolation=cv2.INTER_AREA)
    large = cv2.resize(small, (IMAGE_SIZE, IMAGE_SIZE), interpolation=cv2.INTER_LINEAR)
    return np.repeat(large[..., None], 3, axis=2)


def _pretrain(backbone: Backbone) -> dict[str, torch.Tensor]:
    from training.isolation import isolated_process
    from training.models import build_model, head_of

    with isolated_process(seed=0, threads=torch.get_num_threads()):
        images, labels = render_letters(IMAGES_PER_LETTER, seed=0)
        x = torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)
        x = (x - x.mean()) / x.std()
        y = torch.from_numpy(labels)
        model = build_model(backbone.model_copy(update={"weights": "none"}), 26, IMAGE_SIZE).train()
        batches = len(y) // 64
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=EPOCHS * batches)
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(y))[: batches * 64].view(batches, 64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
                schedule.step()
        head = {id(p) for p in head_of(model).parameters()}
        state = model.state_dict(keep_vars=True)
        return {name: v.detach().contiguous() for name, v in state.items() if id(v) not in head}

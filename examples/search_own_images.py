"""Search techniques on a folder of images, and write a report.

    python examples/search_own_images.py                 # first draws a folder of shapes
    python examples/search_own_images.py photos          # uses your folder, with one folder per class

Six short trainings take one to two minutes on two CPU cores. The sweep, its report and the MLflow database are written
to the working folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import search

SPACE = Path(__file__).with_name("shapes.yaml")
SHAPES = {"circle": ImageDraw.ImageDraw.ellipse, "square": ImageDraw.ImageDraw.rectangle}
SIDE = 32  # pixels


def draw_shapes(folder: Path, images_per_class: int = 60) -> Path:
    """Write PNG files of circles and squares, one folder per class."""
    rng = np.random.default_rng(0)
    for name, draw_shape in SHAPES.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(images_per_class):
            image = Image.fromarray(rng.integers(0, 120, (SIDE, SIDE, 3), dtype=np.uint8))
            left, top, size = rng.integers(2, 14), rng.integers(2, 14), rng.integers(8, 16)
            colour = tuple(int(value) for value in rng.integers(120, 256, 3))
            draw_shape(ImageDraw.Draw(image), (left, top, left + size, top + size), fill=colour)
            image.save(folder / name / f"{number}.png")
    return folder


def main(arguments: list[str]) -> None:
    images = Path(arguments[0]) if arguments else draw_shapes(Path("shapes"))
    result = search.run(SPACE, [f"data.root={images}"])
    result.report()
    if result.best is not None:
        print(f"Best: trial {result.best.name}, {result.best.score:.1%}, lr {result.best.recipe.optimizer.lr:.2g}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Images per second of each data loading backend, and the share of the training time spent waiting for data."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from training.data.files.images import ImageData, ImageFiles, ImagePart
from training.data.files.pixel_store import LIMIT_VARIABLES
from training.data.pipelines.loaders import make_loaders
from training.recipe import Recipe, read_recipe
from training.resolve import with_backend

BATCH = 128
Makers = dict[str, Callable[[], tuple[Any, Callable[[], None]]]]
PREPROCESSING = {"image_size": 32, "crop": 1.0, "interpolation": "bilinear", "mean": [0.5] * 3, "std": [0.25] * 3}

POLICIES: dict[str, dict[str, Any]] = {
    "affine_colour": {"augmentation": {"policy": "affine_colour"}},
    "crop and flip": {"random_crop": {"name": "resized"}, "flip": {"probability": 0.5}},
}


def make_data(folder: Path, count: int) -> dict[str, ImageData]:
    """Make the same noisy images as arrays and as JPEG files of 32×32, and JPEG files of 400×300."""
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (count, 6, 6, 3), dtype=np.uint8)

    def enlarge(side: tuple[int, int], images: np.ndarray) -> list[Image.Image]:
        return [Image.fromarray(image).resize(side, Image.Resampling.BICUBIC) for image in images]

    def files(name: str, images: list[Image.Image]) -> ImageFiles:
        paths = [str(folder / f"{name}-{number}.jpg") for number in range(len(images))]
        for path, image in zip(paths, images, strict=True):
            image.save(path, quality=90)
        return ImageFiles(paths)

    small, photos = enlarge((32, 32), coarse), enlarge((400, 300), coarse[:600])
    sources: dict[str, Any] = {
        "arrays 32×32": np.stack([np.asarray(image) for image in small]),
        "JPEG 32×32": files("small", small),
        "JPEG 400×300": files("photo", photos),
    }
    return {name: wrap(name, images) for name, images in sources.items()}


def wrap(name: str, images: np.ndarray | ImageFiles) -> ImageData:
    part = ImagePart(np.arange(len(images)) % 10, images)
    few = part.select(np.arange(16))
    return ImageData(name, tuple("abcdefghij"), part, few, few)


def our_loader(data: ImageData, recipe: Recipe, backend: str, workers: int) -> tuple[Any, Callable[[], None]]:
    loaders = make_loaders(data, with_backend(recipe, backend), workers=workers)
    return loaders.train, loaders.close


def torchvision_loader(data: ImageData, recipe: Recipe, workers: int) -> tuple[Any, Callable[[], None]]:
    """Build a loader as in torchvision's documentation: transforms of version 2 on each image, in our policy's order."""
    from torchvision.transforms import v2

    images, labels, policy = data.train.images, data.train.labels, recipe.augmentation
    normalise = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)]
    if policy.policy == "affine_colour":
        turn = v2.RandomAffine(15, (0.05, 0.05), (1.0, 1.05), interpolation=v2.InterpolationMode.BILINEAR)
        # torchvision has no shift of colours; a change of hue replaces it.
        colours = [v2.RandomApply([v2.ColorJitter(hue=0.05)]), v2.RandomApply([v2.ColorJitter(0.2, 0.2)])]
        transform = v2.Compose([v2.RandomApply([turn]), *colours, *normalise])
    else:
        side = recipe.preprocessing.image_size
        transform = v2.Compose(
            [v2.RandomResizedCrop((side, side), antialias=True), v2.RandomHorizontalFlip(), *normalise]
        )

    class Images(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(labels)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return transform(torch.from_numpy(images[index]).permute(2, 0, 1)), int(labels[index])

    loader = DataLoader(Images(), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    return loader, lambda: None


def kornia_loader(data: ImageData, recipe: Recipe) -> tuple[Any, Callable[[], None]]:
    """Build a loader as in kornia's documentation: all data as a tensor, and each batch augmented as a whole."""
    import kornia.augmentation as K

    assert isinstance(data.train.images, np.ndarray)
    images = torch.from_numpy(data.train.images).permute(0, 3, 1, 2)
    labels = torch.from_numpy(data.train.labels)
    transform = torch.nn.Sequential(
        K.RandomAffine(15.0, (0.05, 0.05), (1.0, 1.05), p=0.5),
        K.RandomRGBShift(15 / 255, 15 / 255, 15 / 255, p=0.5),
        K.ColorJitter(0.2, 0.2, p=0.5),
        K.Normalize(torch.full((3,), 0.5), torch.full((3,), 0.25)),
    )

    class Batches:
        def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            for chosen in torch.randperm(len(images)).split(BATCH):
                yield transform(images[chosen].float() / 255), labels[chosen]

    return Batches(), lambda: None


def copy_loader(data: ImageData, recipe: Recipe) -> tuple[Any, Callable[[], None]]:
    """Build a loader that only copies prepared batches in a shuffled order, as an upper limit."""
    side = recipe.preprocessing.image_size
    ready = torch.rand(min(len(data.train), 2000), 3, side, side)

    class Copies:
        def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            for chosen in torch.randperm(len(ready)).split(BATCH):
                yield ready[chosen], chosen

    return Copies(), lambda: None


def run_for(loader: Iterable[Any], seconds: float) -> float:
    """Return the images per second, measured over at least `seconds` seconds and one batch."""
    start, count = time.perf_counter(), 0
    while True:
        for images, _ in loader:
            count += len(images)
            if time.perf_counter() - start >= seconds:
                return count / (time.perf_counter() - start)


def measure(makers: Makers, args: argparse.Namespace) -> dict[str, list[float]]:
    """Measure all loaders in turns, so that other load on the machine affects all equally."""
    made = {name: make() for name, make in makers.items()}
    speeds: dict[str, list[float]] = {name: [] for name in made}
    try:
        for loader, _ in made.values():
            run_for(loader, 0.0)
        for _ in range(args.turns):
            for name, (loader, _) in made.items():
                speeds[name].append(run_for(loader, args.seconds))
    finally:
        for _, close in made.values():
            close()
    return speeds


def streaming(make: Callable[[], Any]) -> Callable[[], Any]:
    """Disable the cache of decoded pixels, so that each image is decoded each time."""

    def made() -> Any:
        os.environ[LIMIT_VARIABLES["pixels"]] = "0"
        try:
            return make()
        finally:
            del os.environ[LIMIT_VARIABLES["pixels"]]

    return made


def compare(name: str, data: ImageData, policy: str, side: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    recipe = read_recipe(
        {**POLICIES[policy], "preprocessing": {**PREPROCESSING, "image_size": side}, "batch_size": BATCH}
    )
    files = isinstance(data.train.images, ImageFiles)
    makers: Makers = {"albumentations, 0 workers": streaming(lambda: our_loader(data, recipe, "albumentations", 0))}
    if files:
        makers["albumentations, 1 worker"] = streaming(lambda: our_loader(data, recipe, "albumentations", 1))
    if files and recipe.random_crop.name != "resized":
        makers["albumentations, 0 workers, already decoded"] = lambda: our_loader(data, recipe, "albumentations", 0)
    makers |= {
        "tensor": lambda: our_loader(data, recipe, "tensor", 0),
        "dali, 1 thread": lambda: our_loader(data, recipe, "dali", 1),
        "torchvision v2, 0 workers": lambda: torchvision_loader(data, recipe, 0),
        "torchvision v2, 1 worker": lambda: torchvision_loader(data, recipe, 1),
        "copying only": lambda: copy_loader(data, recipe),
    }
    if not files:
        makers["kornia"] = lambda: kornia_loader(data, recipe)
    speeds = measure(makers, args)
    base = speeds["albumentations, 0 workers"]
    rows = []
    for way, values in speeds.items():
        ratios = sorted(value / other for value, other in zip(values, base, strict=True))
        row = {"source": name, "policy": policy, "way": way, "images_per_second": round(median(values))}
        rows.append(
            row | {"ratio": round(median(ratios), 2), "least": round(ratios[0], 2), "most": round(ratios[-1], 2)}
        )
        print(
            f"| {name} | {row['policy']} | {way} | {row['images_per_second']:,} | "
            f"{rows[-1]['ratio']} [{rows[-1]['least']}, {rows[-1]['most']}] |",
            flush=True,
        )
    return rows


def measure_waiting(data: ImageData, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Train ResNet-18 on 32×32 images, and measure the time that the loop waits for its next batch."""
    import timm

    rows = []
    shares: dict[str, list[float]] = {"albumentations": [], "tensor": [], "dali": []}
    values = {"augmentation": {"policy": "affine_colour"}, "preprocessing": PREPROCESSING, "batch_size": BATCH}
    recipe = read_recipe(values)
    model = timm.create_model("resnet18", num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(args.turns):
        for backend in shares:
            loader, close = our_loader(data, recipe, backend, 1)
            batches = iter(loader)
            next(batches)
            waited, start = 0.0, time.perf_counter()
            for _ in range(args.steps):
                asked = time.perf_counter()
                images, labels = next(batches)
                waited += time.perf_counter() - asked
                torch.nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                optimizer.zero_grad()
            shares[backend].append(100 * waited / (time.perf_counter() - start))
            close()
    for backend, found in shares.items():
        rows.append({"waiting": backend, "percent": round(median(found), 2), "most": round(max(found), 2)})
        print(f"| {backend} | {median(found):.2f} % | {max(found):.2f} % |", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    parser.add_argument("--turns", type=int, default=5, help="repetitions of each, in turns")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each repetition")
    parser.add_argument("--steps", type=int, default=8, help="training steps, to measure the share of waiting")
    parser.add_argument("--images", type=int, default=4000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # decoded pixels are removed with the folder
        sources = make_data(Path(folder), args.images)
        print("| source | policy | backend | images/s | ratio to albumentations [min, max] |\n|---|---|---|---|---|")
        for name, policy, side in (
            ("arrays 32×32", "affine_colour", 32),
            ("JPEG 32×32", "affine_colour", 32),
            ("JPEG 400×300", "crop and flip", 224),
        ):
            rows += compare(name, sources[name], policy, side, args)
        print("\n| backend | waiting, median | maximum |\n|---|---|---|")
        rows += measure_waiting(sources["arrays 32×32"], args)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()

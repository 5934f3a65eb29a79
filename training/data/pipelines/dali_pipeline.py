"""Augmentation as a graph of NVIDIA DALI: decode, crop or fit, mirror, change, normalise. The draws are inputs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch

from training.contract.specs import Preprocessing
from training.data.pipelines.augmentation_draws import draw_changes, draw_geometry
from training.data.pipelines.dali_choices import change_by_choice, draw_choice_inputs, import_dali
from training.data.preprocessing.transform import fill_colour, find_corner, resized_size
from training.process.optional import require
from training.recipe import Recipe
from training.techniques.data.augmentation import AffineColour
from training.techniques.data.random_crop import PaddedCrop, ResizedCrop
from training.techniques.data.torchvision_policies import RandAugment, TrivialAugment

if TYPE_CHECKING:
    from nvidia.dali import Pipeline
    from nvidia.dali.data_node import DataNode


def make_pipeline(recipe: Recipe, *, encoded: bool, fitting: bool, threads: int, device: str) -> Pipeline:
    """Build a resolved recipe's pipeline from `images` and the inputs of `make_inputs` to float32 (N, 3, side, side).

    The images are bytes of files if `encoded`, else arrays; if `fitting`, they have the size of the model's input.
    """
    require(
        "augmentation.backend=dali",
        "nvidia.dali",
        otherwise="It exists for Linux on x86-64. Or use augmentation.backend=auto, which needs nothing more.",
    )
    from nvidia.dali import pipeline_def

    on_gpu, policy = device == "cuda", recipe.augmentation

    def graph() -> DataNode:
        if isinstance(recipe.random_crop, ResizedCrop):
            images = _crop(_source(encoded), recipe.preprocessing, encoded, on_gpu)
        else:
            images = _fit(_source(encoded), recipe.preprocessing, encoded, fitting, on_gpu)
        images = _place(images, recipe)
        if isinstance(policy, AffineColour):
            images = _change(images, recipe.preprocessing)
        if isinstance(policy, TrivialAugment | RandAugment):
            images = change_by_choice(images, policy, recipe.preprocessing)
        return _normalise(images, recipe.preprocessing)

    # With a queue of one, the next batch is prepared while the model trains on this one.
    options = {"batch_size": recipe.batch_size, "num_threads": threads, "prefetch_queue_depth": 1, "seed": 0}
    branches = isinstance(policy, TrivialAugment | RandAugment)
    with warnings.catch_warnings(record=True):  # DALI's changes use names that DALI has deprecated
        device_id = torch.cuda.current_device() if on_gpu else None
        pipeline = pipeline_def(enable_conditionals=branches)(graph)(device_id=device_id, **options)
        pipeline.build()
    return pipeline


def make_inputs(recipe: Recipe, seeds: np.ndarray, sizes: np.ndarray, fitting: bool) -> dict[str, np.ndarray]:
    """Return the inputs other than the images, by name. `sizes` (N, 2) holds height and width of the loaded images."""
    policy, preprocessing = recipe.augmentation, recipe.preprocessing
    side = preprocessing.side
    geometry = draw_geometry(recipe, seeds, sizes)
    inputs: dict[str, np.ndarray] = {}
    if geometry.boxes is not None:
        inputs = _typed(np.int32, start=geometry.boxes[:, :2], extent=geometry.boxes[:, 2:])
    if geometry.mirrored is not None:
        inputs |= _typed(np.int32, mirror=geometry.mirrored)
    if not fitting and not isinstance(recipe.random_crop, ResizedCrop):
        scaled = np.array([resized_size((width, height), preprocessing)[::-1] for height, width in sizes.tolist()])
        starts = np.array([[find_corner(length, side) for length in size] for size in scaled.tolist()])
        inputs |= _typed(np.float32, resized=scaled) | _typed(np.int32, corner=starts)
    if isinstance(policy, TrivialAugment | RandAugment):
        inputs |= draw_choice_inputs(policy, seeds, side)
    if isinstance(policy, AffineColour):
        changes = draw_changes(policy, seeds, side)
        colours = {"shift": changes.shift, "gain": changes.gain[:, None], "offset": changes.offset[:, None]}
        matrix = (
            np.tile(np.eye(2, 3, dtype=np.float32), (len(seeds), 1, 1)) if changes.matrix is None else changes.matrix
        )
        # DALI's coordinates refer to the corners of pixels, ours to their centres.
        corners = matrix.copy()
        corners[:, :, 2] += 0.5 - 0.5 * matrix[:, :, :2].sum(axis=2)
        inputs |= _typed(np.float32, matrix=corners, **colours)
    return inputs


def _typed(dtype: type, **values: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(value, dtype) for name, value in values.items()}


def _source(encoded: bool) -> DataNode:
    fn, types, _ = import_dali()
    layout = {} if encoded else {"layout": "HWC"}
    return fn.external_source(name="images", dtype=types.UINT8, ndim=1 if encoded else 3, **layout)


def _input(name: str, ndim: int, whole: bool = False) -> DataNode:
    fn, types, _ = import_dali()
    return fn.external_source(name=name, dtype=types.INT32 if whole else types.FLOAT, ndim=ndim)


def _crop(source: DataNode, preprocessing: Preprocessing, encoded: bool, on_gpu: bool) -> DataNode:
    fn, types, _ = import_dali()
    box = {"start": _input("start", 1, whole=True), "shape": _input("extent", 1, whole=True), "axes": (0, 1)}
    if encoded:
        images = fn.decoders.image_slice(source, device="mixed" if on_gpu else "cpu", output_type=types.RGB, **box)
    else:
        images = fn.slice(source.gpu() if on_gpu else source, **box)
    side = preprocessing.image_size
    return fn.resize(images, size=[side, side], interp_type=_interpolation(preprocessing), antialias=True)


def _fit(source: DataNode, preprocessing: Preprocessing, encoded: bool, fitting: bool, on_gpu: bool) -> DataNode:
    fn, types, _ = import_dali()
    if encoded:
        images = fn.decoders.image(source, device="mixed" if on_gpu else "cpu", output_type=types.RGB)
    else:
        images = source.gpu() if on_gpu else source
    if fitting:
        return images
    side = preprocessing.image_size
    resized = _input("resized", 1)
    images = fn.resize(images, size=resized, interp_type=_interpolation(preprocessing), antialias=True)
    border = {"out_of_bounds_policy": "pad", "fill_values": list(fill_colour(preprocessing))}
    return fn.slice(images, start=_input("corner", 1, whole=True), shape=[side, side], axes=(0, 1), **border)


def _place(images: DataNode, recipe: Recipe) -> DataNode:
    fn, _, _ = import_dali()
    if isinstance(recipe.random_crop, PaddedCrop):
        box = {"start": _input("start", 1, whole=True), "shape": _input("extent", 1, whole=True), "axes": (0, 1)}
        images = fn.slice(images, **box, out_of_bounds_policy="pad", fill_values=0)
    return fn.flip(images, horizontal=_input("mirror", 0, whole=True)) if recipe.flip.probability else images


def _change(images: DataNode, preprocessing: Preprocessing) -> DataNode:
    fn, types, math = import_dali()
    images = fn.warp_affine(
        images,
        matrix=_input("matrix", 2),
        fill_value=0.0,
        # warp_affine has no bicubic interpolation.
        interp_type=types.INTERP_NN if preprocessing.interpolation == "nearest" else types.INTERP_LINEAR,
    )
    shifted = math.clamp(fn.cast(images, dtype=types.FLOAT) + _input("shift", 1), 0.0, 255.0)
    return math.clamp(shifted * _input("gain", 1) + _input("offset", 1), 0.0, 255.0)


def _normalise(images: DataNode, preprocessing: Preprocessing) -> DataNode:
    fn, types, _ = import_dali()
    assert not isinstance(preprocessing.mean, str)  # resolved
    assert not isinstance(preprocessing.std, str)
    return fn.crop_mirror_normalize(
        images,
        mean=[255 * value for value in preprocessing.mean],
        std=[255 * value for value in preprocessing.std],
        dtype=types.FLOAT,
        output_layout="CHW",
    )


def _interpolation(preprocessing: Preprocessing) -> object:
    _, types, _ = import_dali()
    kinds = {"nearest": types.INTERP_NN, "bilinear": types.INTERP_LINEAR, "bicubic": types.INTERP_CUBIC}
    return kinds[preprocessing.interpolation]

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from training.contract.specs import Backbone, Preprocessing
from training.data.files.decode import read_image
from training.data.files.images import ImageData, ImageFiles, ImagePart
from training.data.load_data import load_data
from training.data.pipelines.datasets import EvalImages
from training.data.preprocessing import transform
from training.data.preprocessing.defaults import measure, resolve_preprocessing
from training.data.preprocessing.transform import fit, normalise
from training.data.sources.digits import Digits
from training.data.sources.image_folder import ImageFolder
from training.model.weights import pretrained_config

WEIGHTS = {
    "input_size": (3, 160, 160),
    "crop_pct": 0.95,
    "interpolation": "bicubic",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}


def made(size, count=6):
    random = np.random.default_rng(1)
    pixels = random.integers(0, 200, (count, *size, 3), dtype=np.uint8) + np.array([50, 20, 0], np.uint8)
    part = ImagePart(np.arange(count) % 2, pixels)
    return ImageData("made", ("a", "b"), part, part, part)


@pytest.mark.parametrize("size", [(40, 60), (300, 200), (64, 64), (25, 333)])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("crop", [1.0, 0.875, 0.95])
def test_fitting_an_image_equals_timms_evaluation_transform(size, interpolation, crop):
    from timm.data import create_transform

    preprocessing = Preprocessing(image_size=64, crop=crop, interpolation=interpolation, mean=[0.0] * 3, std=[1.0] * 3)
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    reference = create_transform((3, 64, 64), interpolation=interpolation, crop_pct=crop, mean=(0,) * 3, std=(1,) * 3)
    expected = (reference(Image.fromarray(image)) * 255).round().byte().permute(1, 2, 0).numpy()
    assert np.array_equal(fit(image, preprocessing), expected)


@pytest.mark.parametrize("size", [(40, 900), (901, 37)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_where_the_resized_image_would_be_too_large_its_centre_alone_is_resized(size, interpolation, monkeypatch):
    preprocessing = Preprocessing(image_size=64, crop=0.9, interpolation=interpolation, mean=[0.0] * 3, std=[1.0] * 3)
    down, right, colour = np.indices((*size, 3))
    image = (128 + 60 * np.sin(down / 5 + colour) + 60 * np.cos(right / 7)).astype(np.uint8)
    expected = fit(image, preprocessing)
    with monkeypatch.context() as patched:
        patched.setattr("training.data.preprocessing.transform.MAX_PIXELS", 71 * 71)
        found = fit(image, preprocessing)
    assert np.abs(found.astype(int) - expected).max() <= 2  # rounding between the two passes of a resize


def test_the_longest_image_is_fitted_to_a_large_input_in_little_memory():
    preprocessing = Preprocessing(image_size=512, crop=0.1, interpolation="bilinear", mean=[0.0] * 3, std=[1.0] * 3)
    # Resized as a whole, it would have 5,120 × 768,000 pixels.
    assert fit(np.full((1, 150, 3), 7, np.uint8), preprocessing).tolist() == np.full((512, 512, 3), 7).tolist()


@pytest.mark.parametrize("mode", ["squash", "border"])
@pytest.mark.parametrize("size", [(50, 40), (33, 90), (64, 64), (200, 31)])
@pytest.mark.parametrize("crop", [1.0, 0.875])
def test_the_other_crop_modes_equal_timms(mode, size, crop):
    from timm.data import create_transform

    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.2, 0.2]
    ours = Preprocessing(image_size=32, crop=crop, crop_mode=mode, interpolation="bicubic", mean=mean, std=std)
    theirs = create_transform(
        (3, 32, 32), crop_pct=crop, crop_mode=mode, interpolation="bicubic", mean=tuple(mean), std=tuple(std)
    )
    torch.testing.assert_close(
        normalise(fit(image, ours)[None], ours)[0], theirs(Image.fromarray(image)), rtol=0, atol=1e-5
    )


def test_weights_that_were_scored_on_squashed_images_get_squashed_ones():
    name = next(name for name in timm.list_pretrained("vit*") if timm.get_pretrained_cfg(name).crop_mode == "squash")
    data = load_data(Digits())
    config = pretrained_config(Backbone(name=name, weights="pretrained"))
    assert resolve_preprocessing(Preprocessing(), data, config).crop_mode == "squash"
    chosen = Preprocessing(crop_mode="center")
    assert resolve_preprocessing(chosen, data, config).crop_mode == "center"


def test_auto_means_the_weights_own_input():
    found = resolve_preprocessing(Preprocessing(), made((224, 230)), WEIGHTS)
    assert (found.image_size, found.crop, found.interpolation) == (160, 0.95, "bicubic")
    assert found.mean == [0.485, 0.456, 0.406]
    assert found.std == [0.229, 0.224, 0.225]


def test_set_values_stay_unchanged():
    asked = Preprocessing(image_size=48, mean=[0.1, 0.2, 0.3])
    found = resolve_preprocessing(asked, made((32, 32)), WEIGHTS)
    assert (found.image_size, found.mean, found.crop) == (48, [0.1, 0.2, 0.3], 1.0)
    assert resolve_preprocessing(Preprocessing(crop=0.9), made((32, 32)), WEIGHTS).crop == 0.9
    assert resolve_preprocessing(found, made((32, 32)), None) is found


@pytest.mark.parametrize(
    ("size", "image_size", "crop"),
    [
        ((32, 32), "auto", 1.0),
        ((96, 96), 64, 1.0),  # larger than the input, but no photographs
        ((223, 400), 64, 1.0),
        ((224, 400), 64, 0.95),
        ((235, 400), 224, 1.0),  # the crop needs 224 / 0.95 = 235.8 pixels
        ((236, 400), 224, 0.95),
    ],
)
def test_small_images_are_used_whole_with_the_crop_of_pretrained_weights(size, image_size, crop, tmp_path):
    preprocessing = Preprocessing(image_size=image_size)
    assert resolve_preprocessing(preprocessing, made(size), WEIGHTS).crop == crop
    for number in range(3):
        Image.new("RGB", size[::-1]).save(tmp_path / f"{number}.png")
    part = ImagePart(np.array([0, 1, 0]), ImageFiles([str(path) for path in sorted(tmp_path.iterdir())]))
    files = ImageData("made", ("a", "b"), part, part, part)
    assert resolve_preprocessing(preprocessing, files, WEIGHTS).crop == crop


@pytest.mark.parametrize(
    ("size", "expected"), [((32, 32), (32, 1.0)), ((90, 70), (70, 1.0)), ((300, 400), (224, 0.875)), ((4, 4), (8, 1.0))]
)
def test_without_weights_auto_means_the_size_of_the_images(size, expected):
    found = resolve_preprocessing(Preprocessing(), made(size), None)
    assert (found.image_size, found.crop) == expected


def test_colours_are_measured_as_numpy_does_in_memory():
    data = made((10, 12))
    _, mean, std = measure(data.train)
    np.testing.assert_allclose(mean, data.train.images.mean(axis=(0, 1, 2)) / 255, atol=1e-6)
    np.testing.assert_allclose(std, data.train.images.std(axis=(0, 1, 2)) / 255, atol=1e-6)


def test_colours_are_measured_as_numpy_does_in_files_of_several_sizes(photos):
    root = photos({"cat": 3, "dog": 4}, size=(20, 30))
    photos({"ant": 5}, size=(9, 50))
    paths = sorted(str(path) for path in root.rglob("*.png"))
    side, mean, std = measure(ImagePart(np.zeros(12, np.int64), ImageFiles(paths)))
    images = [read_image(path).reshape(-1, 3) / 255 for path in paths]
    expected = np.mean([image.mean(axis=0) for image in images], axis=0)
    assert side == 20
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    squares = np.mean([(image**2).mean(axis=0) for image in images], axis=0)
    np.testing.assert_allclose(std, np.sqrt(squares - expected**2), atol=1e-6)


def test_a_huge_image_has_the_same_weight_as_another(tmp_path):
    sizes = [(8, 8), (8, 8), (8, 8), (800, 800)]
    for number, size in enumerate(sizes):
        Image.new("RGB", size, "black" if number == 3 else "white").save(tmp_path / f"{number}.png")
    paths = sorted(str(path) for path in tmp_path.iterdir())
    _, mean, _ = measure(ImagePart(np.zeros(4, np.int64), ImageFiles(paths)))
    assert mean == [0.75] * 3


def test_colours_come_from_training_images_only(photos):
    data = load_data(ImageFolder(root=str(photos({"cat": 10, "dog": 10}))))
    before = resolve_preprocessing(Preprocessing(), data, None)
    for path in (*data.val.images.paths, *data.test.images.paths):
        Image.new("RGB", (10, 12)).save(path)
    assert resolve_preprocessing(Preprocessing(), data, None) == before


def test_colours_of_files_are_cached_until_a_file_changes(photos, monkeypatch):
    root = photos({"cat": 10, "dog": 10})
    data = load_data(ImageFolder(root=str(root)))
    first = resolve_preprocessing(Preprocessing(), data, None)
    with monkeypatch.context() as patched:
        patched.setattr("training.data.preprocessing.defaults.read_image", None)
        assert resolve_preprocessing(Preprocessing(), data, None) == first
    Image.new("RGB", (10, 12)).save(data.train.images.paths[0])
    assert resolve_preprocessing(Preprocessing(), data, None).mean != first.mean


def test_at_most_10000_images_are_measured():
    part = ImagePart(np.zeros(25_000, np.int64), np.zeros((25_000, 8, 8, 3), np.uint8))
    part.images[12_500:] = 255
    _, mean, _ = measure(part)
    assert mean[0] != 0.5
    assert abs(mean[0] - 0.5) < 0.02
    assert measure(part) == measure(part)


def test_images_of_one_flat_colour_can_be_normalised():
    part = ImagePart(np.zeros(3, np.int64), np.full((3, 8, 8, 3), 7, np.uint8))
    assert min(measure(part)[2]) > 0


def test_preprocessing_of_digits_is_resolved_completely():
    found = resolve_preprocessing(Preprocessing(), load_data(Digits(train_size=50)), None)
    assert "auto" not in found.model_dump().values()


def test_large_photographs_are_decoded_no_larger_than_needed(tmp_path):
    rows, columns = np.mgrid[:1600, :1200] / 1600
    photo = np.stack([np.sin(9 * rows), np.cos(7 * columns), rows * columns], axis=-1) * 90 + 128
    Image.fromarray(photo.astype(np.uint8)).save(tmp_path / "photo.jpg", quality=95)
    part = ImagePart(np.zeros(1, np.int64), ImageFiles([str(tmp_path / "photo.jpg")]))
    preprocessing = Preprocessing(image_size=64, crop=0.875, interpolation="bicubic", mean=[0.0] * 3, std=[1.0] * 3)
    dataset = EvalImages(part, preprocessing)
    assert min(dataset.images[0].shape[:2]) in range(2 * 73, 4 * 73)
    whole, reduced = (fit(images[0], preprocessing).astype(float) for images in (part.images, dataset.images))
    assert np.abs(whole - reduced).max() <= 3


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("shape", [(20, 2900), (2900, 20), (40, 1500), (300, 310), (7, 1000)])
def test_a_thin_image_is_resized_in_strips_to_the_same_pixels(shape, interpolation, monkeypatch):
    image = np.random.default_rng(0).integers(0, 255, (*shape, 3), dtype=np.uint8)
    values = {"image_size": 224, "crop": 0.875, "crop_mode": "center", "mean": [0.5] * 3, "std": [0.5] * 3}
    preprocessing = Preprocessing(**values, interpolation=interpolation)
    monkeypatch.setattr(transform, "_WHOLE_PIXELS", 10**9)
    whole = transform.fit(image, preprocessing)
    monkeypatch.setattr(transform, "_WHOLE_PIXELS", 10_000)
    assert transform.fit(image, preprocessing).tolist() == whole.tolist()


def test_a_thin_image_is_never_enlarged_as_a_whole(monkeypatch):
    sizes, resize = [], Image.Image.resize

    def watch(image, size, *arguments, **named):
        sizes.append(size[0] * size[1])
        return resize(image, size, *arguments, **named)

    monkeypatch.setattr(Image.Image, "resize", watch)
    values = {"image_size": 224, "crop": 0.875, "crop_mode": "center", "mean": [0.5] * 3, "std": [0.5] * 3}
    transform.fit(np.zeros((2900, 20, 3), np.uint8), Preprocessing(**values, interpolation="bicubic"))
    assert max(sizes) <= 2**22

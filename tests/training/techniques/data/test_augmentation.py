import json

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter, ImageOps
from torchvision.transforms import v2

from training.data.pipelines.datasets import Augmenter
from training.errors import UserError
from training.recipe import read_recipe

SIDE = 32
PREPROCESSING = {"image_size": SIDE, "crop": 1.0, "interpolation": "bilinear", "mean": [0.5] * 3, "std": [0.2] * 3}
OFF = {"translate": 0.0, "scale": 0.0, "rotate": 0.0, "rgb_shift": 0.0, "brightness": 0.0, "contrast": 0.0}
GREY = np.full((SIDE, SIDE, 3), 128, np.uint8)
BLOB = np.zeros((SIDE, SIDE, 3), np.uint8)
BLOB[10:22, 13:19] = 200
PHOTO = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def cropped(image, count=200, **parts):
    augment = Augmenter(read_recipe({"preprocessing": PREPROCESSING, **parts}))
    return np.stack([augment(image, seed) for seed in range(count)]).astype(float)


def augmented(image, count=200, **fields):
    return cropped(image, count, augmentation=fields)


def centres(images):
    """Centre of mass of each image, (N, 2): row and column from the middle of the image."""
    weights = images.sum(axis=3) / images.sum(axis=(1, 2, 3))[:, None, None]
    axis = np.arange(SIDE) - (SIDE - 1) / 2
    return np.stack([(weights.sum(axis=2) * axis).sum(axis=1), (weights.sum(axis=1) * axis).sum(axis=1)], axis=1)


def small(image, **fields):
    return augmented(image, policy="affine_colour", **{**OFF, "probability": 1.0, **fields})


def test_none_changes_nothing():
    assert (augmented(BLOB, policy="none") == BLOB).all()


def test_translate_shifts_in_both_directions_and_not_beyond_its_limit():
    shifts = centres(small(BLOB, translate=0.2)) - centres(BLOB[None].astype(float))
    assert (shifts.min(axis=0) < -4).all()
    assert (shifts.max(axis=0) > 4).all()
    assert np.abs(shifts).max() <= 0.2 * SIDE + 0.5


def test_scale_only_enlarges():
    masses = small(BLOB, scale=0.5).sum(axis=(1, 2, 3)) / BLOB.sum()
    assert masses.min() > 0.95
    assert 1.9 < masses.max() < 2.5


def test_rotate_turns_both_ways_and_keeps_the_middle():
    images = small(BLOB, rotate=45.0)
    rows, columns = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    tilts = (images[..., 0] * rows * columns).sum(axis=(1, 2)) / images[..., 0].sum(axis=(1, 2))
    assert tilts.min() < -1.5
    assert tilts.max() > 1.5
    assert np.abs(centres(images) - centres(BLOB[None].astype(float))).max() < 1


def test_rgb_shift_moves_each_colour_by_its_own_amount():
    shifts = small(GREY, rgb_shift=30.0)[:, 0, 0] - 128
    assert np.abs(shifts).max() <= 30
    assert shifts.min() < -20
    assert shifts.max() > 20
    assert np.abs(np.corrcoef(shifts.T) - np.eye(3)).max() < 0.3


def test_brightness_moves_all_levels_and_contrast_spreads_them():
    bright = small(GREY, brightness=0.2).mean(axis=(1, 2, 3)) - 128
    assert bright.min() < -30
    assert bright.max() > 30
    spread = small(PHOTO[:SIDE, :SIDE] // 2 + 64, contrast=0.3).std(axis=(1, 2, 3)) / (PHOTO[:SIDE, :SIDE] // 2).std()
    assert spread.min() < 0.8
    assert spread.max() > 1.15


def test_the_groups_apply_with_their_probability_and_independently():
    # Compose(seed=) would give each group the same draws: all of them, or none.
    images = augmented(BLOB, 800, policy="affine_colour", **{**OFF, "rotate": 45.0, "brightness": 0.5}, probability=0.5)
    shades = images[:, 0, 0, 0] != 0  # a brighter background
    turned = np.array([len(np.unique(image)) > 2 for image in images])
    for share in (
        shades.mean() * 2,
        turned.mean(),
    ):  # half of the changes of brightness darken black, which is no change
        assert abs(share - 0.5) < 0.1
    assert abs((shades & turned).mean() - shades.mean() * turned.mean()) < 0.05


def test_a_digit_is_never_mirrored():
    mirrored = BLOB.copy()
    mirrored[10:22, 13:16] = 90
    images = augmented(mirrored, policy="affine_colour", probability=1.0)
    left, right = images[:, 12:20, 13:16].mean(axis=(1, 2, 3)), images[:, 12:20, 16:19].mean(axis=(1, 2, 3))
    assert (left < right).mean() > 0.95


def ramp(height, width):
    """Return an image that is black on the left and light on the right."""
    return np.repeat(np.arange(width, dtype=np.uint8)[None, :, None] * (255 // width), height, axis=0).repeat(3, axis=2)


@pytest.mark.parametrize("crop", [{"name": "none"}, {"name": "padded", "padding": 0.1}, {"name": "resized"}])
def test_flip_mirrors_with_its_probability_after_every_crop(crop):
    image = ramp(40, 60) if crop["name"] == "resized" else ramp(SIDE, SIDE)
    for probability in (0.0, 0.5, 1.0):
        images = cropped(image, random_crop=crop, flip={"probability": probability})
        assert images.shape == (200, SIDE, SIDE, 3)
        mirrored = images[:, 8:24, 4].mean(axis=(1, 2)) > images[:, 8:24, -5].mean(axis=(1, 2))
        assert abs(mirrored.mean() - probability) < 0.12


def test_min_area_is_the_smallest_share_of_the_image_in_a_crop():
    rows, columns = np.mgrid[:100, :100]
    plane = np.stack([rows, columns, rows], axis=-1).astype(np.uint8)
    for min_area in (0.08, 0.5):
        images = cropped(plane, random_crop={"name": "resized", "min_area": min_area})
        heights = images[:, -1, :, 0].mean(axis=1) - images[:, 0, :, 0].mean(axis=1)
        widths = images[:, :, -1, 1].mean(axis=1) - images[:, :, 0, 1].mean(axis=1)
        smallest = (heights * widths).min() / (100 * (SIDE - 1) / SIDE) ** 2
        assert min_area * 0.8 < smallest < min_area + 0.15


def test_a_padded_crop_shifts_by_whole_pixels_up_to_its_border_and_shows_black():
    images = cropped(GREY, random_crop={"name": "padded", "padding": 0.125})
    assert set(np.unique(images)) == {0.0, 128.0}
    shown = images[..., 0] > 0
    rows, columns = shown.any(axis=2).sum(axis=1), shown.any(axis=1).sum(axis=1)
    assert set(rows) == set(columns) == {28, 29, 30, 31, 32}
    top, left = shown[:, 0].any(axis=1), shown[:, :, 0].any(axis=1)
    assert 0.4 < top.mean() < 0.7  # shifted up or not at all, in 5 of 9 draws
    assert 0.4 < left.mean() < 0.7


def test_a_padded_crop_has_a_border_of_at_least_one_pixel():
    images = cropped(GREY, random_crop={"name": "padded", "padding": 0.001})
    assert len(np.unique(images, axis=0)) == 9


GEOMETRY = {"random_crop": {"name": "padded", "padding": 0.3}, "flip": {"probability": 0.5}}


@pytest.mark.parametrize("policy", ["trivial_augment", "rand_augment", "augmix", "three_augment"])
def test_the_policies_of_torchvision_change_the_cropped_and_mirrored_image(policy):
    image = ramp(SIDE, SIDE)
    both = cropped(image, 30, **GEOMETRY, augmentation={"policy": policy})
    plain = cropped(image, 30, **GEOMETRY).astype(np.uint8)
    change = Augmenter(read_recipe({"preprocessing": PREPROCESSING, "augmentation": {"policy": policy}}))
    assert np.array_equal(both, [change(one, seed) for seed, one in enumerate(plain)])
    assert not np.array_equal(both, plain)


def test_small_changes_apply_to_the_cropped_image_with_its_border():
    shifted = {"policy": "affine_colour", **OFF, "rgb_shift": 60.0, "probability": 1.0}
    borders = cropped(GREY, **GEOMETRY, augmentation=shifted).min(axis=(1, 2))
    assert borders.max() > 40  # the border is black before the shift of the colours
    assert (borders.min(axis=1) == 0).mean() > 0.5


def test_a_pipeline_from_a_file_gets_the_cropped_and_mirrored_image():
    import albumentations as A

    pipeline = json.dumps(A.to_dict(A.Compose([A.InvertImg(p=1.0)])))
    images = cropped(BLOB, **GEOMETRY, augmentation={"policy": "file", "pipeline": pipeline})
    assert np.array_equal(images, 255 - cropped(BLOB, **GEOMETRY))


@pytest.mark.parametrize(
    ("fields", "theirs"),
    [
        ({"policy": "trivial_augment"}, v2.TrivialAugmentWide(interpolation=v2.InterpolationMode.BILINEAR, fill=0)),
        (
            {"policy": "rand_augment", "num_ops": 3, "magnitude": 20},
            v2.RandAugment(3, 20, interpolation=v2.InterpolationMode.BILINEAR, fill=0),
        ),
        (
            {"policy": "augmix", "severity": 5, "mixture_width": 2, "alpha": 0.5},
            v2.AugMix(5, 2, alpha=0.5, interpolation=v2.InterpolationMode.BILINEAR, fill=0),
        ),
    ],
)
def test_policies_that_change_each_image_differently_are_torchvisions_and_leave_its_generator_alone(fields, theirs):
    image = PHOTO[:SIDE, :SIDE]
    torch.manual_seed(5)
    before = torch.get_rng_state()
    ours = augmented(image, 30, **fields)
    assert torch.equal(torch.get_rng_state(), before)
    for seed in range(30):
        torch.manual_seed(seed)
        assert (np.asarray(theirs(Image.fromarray(image))) == ours[seed]).all()
    assert len(np.unique(ours, axis=0)) > 20


def test_augmix_changes_an_image_more_with_its_severity_and_keeps_a_part_of_it():
    def change(**fields):
        return np.abs(augmented(BLOB, 100, policy="augmix", **fields) - BLOB).mean()

    assert change(severity=1) < change(severity=5) < change(severity=10)
    # With a large alpha, the image keeps about half of its share in each draw.
    kept = augmented(BLOB, 100, policy="augmix", alpha=100.0)[:, 10:22, 13:19].mean(axis=(1, 2, 3))
    assert kept.min() > 0.35 * 200


def test_the_magnitude_and_the_number_of_changes_set_how_far_an_image_is_changed():
    def change(**fields):
        return np.abs(augmented(BLOB, 100, policy="rand_augment", **fields) - BLOB).mean()

    assert change(magnitude=2) < change(magnitude=10) < change(magnitude=25)
    assert change(num_ops=1) < change(num_ops=4)


@pytest.mark.parametrize("policy", ["augmix", "three_augment"])
def test_policies_that_dali_does_not_have_are_refused(policy):
    with pytest.raises(
        UserError, match=rf"backend=dali cannot do policy={policy}.*: set backend to albumentations or auto"
    ):
        read_recipe({"augmentation": {"policy": policy, "backend": "dali"}})


def test_three_augment_makes_each_image_grey_solarised_or_blurred_as_the_authors_code_does():
    image = Image.fromarray(np.repeat(np.repeat(PHOTO[:8, :8], 4, axis=0), 4, axis=1))
    ours = augmented(np.asarray(image), 300, policy="three_augment", jitter=0.0)
    grey = (ours == np.asarray(image.convert("L").convert("RGB"))).all(axis=(1, 2, 3))
    solarised = (ours == np.asarray(ImageOps.solarize(image))).all(axis=(1, 2, 3))
    blurred = ours[~grey & ~solarised]
    assert min(grey.sum(), solarised.sum(), len(blurred)) > 75  # a third each
    limits = [np.asarray(image.filter(ImageFilter.GaussianBlur(radius))).std() for radius in (0.1, 2.0)]
    spread = blurred.std(axis=(1, 2, 3))
    assert limits[1] <= spread.min() < limits[1] + 0.1 * (limits[0] - limits[1])
    assert limits[0] >= spread.max() > limits[0] - 0.1 * (limits[0] - limits[1])


def test_three_augment_changes_colours_by_its_jitter():
    bright = augmented(GREY, 300, policy="three_augment", jitter=0.3).mean(axis=(1, 2, 3)) / 128
    assert 0.69 < bright.min() < 0.75
    assert 1.25 < bright.max() < 1.31
    assert abs(bright.mean() - 1) < 0.03


def test_a_whole_batch_cannot_have_a_different_change_for_each_image():
    for policy in ("trivial_augment", "rand_augment", "augmix", "three_augment"):
        with pytest.raises(UserError, match=rf"backend=tensor cannot do policy={policy}.*albumentations.* or auto"):
            read_recipe({"augmentation": {"policy": policy, "backend": "tensor"}})


def test_a_seed_gives_the_same_image_in_any_order():
    parts = {
        "random_crop": {"name": "padded"},
        "flip": {"probability": 0.5},
        "augmentation": {"policy": "affine_colour"},
    }
    augment = Augmenter(read_recipe({"preprocessing": PREPROCESSING, **parts}))
    forward = [augment(BLOB, seed) for seed in range(20)]
    backward = [augment(BLOB, seed) for seed in reversed(range(20))]
    assert [(a, b) for a, b in zip(forward, reversed(backward), strict=True) if not np.array_equal(a, b)] == []


def test_a_policy_that_changes_nothing_is_refused():
    with pytest.raises(UserError, match=r"policy=affine_colour .*changes nothing.*policy: none"):
        read_recipe({"augmentation": {"policy": "affine_colour", **OFF}})
    read_recipe({"augmentation": {"policy": "affine_colour", **OFF, "rotate": 5.0}})


@pytest.mark.parametrize("policy", ["trivial_augment", "rand_augment"])
def test_torchvision_gets_its_own_name_of_an_interpolation(policy):
    """Before version 0.27 it refuses text."""
    built = read_recipe({"augmentation": {"policy": policy}}).augmentation.build("bilinear")
    assert built.interpolation is v2.InterpolationMode.BILINEAR

import numpy as np
import pytest

from training.data.load_data import load_data
from training.data.pipelines.loaders import make_loaders
from training.data.pipelines.sampling import EpochSampler
from training.errors import UserError
from training.resolve import resolve_recipe


def positions(sampler, epochs):
    found = []
    for epoch in epochs:
        sampler.set_epoch(epoch)
        found.append([index for index, _ in sampler])
    return found


def test_each_epoch_is_a_fresh_permutation():
    first, second = positions(EpochSampler(50, None, seed=3), [0, 1])
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second


@pytest.mark.parametrize("size", [7, 20, 33, 50])
def test_epochs_of_any_length_cover_each_pass_exactly_once(size):
    stream = np.concatenate(positions(EpochSampler(20, size, seed=0), range(20)))
    passes = stream[: len(stream) // 20 * 20].reshape(-1, 20)
    assert (np.sort(passes, axis=1) == np.arange(20)).all()
    assert len({tuple(order) for order in passes}) == len(passes)


def test_an_epoch_follows_from_its_number_alone():
    straight = positions(EpochSampler(20, 7, seed=0), range(6))
    assert positions(EpochSampler(20, 7, seed=0), [4, 5]) == straight[4:]
    assert positions(EpochSampler(20, 7, seed=1), [4, 5]) != straight[4:]


def test_no_two_draws_share_the_seed_of_their_augmentation():
    sampler = EpochSampler(100, None, seed=0)
    seeds = set()
    for epoch in range(5):
        sampler.set_epoch(epoch)
        seeds |= {seed for _, seed in sampler}
    assert len(seeds) == 500


@pytest.mark.parametrize("labels", [None, np.array([0] * 15 + [1] * 5)])
@pytest.mark.parametrize(("size", "repeats"), [(20, 3), (7, 2), (12, 4)])
def test_repeats_are_those_of_the_plain_stream_in_a_row_with_another_seed_each(size, repeats, labels):
    stream = np.concatenate(positions(EpochSampler(20, size, 0, labels, repeats), range(9)))
    plain = np.concatenate(positions(EpochSampler(20, size, 0, labels), range(9)))
    assert np.array_equal(stream, np.repeat(plain, repeats)[: len(stream)])
    sampler = EpochSampler(20, size, 0, labels, repeats)
    assert len(sampler) == size
    assert len({seed for _, seed in sampler}) == size


def test_copies_of_an_image_are_in_one_batch_and_differ(tiny_recipe):
    fields = {"repeated_augmentation": {"repeats": 4}, "augmentation": {"policy": "affine_colour"}}
    recipe = resolve_recipe(tiny_recipe(**fields), data := load_data(tiny_recipe().data), "cpu")
    images, labels = next(iter(make_loaders(data, recipe, workers=0).train))
    assert (labels.view(4, 4) == labels.view(4, 4)[:, :1]).all()
    copies = images.view(4, 4, -1)
    assert (copies[:, 0] != copies[:, 1]).any(1).all()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "repeats=3 shows equal copies: set random_crop"),
        (
            {"flip": {"probability": 0.5}, "batch_size": 4},
            "needs batches of two images and their copies: raise batch_size=4",
        ),
    ],
)
def test_copies_that_do_nothing_are_refused(fields, words, tiny_recipe):
    with pytest.raises(UserError, match=words):
        tiny_recipe(repeated_augmentation={"repeats": 3}, **fields)

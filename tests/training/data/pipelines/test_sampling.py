import numpy as np
import pytest

from training.data.pipelines.sampling import EpochSampler


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

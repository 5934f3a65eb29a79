import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.data.load_data import load_data
from training.data.sources.digits import Digits
from training.data.splits import allocate, split_groups, split_stratified


@given(st.lists(st.integers(3, 60), min_size=2, max_size=12), st.integers(0, 5))
def test_parts_are_disjoint_cover_everything_and_hold_every_class(counts, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    size = max(len(counts), round(0.15 * len(labels)))
    parts = split_stratified(labels, (size, size), seed)
    assert [len(part) for part in parts[:2]] == [size, size]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert [part for part in parts if set(labels[part]) != set(range(len(counts)))] == []


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.data())
def test_places_are_shared_in_proportion(counts, data):
    counts = np.array(counts)
    total = data.draw(st.integers(len(counts), int(counts.sum())))
    places = allocate(counts, total)
    assert places.sum() == total
    assert (places >= 1).all()
    assert (places <= counts).all()
    quotas = counts * total / counts.sum()
    if (quotas >= 1).all():
        assert (np.abs(places - quotas) < 1).all()


def test_the_split_depends_on_its_own_seed_only():
    first, again, other = (load_data(Digits(split_seed=seed)) for seed in (0, 0, 1))
    assert np.array_equal(first.val.images, again.val.images)
    assert not np.array_equal(first.val.images, other.val.images)


def test_a_smaller_training_part_leaves_the_others_as_they_are():
    whole, few = load_data(Digits()), load_data(Digits(train_size=200))
    assert (len(few.train), len(few.val), len(few.test)) == (200, 350, 350)
    assert np.array_equal(whole.val.images, few.val.images)
    assert np.bincount(few.train.labels).min() >= 19
    known = {image.tobytes() for image in whole.train.images}
    assert [image for image in few.train.images if image.tobytes() not in known] == []


def test_the_memory_of_a_split_by_groups_does_not_grow_with_groups_times_classes():
    labels, groups = np.repeat(np.arange(1500), 2), [str(number) for number in range(3000)]
    tracemalloc.start()
    split_groups(labels, groups, (0.15, 0.15), 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 2**20  # a table of all would take 36 MB

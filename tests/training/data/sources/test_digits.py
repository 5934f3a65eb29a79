import numpy as np
import pytest
from sklearn.datasets import load_digits

from training.data.load_data import absolute, load_data
from training.data.sources.digits import Digits, enlarge
from training.errors import UserError


def test_digits_are_those_of_scikit_learn():
    data = load_data(Digits())
    reference = load_digits()
    assert data.classes == tuple("0123456789")
    ours = sorted(
        (int(label), image.tobytes())
        for part in (data.train, data.val, data.test)
        for label, image in zip(part.labels, part.images, strict=True)
    )
    theirs = zip(reference.target, enlarge(reference.images), strict=True)
    assert ours == sorted((int(label), image.tobytes()) for label, image in theirs)


def test_enlarging_keeps_the_grey_levels():
    grey = np.full((1, 8, 8), 16.0)
    assert enlarge(grey).shape == (1, 32, 32, 3)
    assert (enlarge(grey) == 255).all()
    assert abs(enlarge(load_digits().images).mean() / 255 - load_digits().images.mean() / 16) < 0.002


def test_the_same_data_is_loaded_once_per_process():
    assert load_data(Digits()).val is load_data(Digits(train_size=100)).val


@pytest.mark.parametrize(
    ("size", "words"),
    [(2000, "train_size=2000.*only 1097 images.*Lower it"), (9, "train_size=9.*10 classes.*at least 10")],
)
def test_an_impossible_training_size_is_refused(size, words):
    with pytest.raises(UserError, match=words):
        load_data(Digits(train_size=size))


def test_digits_have_no_path_to_make_absolute():
    assert absolute(Digits(train_size=5)) == Digits(train_size=5)

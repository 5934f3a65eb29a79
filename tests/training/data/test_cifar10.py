import hashlib
import pickle
import tarfile
import time
from contextlib import nullcontext

import numpy as np
import pytest
from torchvision.datasets import CIFAR10

from training.data import cifar10, load
from training.data.load import load_data
from training.data.specs import Cifar10
from training.errors import UserError

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def digest(content):
    return hashlib.md5(content).hexdigest()


@pytest.fixture(autouse=True)
def forget():
    load._load_once.cache_clear()
    yield
    load._load_once.cache_clear()


@pytest.fixture
def extract(tmp_path, monkeypatch):
    """A tiny data set in the official form; its checksums stand where torchvision keeps the official ones."""
    random = np.random.default_rng(0)
    folder = tmp_path / "data" / "cifar-10-batches-py"
    folder.mkdir(parents=True)

    def write(name, content):
        (folder / name).write_bytes(content)
        return digest(content)

    def batch(count):
        pixels = random.integers(0, 256, (count, 3072), dtype=np.uint8)
        return pickle.dumps({"data": pixels, "labels": [n % 10 for n in range(count)]})

    train = [[f"data_batch_{n}", write(f"data_batch_{n}", batch(40))] for n in range(1, 6)]
    test = [["test_batch", write("test_batch", batch(30))]]
    meta = write("batches.meta", pickle.dumps({"label_names": CLASSES}))
    monkeypatch.setattr(CIFAR10, "train_list", train)
    monkeypatch.setattr(CIFAR10, "test_list", test)
    monkeypatch.setattr(CIFAR10, "meta", {"filename": "batches.meta", "key": "label_names", "md5": meta})
    return folder


def test_the_official_test_set_is_the_test_part(extract):
    data = load_data(Cifar10(root=str(extract.parent)))
    assert [len(part) for part in (data.train, data.val, data.test)] == [180, 20, 30]
    assert data.classes == tuple(CLASSES) == tuple(sorted(CLASSES))
    official = CIFAR10(extract.parent, train=False)
    assert np.array_equal(data.test.images, official.data)
    assert np.bincount(data.val.labels).tolist() == [2] * 10


def test_images_keep_their_labels_and_their_channels(extract):
    data = load_data(Cifar10(root=str(extract.parent), train_size=50))
    official = CIFAR10(extract.parent, train=True)
    labels = {np.asarray(image).tobytes(): label for image, label in official}
    assert all(
        labels[image.tobytes()] == label for image, label in zip(data.train.images, data.train.labels, strict=True)
    )


def test_an_archive_that_is_there_is_unpacked_without_a_network(extract, tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "_answers", None)
    other = tmp_path / "other"
    other.mkdir()
    with tarfile.open(other / CIFAR10.filename, "w:gz") as archive:
        archive.add(extract, extract.name)
    monkeypatch.setattr(CIFAR10, "tgz_md5", digest((other / CIFAR10.filename).read_bytes()))
    assert len(load_data(Cifar10(root=str(other))).test) == 30


def test_offline_it_says_so_within_seconds_and_makes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/nothing")
    start = time.monotonic()
    with pytest.raises(
        UserError, match=r"data\.root=.*no complete cifar-10-batches-py in .*does not answer.*set data\.root"
    ):
        load_data(Cifar10(root=str(tmp_path / "data")))
    assert time.monotonic() - start < 6
    assert not (tmp_path / "data").exists()


def test_a_silent_server_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "_ANSWER_SECONDS", 0.2)
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: time.sleep(2) or nullcontext())
    with pytest.raises(UserError, match="does not answer"):
        load_data(Cifar10(root=str(tmp_path)))


def test_a_damaged_folder_is_not_used(extract, monkeypatch):
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/nothing")
    (extract / "data_batch_2").write_bytes(b"")
    with pytest.raises(UserError, match="no complete cifar-10-batches-py"):
        load_data(Cifar10(root=str(extract.parent)))


def test_a_download_that_fails_is_told_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "_answers", lambda address: True)
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/nothing")
    with pytest.raises(UserError, match=r"the download failed .*refused.*Connect to the network"):
        load_data(Cifar10(root=str(tmp_path / "data")))

import hashlib
import pickle
import tarfile

import numpy as np
import pytest
from torchvision.datasets import CIFAR10, CIFAR100

from training.data import load_data as load
from training.data.load_data import load_data
from training.data.sources import cifar
from training.data.sources.cifar import Cifar10, Cifar100
from training.errors import UserError
from training.process import network

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def digest(content):
    return hashlib.md5(content).hexdigest()


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(network, "getproxies", dict)  # those of this machine
    load._load_once.cache_clear()
    yield
    load._load_once.cache_clear()


@pytest.fixture
def extract(tmp_path, monkeypatch):
    """Create a tiny data set in the official form; its checksums replace the official ones in torchvision."""
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


def test_the_official_test_set_is_the_test_split(extract):
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
    assert [
        (image, label)
        for image, label in zip(data.train.images, data.train.labels, strict=True)
        if labels[image.tobytes()] != label
    ] == []


def test_an_archive_that_is_there_is_unpacked_without_a_network(extract, tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "answers", None)
    other = tmp_path / "other"
    other.mkdir()
    with tarfile.open(other / CIFAR10.filename, "w:gz") as archive:
        archive.add(extract, extract.name)
    monkeypatch.setattr(CIFAR10, "tgz_md5", digest((other / CIFAR10.filename).read_bytes()))
    assert len(load_data(Cifar10(root=str(other))).test) == 30


def test_without_a_network_there_is_an_error_and_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/nothing")
    with pytest.raises(
        UserError, match=r"data\.root=.*no complete cifar-10-batches-py in .*does not answer.*set data\.root"
    ):
        load_data(Cifar10(root=str(tmp_path / "data")))
    assert not (tmp_path / "data").exists()


def test_a_damaged_folder_is_not_used(extract, monkeypatch):
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/nothing")
    (extract / "data_batch_2").write_bytes(b"")
    with pytest.raises(UserError, match="no complete cifar-10-batches-py"):
        load_data(Cifar10(root=str(extract.parent)))


def test_a_failed_download_is_reported_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "answers", lambda address: True)
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/nothing")
    with pytest.raises(UserError, match=r"the download failed .*refused.*Connect to the network"):
        load_data(Cifar10(root=str(tmp_path / "data")))


def test_cifar100_has_its_fine_labels(tmp_path, monkeypatch):
    random = np.random.default_rng(1)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    names = [f"class {n:02}" for n in range(100)]
    digests, pixels = {}, {}
    for name, count in (("train", 400), ("test", 100)):
        pixels[name] = random.integers(0, 256, (count, 3072), dtype=np.uint8)
        labels = [n % 100 for n in range(count)]
        values = {"data": pixels[name], "fine_labels": labels, "coarse_labels": [0] * count}
        (folder / name).write_bytes(pickle.dumps(values))
        digests[name] = digest((folder / name).read_bytes())
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names}))
    meta = {"filename": "meta", "key": "fine_label_names", "md5": digest((folder / "meta").read_bytes())}
    monkeypatch.setattr(CIFAR100, "train_list", [["train", digests["train"]]])
    monkeypatch.setattr(CIFAR100, "test_list", [["test", digests["test"]]])
    monkeypatch.setattr(CIFAR100, "meta", meta)
    data = load_data(Cifar100(root=str(tmp_path)))
    assert data.classes == tuple(names)
    assert [len(part) for part in (data.train, data.val, data.test)] == [300, 100, 100]
    assert data.test.labels.tolist() == list(range(100))
    assert np.array_equal(data.test.images[3, :, :, 1].ravel(), pixels["test"][3, 1024:2048])


def test_all_processes_map_the_same_file(extract, own_cache):
    spec = Cifar10(root=str(extract.parent), train_size=50)
    load_data(spec)  # writes it
    load._load_once.cache_clear()
    first = load_data(spec)
    load._load_once.cache_clear()
    second = load_data(spec)
    assert isinstance(first.train.images, np.memmap)
    assert first.train.images.filename == second.train.images.filename
    assert first.train.images.shape == (50, 32, 32, 3)
    assert len(list(own_cache.rglob("*.npy"))) == 3

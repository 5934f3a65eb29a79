import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def streaming(monkeypatch):
    """Allow no decoded pixels in the cache, so that files are decoded each time."""
    monkeypatch.setenv("TECHNIQUE_SEARCH_CACHE_MB", "0")


@pytest.fixture
def photos(tmp_path):
    """Make image files of random colours: `photos({"cat": 5, "dog": 5})` returns the root."""

    def make(counts, root=None, size=(12, 10), suffix=".png"):
        root = root or tmp_path / "photos"
        random = np.random.default_rng(0)
        for name, count in counts.items():
            (root / name).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = random.integers(0, 256, (*size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / name / f"{number:03}{suffix}")
        return root

    return make

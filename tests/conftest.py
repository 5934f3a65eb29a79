import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache_home(tmp_path_factory):
    """What tests leave in the user's cache folder goes into one of their own, for the whole session."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache-home"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before

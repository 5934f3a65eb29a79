import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache_home(tmp_path_factory):
    """The tests use a cache folder of their own; the processes of one session share it, so letters are learnt once."""
    before = os.environ.get("XDG_CACHE_HOME")
    session = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent
    os.environ["XDG_CACHE_HOME"] = str(session / "cache-home")
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before

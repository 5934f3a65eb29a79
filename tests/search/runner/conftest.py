import pytest

from tests.real_sweeps import make_user_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_user_folder(tmp_path_factory.mktemp("user"))

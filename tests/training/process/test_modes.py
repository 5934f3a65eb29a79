"""Files that are written completely have the modes that the umask gives them."""

import os

from training.process.writable import complete_files


def test_a_file_has_the_mode_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with complete_files("--out", tmp_path / "out") as folder:
            (folder / "model.safetensors").touch(mode=0o600)
        assert (tmp_path / "out" / "model.safetensors").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)

"""A whole sweep reads no pixel of the test split; the check of the files before the first trial is the only exception."""

import os

import numpy as np
import pytest
from PIL import Image

from ledger.file import read_events
from tests.real_sweeps import call, reports

SPACE = """
format: 1
recipe:
  data: {name: image_folder, root: photos}
  preprocessing: {image_size: 32}
  backbone: {name: test_resnet, weights: letters}
  epochs: 2
  batch_size: 8
  unfreeze: {level: {choice: [last, full]}}
search: {trials: 3}
"""


def spoil(file):
    """Overwrite the pixels; size and time stay, so that the check of the files still counts."""
    before, content = file.stat(), bytearray(file.read_bytes())
    content[60:-12] = bytes(len(content) - 72)
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_and_its_report_read_no_test_image_and_a_confirmation_does(tmp_path):
    draw = np.random.default_rng(0)
    for part, count in (("train", 12), ("val", 6), ("test", 6)):
        for label, name in enumerate(("ant", "bee")):
            (folder := tmp_path / "photos" / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 128, (32, 32, 3), np.uint8)
                pixels[..., label] += np.uint8(100)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    (tmp_path / "tiny.yaml").write_text(SPACE)
    call(tmp_path, "data", "tiny.yaml")
    for file in (tmp_path / "photos" / "test").glob("*/*.png"):
        spoil(file)
    call(tmp_path, "run", "tiny.yaml", "--name", "unread", "--max-concurrent", "1")
    events = list(read_events(tmp_path / "sweeps" / "unread" / "ledger.jsonl"))
    assert {event.state for event in events if event.event == "end"} <= {"completed", "stopped"}
    assert len(reports(events)) >= 3
    call(tmp_path, "report", "unread")
    call(tmp_path, "confirm", "unread", "--top", "1", "--seeds", "1", check=2)

"""The study on photographs, with tiny sizes, on a folder of made-up images."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
from PIL import Image

from benchmarks import study
from benchmarks.search_quality import Configuration, Curves, walk
from benchmarks.study_parts import recording
from benchmarks.study_parts.judging import REPORT, judge_all
from benchmarks.study_parts.photos import Sizes
from benchmarks.study_parts.recording import Recording, load_study_space, read_recordings, write_set
from benchmarks.study_parts.winner import Plan
from search.core.asha import Decision
from spaces.parameters.draws import RandomTrial
from training.recipe import read_recipe

SHORT = ["epochs=2"]
# Three search parameters, so that the ablation of any winner is short.
SMALL = [
    "lora.rank=0", "random_crop={name: padded}", "flip.probability=0.5", "augmentation={policy: none}", "batch_size=16",
    "random_erasing.probability=0.0", "layer_decay.factor=1.0", "optimizer.weight_decay=5e-4", "averaging={name: none}",
    "mixup.alpha=0.0",
]  # fmt: skip
AMOUNTS = study.Amounts(backbone_epochs=1, recipes=3, seeds=2, sweeps=1, sweep_trials=16, searches=1)


@pytest.fixture
def photos(tmp_path):
    draw = np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 4)):
        for label, name in enumerate(("ant", "bee", "cow", "dog")):
            folder = tmp_path / "photos" / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 128, (32, 32, 3), np.uint8)
                pixels[..., label % 3] += np.uint8(30 * label)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path / "photos"


@pytest.fixture
def own_ray():
    """End the Ray that a sweep of this process leaves for the next one."""
    yield
    import ray

    ray.shutdown()


def run(photos, folder, stages, overrides=SHORT):
    study.run_study(
        photos,
        folder / "work",
        stages,
        list(overrides),
        sizes=Sizes(train=8, val=16),
        amounts=AMOUNTS,
        plan=Plan(trials=4, top=1, seeds=2),
        source="made up",
        out=folder,
    )


@pytest.mark.slow
def test_the_whole_study_makes_its_page_and_goes_on_where_it_stopped(photos, tmp_path, monkeypatch):
    run(photos, tmp_path, ["record", "search", "verdict", "page"])
    page = (tmp_path / "docs" / "study.md").read_text()
    assert "3 of 3 random recipes and the 3 baselines" in " ".join(page.split())
    assert "with 8 training images, 16 validation images and 8 test images" in " ".join(page.split())
    assert "The real sweep was not run." in page
    assert max(len(line) for line in page.splitlines() if not line.startswith("|")) <= 120
    assert (tmp_path / "docs" / "study-search.png").stat().st_size > 5000
    curves = Curves.load(tmp_path / "benchmarks" / "curves" / "photos.jsonl")
    assert [len(c.scores) for c in curves.configurations] == [len(c.seconds) for c in curves.configurations] == [2] * 6
    file = tmp_path / "work" / recording.LINES
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]) + lines[-1][:20])  # it was killed while it wrote the last line
    trained = []
    monkeypatch.setattr(recording, "train", lambda recipe, *_, **__: trained.append(recipe) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(photos, tmp_path, ["record"])
    assert len(trained) == 1
    assert [line.number for line in read_recordings(tmp_path / "work")] == list(range(5))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_winner_of_a_real_sweep_predicts_the_same_in_plain_timm(photos, tmp_path, own_ray):
    run(photos, tmp_path, ["record", "search", "verdict", "winner", "page"], [*SHORT, *SMALL])
    found = json.loads((tmp_path / "work" / "winner.json").read_text())
    assert found["timm_agrees"] == 1.0
    assert found["predicted_right"] == found["confirmation"]["test"]["results"]["accuracy"]["mean"]
    assert sum(found["states"].values()) == 4
    page = (tmp_path / "docs" / "study.md").read_text()
    assert "study-predictions.png" in page
    assert "| this project" not in page.partition("## Winner")[2]
    (tmp_path / "work" / "autogluon.json").write_text(
        json.dumps([{"trials": 3, "seconds": 9, "best": best, "test": 0.25} for best in (0.5, 0.6)])
    )
    run(photos, tmp_path, ["others", "page"], [*SHORT, *SMALL])
    page = (tmp_path / "docs" / "study.md").read_text()
    assert "| Ray's ASHA with OptunaSearch, by hand: 1 | 4 |" in page
    assert "| AutoGluon: 2 | 3 |  | 9 |  | 55.0 (50.0 to 60.0) | 25.0 (25.0 to 25.0) |" in page
    stock, ours = (json.loads((tmp_path / "work" / f"{name}.json").read_text()) for name in ("stock", "ours"))
    assert len(stock) == len(ours) == 1
    assert [each for each in stock if not (each["epochs"] >= each["trials"] == 4)] == []
    assert ours[0] == found
    assert f"| this project: 1 | 4 | {np.mean([each['epochs'] for each in ours]):.0f} |" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--train", "20", "--val", "20"], "24 images remain for training and validation, fewer than --train 20"),
        (["--train", "8", "--val", "8", "--stage", "page"], "nothing is recorded there"),
    ],
)
def test_a_mistake_ends_in_one_sentence(photos, tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.setattr(study, "pretrain", lambda *_: (tmp_path / "work" / "backbone.safetensors").touch())
    monkeypatch.setattr(
        sys, "argv", ["study.py", "--photos", str(photos), "--folder", str(tmp_path / "work"), *arguments]
    )
    with pytest.raises(SystemExit) as end:
        study.main()
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_a_folder_keeps_to_the_sizes_that_it_was_begun_with(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "pretrain", lambda *_: 1 / 0)
    for overrides, error in ((SHORT, ZeroDivisionError), (["epochs=3"], study.UserError)):
        with pytest.raises(error):
            run(photos, tmp_path, ["record"], overrides)


def test_an_epoch_of_a_replay_takes_its_recorded_seconds():
    class InOrder:
        next = staticmethod(lambda trial: {"lr": trial / 10})
        start = end = staticmethod(lambda *_: None)
        report = staticmethod(lambda *_: Decision.CONTINUE)

    set_of_two = [
        Configuration({"lr": 0.0}, 2, [0.5, 0.6], [1.0, 2.0], test=0.4),
        Configuration({"lr": 0.1}, 2, [0.7], [10.0, 20.0]),  # it diverges in its second epoch
    ]
    curves = Curves({"name": "two", "domains": {"lr": {"uniform": [0.0, 1.0]}}}, set_of_two)
    moments = list(walk(curves, InOrder(), workers=1, timed=True))
    assert [(moment.time, moment.epochs, moment.completed) for moment in moments] == [
        (0, 0, 0),
        (1, 1, 0),
        (3, 2, 1),
        (13, 3, 1),
        (33, 4, 1),
    ]
    assert [moment.winner.best for moment in moments[1:]] == [0.6, 0.6, 0.7, 0.7]


def test_the_truth_is_the_effect_that_was_planted(tmp_path):
    """Here a mixing of 0.2 is worth 5 points, the lower half of the rates 8, and the rest nothing."""
    space = load_study_space(tmp_path, SHORT)
    noise, recordings = np.random.default_rng(0), []
    for number in range(120):
        recipe = space.baselines()[number] if number < 3 else read_recipe(space.suggest(RandomTrial(number)))
        end = 0.6 + 0.05 * (recipe.mixup.alpha == 0.2) + 0.08 * (recipe.optimizer.lr < 0.03) + noise.normal(0, 0.005)
        params = recording.params_of(space, recipe)
        origin = "baseline" if number < 3 else "random"
        recordings.append(Recording(number, origin, params, 2, [end - 0.1, end], [1.0, 1.0], end))
    write_set(recordings, space, (16, 8), tmp_path / "set.jsonl")
    rows = judge_all(tmp_path / "set.jsonl", space, sweeps=1, trials=40)
    truth = rows[rows.method == REPORT].set_index("level").truth
    assert math.isclose(truth.pop("mixup.alpha=0.2"), 0.05, abs_tol=0.01)
    assert truth.abs().max() < 0.015

"""The images are away for longer than a trial waits: the sweep waits, and its trials go on when they are back."""

import json
from types import SimpleNamespace

import pytest
from ray.tune.search import Searcher

from ledger.file import Ledger
from search.core.controller import Controller
from search.runner import away
from search.runner.ray_adapter import LedgerScheduler, LedgerSearcher
from spaces.load import load_space
from tests.search.runner.test_ray_adapter import EMPTY, make_input


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A sweep of two slots over the images in `photos`, with a clock that stands still."""
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(away, "time", clock)
    # The look at the disk is over at once.
    at_once = lambda target, args, daemon: SimpleNamespace(start=lambda: target(*args))  # noqa: E731
    monkeypatch.setattr(away, "threading", SimpleNamespace(Thread=at_once))
    photos = tmp_path / "photos"
    photos.mkdir()
    space = load_space("quick", [f"data={{name: image_folder, root: {photos}}}", "search.trials=3"])
    controller, said, asked_to_stop = Controller(space, Ledger(tmp_path / "ledger.jsonl")), [], []
    waiting = away.ImagesAway(said.append)
    searcher = LedgerSearcher(
        controller, make_input, lambda running, unstarted: 2, lambda: bool(asked_to_stop), waiting
    )
    scheduler = LedgerScheduler(controller, EMPTY, away=waiting)

    def lose(number):
        message = {"end": "interrupted", "reason": f"{photos}: the images are no longer there.", "away": True}
        ray_trial = SimpleNamespace(trial_id=str(number), config={"trial": number})
        scheduler.on_trial_result(None, ray_trial, {"message": json.dumps(message)})
        scheduler.on_trial_complete(None, ray_trial, {})

    def later(seconds):
        clock.now += seconds
        given = searcher.suggest("x")
        return given if given in (None, Searcher.FINISHED) else given["trial"]

    assert [later(0), later(0)] == [0, 1]
    return SimpleNamespace(
        controller=controller, photos=photos, said=said, lose=lose, later=later, asked_to_stop=asked_to_stop
    )


def states(sweep):
    return [trial.state for trial in sweep.controller.trials]


def test_a_sweep_waits_while_its_images_are_away_and_goes_on_when_they_are_back(sweep):
    sweep.photos.rename(sweep.photos.with_name("elsewhere"))
    sweep.lose(0)
    sweep.lose(1)
    assert [sweep.later(seconds) for seconds in (0, 5, 300)] == [None, None, None]
    assert states(sweep) == ["interrupted", "interrupted"]
    assert not sweep.controller.fatal
    (sentence,) = sweep.said
    assert sentence.startswith(
        f"{sweep.photos}: the images are no longer there. No trial starts until the images are back"
    )
    sweep.photos.with_name("elsewhere").rename(sweep.photos)
    assert [sweep.later(seconds) for seconds in (0.1, 5, 0)] == [None, 0, 1]
    assert states(sweep) == ["running", "running"]
    assert sweep.said[1:] == ["The trials go on where they were."]


def test_a_trial_that_still_has_its_images_goes_on_while_others_wait(sweep):
    sweep.photos.rename(sweep.photos.with_name("elsewhere"))
    sweep.lose(0)
    assert sweep.later(0) is None
    assert states(sweep) == ["interrupted", "running"]


def test_a_sweep_that_waits_for_its_images_can_be_ended(sweep):
    sweep.photos.rename(sweep.photos.with_name("elsewhere"))
    sweep.lose(0)
    sweep.lose(1)
    assert sweep.later(0) is None
    sweep.asked_to_stop.append(True)
    assert sweep.later(0) == Searcher.FINISHED
    assert states(sweep) == ["interrupted", "interrupted"]


def test_images_that_this_machine_sees_and_the_trials_do_not_are_tried_again_after_a_minute(sweep):
    sweep.lose(0)
    sweep.lose(1)
    assert [sweep.later(seconds) for seconds in (0, 30, 30)] == [None, None, 0]


def test_images_that_this_machine_never_sees_are_tried_again_after_ten_minutes(sweep):
    sweep.photos.rmdir()
    sweep.lose(0)
    assert [sweep.later(seconds) for seconds in (0, 590, 10)] == [None, None, 0]
    assert sweep.said[1:] == ["The trials look for the images again."]

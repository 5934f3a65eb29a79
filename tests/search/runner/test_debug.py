"""`--address debug`: a whole sweep in this process, without Ray."""

from __future__ import annotations

import pytest

import search
import training.train
from search.runner.start import prepare
from tests.search.conftest import SPACE
from tests.search.test_api import QUIET


@pytest.fixture
def run(tmp_path, monkeypatch, without_store):
    """Run a space of three trials in this process; nothing starts Ray."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prepare, "start_ray", lambda address: pytest.fail("Ray starts"))
    (tmp_path / "tiny.yaml").write_text(SPACE)
    return lambda: search.run("tiny.yaml", trials=3, address="debug", console=QUIET)


def test_trials_run_in_this_process_one_after_another_and_nothing_of_that_is_kept(run, monkeypatch):
    trained, train = [], training.train.train
    monkeypatch.setattr(
        training.train, "train", lambda recipe, *a, **b: trained.append(recipe) or train(recipe, *a, **b)
    )
    result = run()
    assert result.state == "completed"
    assert trained == [trial.recipe for trial in result.record.trials]
    assert [trial.epoch for trial in result.record.trials] == [2, 2, 2]
    assert (result.record.driver.slots, result.record.settings.address) == (1, None)


def test_a_resume_looks_at_the_images_and_leaves_the_address_of_a_cluster_in_the_ledger(run, monkeypatch):
    import search.runner.sweep as sweep

    folder = run().record.folder
    folder.ledger.write_text(folder.ledger.read_text().replace('"address":null', '"address":"auto"'))
    looked = []
    monkeypatch.setattr(sweep, "check_images", lambda record, is_local: looked.append(is_local))
    again = search.resume("tiny-1", trials=1, address="debug", console=QUIET)
    assert (looked, again.record.settings.address) == ([True], "auto")


def test_a_resume_keeps_the_settings_of_the_one_before(run):
    run()
    search.resume("tiny-1", trials=1, address="debug", max_concurrent=7, console=QUIET)
    again = search.resume("tiny-1", trials=1, address="debug", console=QUIET)
    assert (len(again.trials), again.record.settings.max_concurrent) == (5, 7)


def test_an_error_in_a_training_ends_the_sweep_with_its_traceback_and_a_resume_goes_on(run, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("training.train.train", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError) as caught:
            run()
    assert "Continue with: sweep resume tiny-1" in caught.value.__notes__[0]
    assert [trial.state for trial in search.open("tiny-1").record.trials] == ["interrupted"]
    assert search.resume("tiny-1", address="debug", console=QUIET).state == "completed"

"""The last trainings of a sweep: which recipes are trained, for how long, and that their mean is exported."""

import json
import re
import shlex
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import typer
from rich.console import Console

from analysis.effects.lead import expect_score
from analysis.export.bundle import read_export
from analysis.report.sentences import describe_expected
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from search.cli.run.conclusion import conclude
from search.core import pace
from search.evaluation import last_trainings
from search.evaluation.trial_export import export_trial
from search.result import Result
from tests.commands import call
from training.loop.checkpoint import read_checkpoint
from training.recipe import read_recipe
from training.techniques.model.flip_average import FlipAverage
from training.techniques.model.linear_probe import LinearProbe

DIGITS = tuple("0123456789")


@pytest.fixture
def record(home, without_ray):
    return SweepRecord.open(SweepFolder(home / "sweeps" / "tiny"))


@pytest.fixture
def out(record, home):
    return export_trial(record, None, None).folder


ONE_PLACE = SimpleNamespace(slots=1, shares_cpus=False)


def train_all(record, out, seconds=1e6, capacity=ONE_PLACE):
    last_trainings.train_ensemble(record, capacity, seconds, out, print, "a headline")


def read_facts(folder):
    return json.loads((folder / "summary.json").read_text())


def choose(record):
    return [(trial.name, recipe.seed) for trial, recipe in list_members(record)[:3]]


class Named:
    """A trial under another name."""

    def __init__(self, trial, name):
        self.trial, self.name = trial, name

    def __getattr__(self, attribute):
        return getattr(self.trial, attribute)


@pytest.fixture
def simulated(record, monkeypatch):
    """Trainings by a clock which only they turn, where the best trial took ten seconds."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    best, recipe = list_members(record)[0]
    weights = read_checkpoint(record.folder.trial(best.number) / "best.ckpt")["state_dict"]
    plan = SimpleNamespace(members={}, began=[], ended=[], lost=set(), lanes=1, pace=1.0)
    for trial in record.trials:
        trial.resumes = 1  # so how long a start takes is not known

    class Workers:
        def __init__(self, record, capacity, say, *, lanes, until):
            plan.lanes, self.ends = lanes, {}

        def __enter__(self):
            return self

        def __exit__(self, *_):
            assert not self.ends

        @property
        def running(self):
            return len(self.ends)

        def has_room(self):
            return self.running < plan.lanes

        def start(self, name, recipe):
            plan.began.append(name)
            self.ends[name] = clock.now + plan.pace * plan.members[name]

        def wait(self):
            name = min(self.ends, key=self.ends.get)
            clock.now, more = self.ends.pop(name), 1 + [*plan.members].index(name)
            plan.ended.append(name)
            changed = {key: value + more for key, value in weights.items()}
            return name, None if name in plan.lost else last_trainings.Trained(recipe, changed, DIGITS, 1)

    def list_simulated(leaders):
        return [(Named(best, name), recipe) for name in plan.members]

    monkeypatch.setattr(last_trainings, "usual_seconds", lambda trial: plan.members.get(trial.name, 10.0))
    monkeypatch.setattr(last_trainings, "time", clock)
    monkeypatch.setattr(last_trainings, "LastWorkers", Workers)
    monkeypatch.setattr(last_trainings, "_list_members", list_simulated)
    monkeypatch.setattr(type(best), "standard_error", 0.0)  # no other is near
    return plan


def list_members(record):
    return last_trainings._list_members(last_trainings._list_leaders(record))


def test_the_mean_of_the_leaders_takes_the_place_of_the_export_and_the_first_alone_is_kept_beside(record, out):
    train_all(record, out)
    single = out.with_name("tiny-single")
    both, alone = read_export(out), read_export(single)
    size = alone.recipe.preprocessing.image_size
    images = torch.rand(5, 3, size, size)
    with torch.inference_mode():
        members = torch.stack([member(images).softmax(1) for member in both.model])
        torch.testing.assert_close(both.model(images).softmax(1), members.mean(0))
        torch.testing.assert_close(alone.model(images).softmax(1), members[0])
    assert len({tuple(row) for row in members.flatten(1).tolist()}) == 4  # no training twice
    facts = read_facts(out)
    assert (facts["members"], facts["trained_on"], facts["best_epoch"]) == (4, "train and validation", 2)
    assert facts["ensemble"][0] == facts["trial"] == read_facts(single)["trial"] == record.trials.best().name
    assert "ensemble" not in read_facts(single)
    card = (out / "MODEL_CARD.md").read_text()
    assert "These weights were trained on the validation images too" in card
    assert f"4 models from as many trainings (trials {', '.join(facts['ensemble'])})" in card
    assert not (out / "config.json").exists()  # timm cannot load several
    assert (single / "config.json").exists()
    assert not (record.folder.path / "final").exists()


def test_a_later_export_keeps_the_last_training_and_a_named_trial_is_as_it_was_scored(record, out, capsys):
    train_all(record, out)
    before = (out / "model.safetensors").read_bytes()
    call("export", "tiny")
    assert "tiny keeps the model of the sweep's end." in capsys.readouterr().out
    assert (out / "model.safetensors").read_bytes() == before
    best = record.trials.best().name
    call("export", "tiny", "--trial", best)
    assert read_facts(out.with_name(f"tiny-{best}"))["trained_on"] == "train"
    (out / "model.safetensors").write_bytes(before[:1000])
    call("export", "tiny")  # what is damaged is made anew
    assert read_facts(out)["trained_on"] == "train"


def test_the_end_of_a_resumed_sweep_replaces_the_last_training_but_an_interruption_keeps_it(record, out, monkeypatch):
    monkeypatch.setattr(last_trainings, "MOST_MEMBERS", 1)
    train_all(record, out)
    ends = [("interrupted", False), ("completed", True), ("completed", False)]
    for (state, had_ended), trained_on in zip(ends, ["train and validation"] * 2 + ["train"], strict=True):
        with suppress(typer.Exit):
            conclude(Result(record, state, 0, Console(quiet=True), had_ended=had_ended))
        assert read_facts(out)["trained_on"] == trained_on


def test_in_python_the_first_export_takes_the_time_that_was_kept_and_the_next_keeps_its_model(
    record, home, monkeypatch, capsys
):
    monkeypatch.setattr(last_trainings, "MOST_MEMBERS", 1)
    result = Result(record, "time_budget", 0, Console(width=500), None, 100.0, ONE_PLACE)
    result.export("other", trial=0)
    assert result.seconds_left == 100.0
    folder = result.export()
    assert read_facts(folder)["trained_on"] == "train and validation"
    assert read_facts(folder)["finding"]
    before = (folder / "model.safetensors").read_bytes()
    assert result.export() == folder
    assert (folder / "model.safetensors").read_bytes() == before
    assert "keeps the model of the sweep's end." in capsys.readouterr().out


def test_what_continues_a_sweep_gives_it_as_much_time_again(record, capsys, monkeypatch):
    settings = replace(record.recorded_settings, time_budget_seconds=600.0)
    monkeypatch.setattr(SweepRecord, "recorded_settings", settings)
    conclude(Result(record, "time_budget", 0, Console(width=1000)))
    assert "Continue with: sweep resume tiny --time-budget 600s\n" in capsys.readouterr().out


def test_a_store_in_the_environment_that_the_sweep_did_not_use_may_be_any(record, capsys, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:///home/ada/mlruns")
    conclude(Result(record, "completed", 0, Console(width=1000)))
    assert f"sweep ui --tracking-uri {record.recorded_settings.tracking_uri}\n" in capsys.readouterr().out


def test_the_commands_at_the_end_of_a_sweep_run_as_they_are_printed(home, capsys):
    (home / "sweeps").rename(home / "my disk")
    record = SweepRecord.open(SweepFolder(home / "my disk" / "tiny"))
    conclude(Result(record, "completed", 0, Console(width=1000)))
    following = capsys.readouterr().out.partition("Next: ")[2].partition("\n")[0]
    commands = [text.strip() for text in re.split(r"\(.*?\)|, ", following) if text.strip()]
    assert [command.split()[1] for command in commands] == ["report", "confirm", "show", "ui"]
    for command in (commands[0], commands[2]):
        call(*shlex.split(command)[1:])
    assert (home / "reports" / "tiny.html").is_file()


@pytest.mark.slow
def test_a_later_export_adds_the_onnx_forms_of_an_ensemble(record, out, capsys):
    train_all(record, out)
    call("export", "tiny", "--int8")
    facts = read_facts(out)
    assert facts["members"] == 4
    assert facts["onnx"]["largest_difference"] < 1e-3
    assert facts["int8"]["val_accuracy"] == pytest.approx(facts["int8"]["val_accuracy_float32"], abs=0.05)


def test_the_members_are_near_differ_in_a_choice_and_have_one_architecture_else_the_best_again_with_other_seeds(
    record, monkeypatch
):
    best = record.trials.best()
    monkeypatch.setattr(type(best), "standard_error", 1.0)  # all are near
    ranked = record.trials.ranked()
    baselines = [trial for trial in ranked if trial.origin == "baseline"]  # they differ in the rate alone
    assert len(baselines) == 3
    expected = [trial.name for trial in ranked if trial not in baselines[1:]]
    assert choose(record) == [(name, 0) for name in expected]
    monkeypatch.setattr(last_trainings, "_is_alike", lambda first, second: False)
    assert choose(record) == [(best.name, 0), (best.name, 1), (best.name, 2)]
    monkeypatch.undo()
    monkeypatch.setattr(type(best), "standard_error", -1.0)  # none is
    assert choose(record) == [(best.name, 0), (best.name, 1), (best.name, 2)]


def test_of_recipes_with_the_same_choices_only_the_best_is_a_member(record, monkeypatch):
    ranked = record.trials.ranked()
    monkeypatch.setattr(type(ranked[0]), "standard_error", 1.0)  # all are near
    alike = {trial.recipe.optimizer.lr for trial in ranked[:2]}
    monkeypatch.setattr(
        last_trainings, "_choices_of", lambda recipe: recipe.optimizer.lr in alike or recipe.optimizer.lr
    )
    assert choose(record) == [(ranked[place].name, 0) for place in (0, 2, 3)]


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"label_smoothing": {"alpha": 0.2}, "optimizer": {"name": "adamw", "lr": 0.01}}, True),
        ({"label_smoothing": {"alpha": 0.0}}, False),
        ({"unfreeze": {"level": "last"}}, False),
        ({"batch_size": 9}, False),
    ],
)
def test_a_strength_is_no_choice_but_whether_there_is_one_is(fields, same):
    first = {"label_smoothing": {"alpha": 0.1}, "optimizer": {"name": "adamw", "lr": 0.02}}
    one, other = (last_trainings._choices_of(read_recipe(values)) for values in (first, {**first, **fields}))
    assert (one == other) is same


def test_a_linear_probe_that_leads_by_luck_gives_way_to_the_best_fine_tuning(record, out, monkeypatch):
    best, second = record.trials.ranked()[:2]
    probe = best.recipe.model_copy(update={"linear_probe": LinearProbe(c=0.1, trains=False)})
    monkeypatch.setattr(best, "recipe", probe)
    monkeypatch.setattr(type(best), "standard_error", best.score - second.score + 0.001)
    assert choose(record)[0] == (second.name, 0)
    assert best.name not in dict(choose(record))
    monkeypatch.setattr(last_trainings, "MOST_MEMBERS", 1)
    train_all(record, out)
    assert read_facts(out)["trial"] == second.name
    tuned = [one for one in record.trials.ranked() if one.state == "completed" and one is not best]
    near = [one.name for one in tuned if second.score - one.score <= 1.5 * best.standard_error][:3]
    said = f"The expected accuracy of the mean of trials {', '.join(near)} on new images is "
    assert read_facts(out)["finding"].startswith(said)  # not what is said of the best
    assert read_facts(out)["score"] == expect_score("val_accuracy", [one.answers for one in tuned], len(near))[0]
    monkeypatch.setattr(type(best), "standard_error", best.score - second.score - 0.001)
    assert choose(record)[0] == (best.name, 0)
    monkeypatch.setattr(type(best), "standard_error", best.score - second.score + 0.001)
    (record.folder.trial(second.number) / "best.ckpt").unlink()  # as with --keep-best 1
    assert choose(record)[0] == (best.name, 0)


def test_a_linear_probe_on_larger_images_that_leads_trains_last(record, monkeypatch):
    best, second = record.trials.ranked()[:2]
    larger = best.recipe.preprocessing.model_copy(update={"image_size": 64})
    probe = {"linear_probe": LinearProbe(c=0.1, trains=False), "preprocessing": larger}
    monkeypatch.setattr(best, "recipe", best.recipe.model_copy(update=probe))
    monkeypatch.setattr(type(best), "standard_error", best.score - second.score + 0.001)
    assert choose(record)[0] == (best.name, 0)


@pytest.mark.parametrize(("seconds", "pace", "trained"), [(25.0, 1.0, 2), (25.0, 1.3, 1), (31.0, 1.0, 3)])
def test_a_training_begins_only_if_it_will_end_in_time(record, out, simulated, seconds, pace, trained):
    simulated.members, simulated.pace = dict.fromkeys("abc", 10.0), pace  # the first is expected to take 25 seconds
    train_all(record, out, seconds)
    assert simulated.began == [*"abc"][:trained]
    best_of_search = [f"{record.trials.best().name} as searched"] * (trained < 3)
    assert read_facts(out)["ensemble"] == [*simulated.began, *best_of_search]


def test_a_quicker_one_takes_the_place_of_what_would_not_end_in_time(record, out, simulated):
    simulated.members = {"best": 10.0, "slow": 90.0, "quick": 5.0, "other": 5.0, "fourth": 1.0, "fifth": 1.0}
    train_all(record, out, 60.0)
    assert simulated.began == ["best", "quick", "other", "fourth"]


@pytest.mark.parametrize(
    ("seconds", "lanes", "trained"),
    [
        (30.0, 2, "abcd"),  # two rounds of two
        (14.0, 2, "ab"),
        (11.0, 1, "a"),  # alone it has all CPUs
    ],
)
def test_as_many_train_at_a_time_as_gives_most_in_the_time(
    record, out, simulated, monkeypatch, seconds, lanes, trained
):
    monkeypatch.setattr(pace, "END_START_SECONDS", 0.0)
    simulated.members, simulated.pace = dict.fromkeys("abcde", 10.0), 1.2
    train_all(record, out, seconds, SimpleNamespace(slots=2, shares_cpus=True))
    assert simulated.lanes == lanes
    assert simulated.began == [*trained]


def test_the_model_alone_is_that_of_the_first_recipe_also_if_another_ends_sooner(record, out, simulated):
    simulated.members = {"first": 10.0, "second": 1.0}
    train_all(record, out, 60.0, SimpleNamespace(slots=2, shares_cpus=False))
    assert simulated.ended == ["second", "first"]
    assert read_facts(out)["ensemble"][:2] == ["first", "second"]
    alone, both = read_export(out.with_name("tiny-single")).model, read_export(out).model
    torch.testing.assert_close(alone.state_dict(), both[0].state_dict())


def test_after_one_that_gives_no_model_others_train_and_after_two_none(record, out, simulated):
    simulated.members = dict.fromkeys("abcdef", 10.0)
    simulated.lost = {"a"}
    train_all(record, out)
    assert simulated.began == [*"abcde"]
    assert read_facts(out)["ensemble"] == [*"bcde"]
    simulated.began, simulated.lost = [], {"a", "c"}
    train_all(record, out)
    assert simulated.began == [*"abc"]


def test_where_there_is_time_for_one_training_the_leaders_as_searched_join_it(record, out, monkeypatch):
    best, second = record.trials.ranked()[:2]
    monkeypatch.setattr(type(best), "standard_error", 1.0)  # all are near
    monkeypatch.setattr(last_trainings, "MOST_MEMBERS", 1)
    train_all(record, out)
    names = [best.name, f"{best.name} as searched", f"{second.name} as searched"]
    assert read_facts(out)["ensemble"] == names
    model = read_export(out).model
    for trial, member in zip((best, second), model[1:], strict=True):
        kept = read_checkpoint(record.folder.trial(trial.number) / "best.ckpt")["state_dict"]
        torch.testing.assert_close(member.state_dict(), kept)
    torch.testing.assert_close(read_export(out.with_name("tiny-single")).model.state_dict(), model[0].state_dict())
    assert read_facts(out)["trained_on"] == "train and validation"
    words = "weights, other than those of trials as searched, were trained on the validation images too"
    assert words in (out / "MODEL_CARD.md").read_text()


@pytest.mark.parametrize("metric", ["val_accuracy", "val_soft_accuracy"])
def test_the_score_of_a_mean_is_what_is_expected_of_it_on_new_images(record, out, monkeypatch, capsys, metric):
    best = record.trials.ranked()[0]
    monkeypatch.setattr(type(best), "standard_error", 1.0)  # all are near
    monkeypatch.setattr(last_trainings, "MOST_MEMBERS", 1)
    monkeypatch.setattr(record.trials, "metric", metric)
    train_all(record, out)
    facts = read_facts(out)
    completed = [trial for trial in record.trials.ranked() if trial.state == "completed"]
    names = [trial.name for trial in completed[: facts["members"]]]
    assert (facts["members"], facts["scored"], facts["metric"]) == (3, names, "val_accuracy")
    expected = expect_score(metric, [trial.answers for trial in completed], 3)
    assert (facts["score"], facts["standard_error"]) == expected
    assert {name for name in facts["metrics"] if name.startswith("val_")} == {"val_accuracy"}
    assert facts["metrics"]["val_accuracy"] == expected[0]
    assert facts["metrics"]["train_loss"] == best.reports[best.reports[-1].best_epoch - 1].metrics["train_loss"]
    assert facts["finding"] == describe_expected(metric, f"the mean of trials {', '.join(names)}", *expected)
    assert facts["finding"] in " ".join(capsys.readouterr().out.split())
    card = (out / "MODEL_CARD.md").read_text()
    assert f"the figure above is for the mean of the trials {', '.join(names)}, trained without" in card
    assert f"**{facts['finding']}**" in card
    assert "on the validation images:" not in card
    assert "too optimistic" not in card
    assert "a headline" not in card  # it is about the first
    alone = out.with_name("tiny-single")
    assert ("scored" in read_facts(alone), read_facts(alone)["score"]) == (False, best.score)
    assert "were chosen by this score" in (alone / "MODEL_CARD.md").read_text()


def test_the_score_of_a_mean_of_seeds_is_that_of_the_mean_of_as_many_near_trials(record, out, simulated, monkeypatch):
    best, second, third = record.trials.ranked()[:3]
    monkeypatch.setattr(type(best), "standard_error", (best.score - third.score) / 1.5 - 1e-6)
    simulated.members = {"a": 1.0, "b": 1.0, "c": 1.0}
    monkeypatch.setattr(
        last_trainings, "_list_leaders", lambda record: [(best, last_trainings._read_trained(record, best))]
    )
    train_all(record, out)
    assert len(read_facts(out)["ensemble"]) == 3
    assert read_facts(out)["scored"] == [best.name, second.name]


def test_a_mean_of_models_from_before_their_answers_were_kept_has_the_score_of_the_first(record, out, monkeypatch):
    best = record.trials.ranked()[0]
    monkeypatch.setattr(type(best), "standard_error", 1.0)
    monkeypatch.setattr(type(best), "answers", ((), ""))
    monkeypatch.setattr(last_trainings, "MOST_MEMBERS", 1)
    train_all(record, out)
    facts = read_facts(out)
    assert ("scored" in facts, facts["score"], facts["finding"]) == (False, best.score, "a headline")


def test_where_none_would_end_in_time_the_leaders_as_searched_are_the_model(
    record, out, simulated, monkeypatch, capsys
):
    best, second = record.trials.ranked()[:2]
    before, simulated.members = read_facts(out), {"a": 10.0}
    train_all(record, out, 24.9)
    assert (simulated.began, read_facts(out)) == ([], before)
    assert "has the model without the images of the validation." in capsys.readouterr().out
    monkeypatch.setattr(type(best), "standard_error", 1.0)  # others are near
    train_all(record, out, 24.9)
    assert simulated.began == []
    facts = read_facts(out)
    assert facts["ensemble"][:2] == [f"{best.name} as searched", f"{second.name} as searched"]
    assert (facts["members"], facts["trained_on"], facts["trial"]) == (3, "train", best.name)
    assert not out.with_name("tiny-single").exists()
    assert "has the mean of 3 models" in capsys.readouterr().out
    assert "on the validation images too" not in (out / "MODEL_CARD.md").read_text()
    call("export", "tiny")
    assert "tiny keeps the model of the sweep's end." in capsys.readouterr().out


def test_where_trials_started_quickly_one_more_ends_in_time(record, out, simulated):
    best, simulated.members = record.trials.best(), {"a": 10.0}
    best.resumes, best.ended = 0, best.started + 2.0 + pace.usual_seconds(best)
    train_all(record, out, 14.9)
    assert simulated.began == []
    train_all(record, out, 15.1)
    assert simulated.began == ["a"]


def test_where_none_would_end_in_time_a_probe_that_leads_stays_alone(record, out, simulated, monkeypatch):
    leaders = [(trial, last_trainings._read_trained(record, trial)) for trial in record.trials.ranked()[:3]]
    recipe = leaders[0][1].recipe.model_copy(update={"linear_probe": LinearProbe(c=0.1, trains=False)})
    leaders[0] = leaders[0][0], replace(leaders[0][1], recipe=recipe)
    monkeypatch.setattr(last_trainings, "_list_leaders", lambda record: leaders)
    before, simulated.members = read_facts(out), {"a": 10.0}
    train_all(record, out, 24.9)
    assert (simulated.began, read_facts(out)) == ([], before)


def test_a_probe_trains_last_once_because_another_seed_gives_the_same_model(record):
    best, second = (last_trainings._read_trained(record, trial) for trial in record.trials.ranked()[:2])
    probe = replace(best, recipe=best.recipe.model_copy(update={"linear_probe": LinearProbe(c=0.1, trains=False)}))
    assert len(last_trainings._list_members([(record.trials.best(), probe)])) == 1
    both = [(record.trials.best(), probe), (record.trials.ranked()[1], second)]
    seeds = [recipe.seed for _, recipe in last_trainings._list_members(both)]
    assert seeds == [0, 0, 1, 2, 3]


def test_a_probe_that_trained_last_stays_alone(record, out, simulated, monkeypatch):
    best = last_trainings._read_trained(record, record.trials.best())
    probe = replace(best, recipe=best.recipe.model_copy(update={"linear_probe": LinearProbe(c=0.1, trains=False)}))
    monkeypatch.setattr(last_trainings, "_list_leaders", lambda record: [(record.trials.best(), probe)])
    simulated.members = {"a": 10.0}
    train_all(record, out)
    assert "members" not in read_facts(out)
    assert not out.with_name("tiny-single").exists()


def test_where_all_diverge_the_export_stays(record, out, simulated):
    before = read_facts(out)
    simulated.members, simulated.lost = dict.fromkeys("abc", 10.0), {*"abc"}
    train_all(record, out)
    assert read_facts(out) == before


def test_where_the_best_trained_on_mirrored_images_the_last_trainings_predict_them_too(record, out, monkeypatch):
    plain = last_trainings._read_trained(record, record.trials.best())
    flip = plain.recipe.flip.model_copy(update={"probability": 0.5})
    flipped = replace(plain, recipe=plain.recipe.model_copy(update={"flip": flip}))
    monkeypatch.setattr(last_trainings, "_read_trained", lambda *_: flipped)
    monkeypatch.setattr(last_trainings, "MOST_MEMBERS", 1)
    train_all(record, out)
    model, images = read_export(out).model, torch.rand(5, 3, 32, 32)
    assert read_facts(out)["flip_average"]
    with torch.inference_mode():
        torch.testing.assert_close(model(images), model(images.flip(3)), rtol=1e-4, atol=1e-4)


def test_a_recipe_that_averages_mirror_images_by_itself_is_counted_so(record, out, monkeypatch, capsys):
    plain = last_trainings._read_trained(record, record.trials.best())
    averaging = plain.recipe.model_copy(update={"flip_average": FlipAverage(enabled=True)})
    monkeypatch.setattr(last_trainings, "_read_trained", lambda *_: replace(plain, recipe=averaging))
    monkeypatch.setattr(last_trainings, "MOST_MEMBERS", 1)
    train_all(record, out)
    said = capsys.readouterr().out
    assert "mirrored too)" in said
    assert "and 4 times slower" in said


def test_snapshots_are_an_ensemble_already(record, monkeypatch):
    best = last_trainings._read_trained(record, record.trials.best())
    snapshots = best.recipe.snapshots.model_copy(update={"members": 2})
    many = replace(best, recipe=best.recipe.model_copy(update={"snapshots": snapshots}))
    monkeypatch.setattr(last_trainings, "_read_trained", lambda *_: many)
    assert len(list_members(record)) == 1


@pytest.mark.parametrize(
    ("fields", "alike"),
    [
        ({"optimizer": {"name": "adamw", "lr": 0.01}, "unfreeze": {"level": "last"}}, True),
        ({"backbone": {"name": "resnet34"}}, False),
        ({"preprocessing": {"image_size": 64}}, False),
        ({"flip_average": {"enabled": True}}, False),
        ({"evaluation_size": {"factor": 1.5}}, False),
    ],
)
def test_models_of_one_architecture_and_preprocessing_are_alike(fields, alike):
    assert last_trainings._is_alike(read_recipe({}), read_recipe(fields)) == alike

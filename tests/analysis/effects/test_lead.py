"""The lead of the best trial counts the luck of seeds and of images, and the choice of the best."""

import math
from dataclasses import replace

import numpy as np
import pytest

from analysis import load
from analysis.effects.lead import Lead, expect_score, judge_lead
from analysis.effects.technique_effects import fit_sweep
from analysis.report.sentences import describe_lead, describe_rivals


def judge(sweep):
    return judge_lead(sweep, fit_sweep(sweep))


def with_scores(sweep, scores, error=0.01):
    """The sweep whose completed trials, in their order, have these scores."""
    trials = sweep.trials.copy()
    trials.loc[trials.state == "completed", ["score", "standard_error"]] = np.column_stack(
        [scores, np.full(len(scores), error)]
    )
    return replace(sweep, trials=trials)


def test_a_planted_lead_is_clear_and_inside_the_interval(sweep):
    lead = judge(sweep)
    assert lead.verdict == "clear"
    assert lead.low < 0.06 < lead.high  # label smoothing
    assert lead.probability > 0.99


def test_the_interval_is_wider_than_that_of_a_model_that_knows_no_selection_by_luck(sweep):
    fitted = fit_sweep(sweep)
    lead = judge_lead(sweep, fitted)
    done = [fitted.design.recipes.index.get_loc(trial) for trial in sweep.completed.trial]
    errors = 0.4 * np.hypot(fitted.design.errors[done[0]], fitted.design.errors[done])
    draws = fitted.draw_leads(done[0], done, errors)[:, sweep.completed.trial.tolist().index(int(lead.baseline))]
    (low, high), middle = np.quantile(draws, [0.05, 0.95]), draws.mean()
    assert (lead.high - lead.low) / (high - low) == pytest.approx(1.2)
    assert (lead.low - middle) / (low - middle) == pytest.approx(1.2)


@pytest.fixture(scope="module")
def other_sweep(storage):
    return load("made-up-2", storage=storage)


def test_the_best_of_equal_recipes_is_rarely_called_clear_and_has_rivals(other_sweep):
    count = (other_sweep.trials.state == "completed").sum()
    leads = [
        judge(with_scores(other_sweep, 0.9 + np.random.default_rng(seed).normal(0, 0.01, count))) for seed in range(20)
    ]
    ahead = [lead for lead in leads if lead.verdict != "baseline"]
    # Half of these best trials are ahead of the best of three baselines by more than one and a half standard errors.
    assert np.median([lead.observed for lead in ahead]) > 0.01
    assert sum(lead.verdict == "clear" for lead in ahead) <= 1
    assert np.median([lead.mean for lead in ahead]) < 0.005
    assert [lead for lead in ahead if not lead.rivals] == []


def answer(rng, labels, trials, chance):
    """Answers of models that are right with this chance, each for itself, and sure of it or not, and how often they are."""
    right = rng.random((trials, len(labels))) < chance
    said = np.where(right, labels, (labels + 1) % 3)
    shares = rng.integers(90, 200, (trials, len(labels), 1)) * (said[..., None] == np.arange(3))
    order = np.argsort(-right.mean(1), kind="stable")
    return [(tuple(labels.tolist()), shares[one].astype(np.uint8).tobytes().hex()) for one in order], right.mean(1)


@pytest.mark.parametrize("count", [1, 3])
def test_the_score_that_is_expected_of_the_best_of_equal_models_is_what_each_has(count):
    rng, labels = np.random.default_rng(0), np.arange(60) % 3
    made = [answer(rng, labels, 20, 0.7) for _ in range(20)]
    expected = np.array([expect_score("val_accuracy", answers, count) for answers, _ in made])
    # Of the mean of three whose mistakes have nothing in common this is what a new image shows, more than each has.
    truth = {1: 0.7, 3: 0.784}[count]
    assert np.mean([shares.max() for _, shares in made]) > 0.79
    assert expected[:, 0].mean() == pytest.approx(truth, abs=0.02)
    assert expected[0, 1] == pytest.approx((expected[0, 0] * (1 - expected[0, 0]) / 64) ** 0.5, abs=0.002)


def test_where_the_soft_accuracy_chooses_the_accuracy_is_expected():
    labels = np.arange(60) % 3
    right = labels[:, None] == np.arange(3)
    sure = np.where(right, 200, 27).astype(np.uint8)
    near, far = np.where(right, 120, 130), np.where(right, 10, 240)  # narrow and clear mistakes
    near, far = (
        np.where((labels == 0)[:, None], one * (np.arange(3) < 2), sure).astype(np.uint8) for one in (near, far)
    )
    both = [(tuple(labels.tolist()), one.tobytes().hex()) for one in (far, near)]
    assert expect_score("val_accuracy", both) == expect_score("val_soft_accuracy", both)
    assert expect_score("val_balanced_accuracy", both) == expect_score("val_soft_balanced_accuracy", both)
    near[:4] = sure[:4]  # it has one mistake fewer, and one has more only by luck
    best = (tuple(labels.tolist()), near.tobytes().hex())
    assert expect_score("val_soft_accuracy", [best, both[0]])[0] == pytest.approx(
        (near.argmax(1) == labels).mean(), abs=0.01
    )
    assert expect_score("val_accuracy", [best, both[0]])[0] < expect_score("val_soft_accuracy", [best, both[0]])[0]


def test_the_expected_balanced_accuracy_gives_each_class_the_same_weight():
    labels, other = np.array([0] * 90 + [1] * 10), np.zeros(100, dtype=int)
    shares = (other[:, None] == np.arange(2)) * np.uint8(255)
    answers = [(tuple(labels.tolist()), shares.astype(np.uint8).tobytes().hex())]
    assert expect_score("val_accuracy", answers)[0] == pytest.approx(0.9)
    balanced, error = expect_score("val_balanced_accuracy", answers)
    assert balanced == pytest.approx(0.5)
    assert error == pytest.approx((0.25 / (36 + 4)) ** 0.5)  # 1 / Σ w² is 36
    assert expect_score("val_soft_balanced_accuracy", answers) == (balanced, error)


def test_answers_that_are_not_known_or_fit_nothing_expect_no_score():
    labels = tuple(range(3))
    good = (labels, "ff000000ff000000ff")
    assert expect_score("val_accuracy", [good])[0] == 1
    assert expect_score("val_accuracy", [good, ((), ""), ((0, 0, 0), good[1]), (labels, "ff" * 6)])[0] == 1
    assert [expect_score("val_accuracy", [bad, good]) for bad in (((), ""), (labels, "ff"), ((), "ff"))] == [None] * 3
    assert expect_score("val_macro_f1", [good]) is None


def test_the_answers_of_a_sweep_say_what_its_best_is_expected_to_score(sweep):
    labels = np.arange(60) % 3
    answers, shares = answer(np.random.default_rng(1), labels, len(sweep.completed), 0.7)
    lead = judge(replace(sweep, answers=dict(zip(sweep.completed.trial, answers, strict=True))))
    assert (lead.expected, lead.expected_error) == expect_score("val_accuracy", answers)
    assert lead.expected < shares.max()
    without = judge(sweep)
    assert (lead.mean, math.isnan(without.expected)) == (without.mean, True)
    assert "on new images" not in describe_lead(sweep.metric, without)


def test_few_images_make_the_same_scores_uncertain(sweep):
    scores = sweep.trials.score[sweep.trials.state == "completed"].to_numpy()
    wide = judge(with_scores(sweep, scores, error=0.06))
    assert wide.verdict == "open"
    assert wide.high - wide.low > 2 * (judge(sweep).high - judge(sweep).low)


def test_a_lower_loss_leads(sweep):
    space = replace(sweep.space, search=sweep.space.search.model_copy(update={"metric": "val_loss"}))
    lower = judge(replace(sweep, space=space, trials=sweep.trials.assign(score=1 - sweep.trials.score)))
    assert (lower.best, lower.verdict) == (judge(sweep).best, "clear")
    assert lower.observed == pytest.approx(judge(sweep).observed)


def test_without_enough_full_trainings_the_lead_is_open(sweep):
    baseline, best = (sweep.completed[sweep.completed.is_baseline == kind].trial.iloc[0] for kind in (True, False))
    lead = judge(replace(sweep, trials=sweep.trials[sweep.trials.trial.isin([baseline, best])]))
    assert lead.verdict == "open"
    assert "2 trials at full length cannot show the noise between trainings" in describe_lead(sweep.metric, lead)


def test_scores_that_lie_many_standard_errors_behind_are_no_rivals_even_among_four_trials(sweep):
    trials = sweep.trials.assign(state="completed")
    four = [*trials[trials.is_baseline].trial, trials[~trials.is_baseline].trial.min()]
    few = replace(sweep, trials=trials[trials.trial.isin(four)])
    lead = judge(
        with_scores(few, [0.454, 0.214, 0.711, 0.449], error=0.024)
    )  # the baseline at three rates, and one more
    assert (lead.best, lead.rivals) == (f"{four[2]:04d}", ())
    assert describe_rivals(lead) is None
    close = judge(with_scores(few, [0.70, 0.214, 0.711, 0.69], error=0.024))
    assert close.rivals == (f"{four[0]:04d}", f"{four[3]:04d}")


def test_a_sweep_without_a_completed_trial_has_no_lead(sweep):
    assert judge(replace(sweep, trials=sweep.trials[sweep.trials.state == "stopped"])) is None


def test_only_baselines_are_not_called_unbeaten(sweep):
    done = sweep.trials.state == "completed"
    alone = replace(sweep, trials=sweep.trials[sweep.trials.is_baseline | ~done])
    assert describe_lead(sweep.metric, judge(alone)).startswith("Only baselines have completed: the best of them is ")
    unbeaten = sweep.trials.assign(score=sweep.trials.score + sweep.trials.is_baseline)
    assert describe_lead(sweep.metric, judge(replace(sweep, trials=unbeaten))).startswith(
        "No recipe beat the baselines"
    )


def test_a_copy_is_counted_among_the_other_completed_trials(sweep):
    done = sweep.completed.trial.tolist()
    rivals = judge(with_scores(sweep, np.full(len(done), 0.9), error=0.1))
    assert describe_rivals(rivals).startswith(f"The {len(done) - 1} other completed trials may be as good")
    copied = replace(with_scores(sweep, np.full(len(done), 0.9), error=0.1), copies=frozenset(done[-1:]))
    count = len(done) - 1
    assert describe_rivals(judge(copied)).startswith(
        f"{count - 1} of the {count} other completed trials may be as good"
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {},
            "The best, 0011, is probably 1.4 to 7.9 points better than the best baseline, 0001, with new seeds and images "
            "(98 % certain that it is better; as scored: 7.7 points).",
        ),
        (
            {"low": -0.016, "probability": 0.78},
            "It is open whether the best, 0011, is better than the best baseline, 0001: −1.6 to 7.9 points are probable "
            "with new seeds and images (78 % certain that it is better; as scored: 7.7 points).",
        ),
        ({"probability": 0.9999}, "more than 99 % certain"),
        ({"baseline": "0011"}, "No recipe beat the baselines: the best trial, 0011, is a baseline."),
        ({"baseline": "0011", "only_baselines": True}, "Only baselines have completed: the best of them is 0011."),
        ({"baseline": None}, "0011 is the best of 12 completed trials. No baseline completed, so its gain is unknown."),
        ({"count": 1}, "Only one trial completed, 0011: there is nothing to compare it with."),
        (
            {"expected": 0.951, "expected_error": 0.04},
            "as scored: 7.7 points). The expected accuracy of 0011 on new images is 95.1 % (88.5 % to 100.0 %).",
        ),
    ],
)
def test_the_statement_names_the_lead_with_its_certainty(changes, sentence):
    lead = Lead("0011", "0001", 12, 0.077, 0.046, 0.014, 0.079, 0.98, ("0007",))
    assert sentence in describe_lead("val_accuracy", replace(lead, **changes))
    balanced = describe_lead("val_soft_balanced_accuracy", replace(lead, expected=0.7, expected_error=0.05))
    assert balanced.endswith(" The expected balanced accuracy of 0011 on new images is 70.0 % (61.8 % to 78.2 %).")
    assert describe_rivals(lead) == (
        "1 of the 11 other completed trials may be as good as 0011: more images or seeds would show it."
    )
    assert describe_rivals(replace(lead, count=5, rivals=("0001", "0002", "0003", "0004"))) == (
        "The 4 other completed trials may be as good as 0011: more images or seeds would show it."
    )
    assert describe_rivals(replace(lead, rivals=())) is None

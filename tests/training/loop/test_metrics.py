from __future__ import annotations

import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from analysis.held_out.scoring import fit_temperature
from training.loop.metrics import judge, measure, soften
from training.score_metrics import MAXIMISED, MINIMISED, is_better

CLASSES = 5


def predict(count=400, seed=0, missing=()):
    """Labels and probabilities of a classifier that is right more often than not; some classes may not occur."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    for label in missing:
        labels[labels == label] = (label + 1) % CLASSES
    logits = torch.randn(count, CLASSES, generator=generator) + 2 * torch.nn.functional.one_hot(labels, CLASSES)
    return labels, logits.double().softmax(1)


def measured(labels, probabilities, score="val_accuracy"):
    return measure(judge(probabilities.log(), labels), CLASSES, score)


@pytest.mark.parametrize("missing", [(), (2,)])
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
def test_metrics_equal_scikit_learns(missing):
    labels, probabilities = predict(missing=missing)
    metrics, _ = measured(labels, probabilities)
    predicted = probabilities.argmax(1)
    assert metrics["val_accuracy"] == pytest.approx(accuracy_score(labels, predicted))
    assert metrics["val_balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, predicted))
    assert metrics["val_macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert metrics["val_loss"] == pytest.approx(log_loss(labels, probabilities, labels=range(CLASSES)))


def test_ece_equals_torchmetrics():
    labels, probabilities = predict()
    expected = multiclass_calibration_error(probabilities, labels, CLASSES, n_bins=15, norm="l1")
    assert measured(labels, probabilities)[0]["val_ece"] == pytest.approx(float(expected))


def test_ece_of_certain_predictions_is_their_error():
    labels = torch.tensor([0, 1, 2, 3])
    probabilities = torch.eye(CLASSES, dtype=torch.float64)[[0, 1, 2, 4]].clamp(1e-12)
    metrics, _ = measured(labels, probabilities)
    assert metrics["val_ece"] == pytest.approx(0.25)
    assert metrics["val_accuracy"] == 0.75


def test_the_standard_error_of_accuracy_is_nearly_binomial():
    labels, probabilities = predict()
    metrics, error = measured(labels, probabilities)
    share = metrics["val_accuracy"]
    assert error == pytest.approx((share * (1 - share) / len(labels)) ** 0.5, rel=0.03)


def test_soft_accuracy_is_the_probability_of_the_class_at_half_the_best_temperature():
    labels, probabilities = predict()
    temperature = fit_temperature(probabilities.log().numpy(), labels.numpy())
    exact = (2 / temperature * probabilities.log()).softmax(1)[torch.arange(len(labels)), labels]
    for factor in (0.3, 1.0, 4.0):  # the temperature of the training is no merit
        _, _, _, losses = judge(factor * probabilities.log(), labels)
        assert soften(losses).tolist() == pytest.approx(exact.tolist(), abs=0.02)
        soft = measured(labels, (factor * probabilities.log()).softmax(1))[0]["val_soft_accuracy"]
        assert soft == pytest.approx(float(exact.mean()), abs=0.002)
        assert soft == pytest.approx(accuracy_score(labels, probabilities.argmax(1)), abs=0.05)


def test_soft_accuracy_says_with_fewer_images_which_of_two_models_is_better():
    def draw(count, seed):
        generator = torch.Generator().manual_seed(seed)
        labels, noise = torch.arange(count) % CLASSES, torch.randn(count, CLASSES, generator=generator)
        right = torch.nn.functional.one_hot(labels, CLASSES)
        more = torch.randn(count, CLASSES, generator=generator)  # the two mostly mistake the same images
        return [
            measured(labels, (noise + 0.3 * more * sign + lift * right).softmax(1))[0]
            for sign, lift in ((1, 2), (-1, 1.8))
        ]

    found = {
        name: [one[name] > two[name] for one, two in (draw(80, seed) for seed in range(200))]
        for name in ("val_accuracy", "val_soft_accuracy")
    }
    assert sum(found["val_soft_accuracy"]) > sum(found["val_accuracy"]) + 20


def test_the_standard_error_of_soft_accuracy_is_that_of_its_images():
    labels, probabilities = predict()
    values = soften(judge(probabilities.log(), labels)[3])
    metrics, error = measured(labels, probabilities, "val_soft_accuracy")
    assert error == pytest.approx(float(values.std()) / len(labels) ** 0.5, rel=0.02)
    assert error < 0.95 * (metrics["val_accuracy"] * (1 - metrics["val_accuracy"]) / len(labels)) ** 0.5


def test_the_soft_balanced_accuracy_gives_each_class_that_occurs_the_same_weight():
    labels, probabilities = predict(missing=(2,))
    values = soften(judge(probabilities.log(), labels)[3])
    means = [float(values[labels == label].mean()) for label in labels.unique()]
    found = measured(labels, probabilities)[0]["val_soft_balanced_accuracy"]
    assert found == pytest.approx(sum(means) / len(means))
    assert found != pytest.approx(float(values.mean()), abs=1e-4)


def test_soft_accuracy_where_one_temperature_is_no_better_than_another():
    labels = torch.arange(10) % CLASSES
    right = torch.nn.functional.one_hot(labels, CLASSES).double()
    assert measured(labels, right.clamp(1e-6))[0]["val_soft_accuracy"] == pytest.approx(1)
    assert measured(labels, torch.full((10, CLASSES), 1 / CLASSES))[0]["val_soft_accuracy"] == pytest.approx(
        1 / CLASSES
    )


@pytest.mark.parametrize("score", MAXIMISED)
def test_a_perfect_score_has_a_standard_error(score):
    errors = []
    for count in (10, 1000):
        labels = torch.arange(count) % CLASSES
        metrics, error = measured(labels, torch.eye(CLASSES, dtype=torch.float64)[labels].clamp(1e-12), score)
        assert metrics[score] == pytest.approx(1)
        errors.append(error)
    # The chance of no mistake in N images is 5 % if 3 / N of all images are wrong (the rule of three).
    assert errors == pytest.approx([0.09, 0.0014], rel=0.05)


@pytest.mark.parametrize("score", [*MAXIMISED, *MINIMISED])
def test_the_standard_error_is_the_spread_of_a_score_between_samples(score):
    samples = [measured(*predict(seed=seed), score) for seed in range(60)]
    spread = float(torch.tensor([metrics[score] for metrics, _ in samples]).std())
    said = sum(error for _, error in samples) / len(samples)
    assert 0.6 * spread < said < 1.6 * spread


def test_the_standard_error_is_the_same_each_time():
    data = predict()
    assert measured(*data, "val_macro_f1")[1] == measured(*data, "val_macro_f1")[1]
    before = torch.get_rng_state()
    measured(*data, "val_ece")
    assert torch.equal(torch.get_rng_state(), before)


def test_metrics_rank_in_their_direction_and_ties_are_no_improvement():
    assert is_better("val_accuracy", 0.9, 0.8)
    assert is_better("val_loss", 0.8, 0.9)
    for metric in (*MAXIMISED, *MINIMISED):
        assert is_better(metric, 0.5, None)
        assert not is_better(metric, 0.5, 0.5)
        assert is_better(metric, 0.9, 0.8) != is_better(metric, 0.8, 0.9)

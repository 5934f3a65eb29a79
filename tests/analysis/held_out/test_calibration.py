"""Calibration compared with reference libraries, and with a known temperature."""

import tracemalloc

import numpy as np
import torch
from scipy.special import softmax
from sklearn.metrics import brier_score_loss, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from analysis.held_out.scoring import fit_temperature, measure_calibration, score_test


def draw(count=4000, classes=5, temperature=1.0):
    """Return logits that are `temperature` times too large for labels drawn from their softmax."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (count, classes))
    labels = np.array([rng.choice(classes, p=p) for p in softmax(logits, axis=1)])
    return logits * temperature, labels


def test_measures_equal_those_of_reference_libraries():
    logits, labels = draw(temperature=2.0)
    found = measure_calibration(logits, labels)
    probabilities = softmax(logits, axis=1)
    ece = multiclass_calibration_error(torch.tensor(probabilities), torch.tensor(labels), num_classes=5, n_bins=15)
    assert abs(found["ece"] - float(ece)) < 1e-6
    assert abs(found["nll"] - log_loss(labels, probabilities)) < 1e-9
    assert abs(found["brier"] - brier_score_loss(labels, probabilities, scale_by_half=False)) < 1e-9


def test_the_temperature_of_overconfident_logits_is_found_and_improves_the_calibration():
    logits, labels = draw(temperature=3.0)
    temperature = fit_temperature(logits, labels)
    assert abs(temperature - 3.0) < 0.15
    before, after = measure_calibration(logits, labels), measure_calibration(logits / temperature, labels)
    assert after["ece"] < 0.03 < 0.1 < before["ece"]


def test_the_memory_of_a_score_does_not_grow_with_the_square_of_the_classes():
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, 3000, 50), rng.normal(0, 1, (50, 3000))
    logits[np.arange(0, 50, 2), labels[::2]] = 9
    tracemalloc.start()
    score = score_test((logits, labels), (logits, labels), tuple(map(str, range(3000))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 25 * 2**20  # a table of classes by classes would take 69 MB
    assert (score["correct"], score["confusion"], len(score["recall"])) == (25, [], 3000)
    assert sum(recall["found"] for recall in score["recall"]) == 25

"""The model finds factors that it was never given together."""

from dataclasses import replace

import pytest

from search.core.cost_model import CostModel, CostTarget, measure_error
from tests.search.core.made_up_costs import cost_of, measure_made_up


@pytest.fixture(scope="module")
def measured():
    return measure_made_up()


def points_of(measured, checks=True):
    return [(one.features, cost) for one, cost in [*measured.fitted, *(measured.checks if checks else ())]]


def test_a_combination_that_was_not_measured_has_the_product_of_the_factors(measured):
    points = points_of(measured, checks=False)
    model, fitted = CostModel(points, False), [features for features, _ in points]
    others = [target for target in measured.candidates if target.features not in fitted]
    assert len(others) > 5
    for target in others:
        found, real = model.predict(target.features), cost_of(target)
        assert found.train_seconds == pytest.approx(real.train_seconds, rel=0.1)
        assert found.images_per_second == pytest.approx(real.images_per_second, rel=0.1)
        assert found.ram_mb == pytest.approx(real.ram_mb, rel=0.15)


def test_predictions_are_those_of_a_ridge_regression_by_hand(measured):
    """The figures come from np.linalg.solve on the normal equations."""
    points = points_of(measured, checks=False)
    fitted = [features for features, _ in points]
    others = [target.features for target in measured.candidates if target.features not in fitted]
    model = CostModel(points, False)
    found = [(cost.train_seconds, cost.ram_mb) for cost in map(model.predict, others[:3])]
    assert found == [
        pytest.approx((1.4647815648962963, 564.0)),
        pytest.approx((1.0431019686584606, 614.3406250981711)),
        pytest.approx((2.056927412014659, 525.482511715552)),
    ]


def test_a_single_measurement_predicts_itself(measured):
    (point, *_), others = points_of(measured), measured.candidates[1:]
    assert CostModel([point], False).predict(others[0].features).train_seconds == pytest.approx(point[1].train_seconds)


def test_a_measured_recipe_keeps_its_own_measurement(measured):
    odd = CostTarget(measured.candidates[0].recipe, "most")
    cost = cost_of(odd, noise=7.0)
    model = CostModel([*points_of(measured), (odd.features, cost)], False)
    assert model.predict(odd.features) == cost


def test_chance_in_small_numbers_does_not_multiply(measured):
    """A start that seemed to take no time once made the product of others thousands of seconds."""
    noisy = [
        (features, replace(cost, setup_seconds=0.5 * bool(number), ram_mb=400.5 + 20 * bool(number)))
        for number, (features, cost) in enumerate(points_of(measured))
    ]
    model = CostModel(noisy, False)
    for target in measured.candidates:
        found = model.predict(target.features)
        assert found.setup_seconds <= 0.5
        assert found.ram_mb < 600


def test_no_prediction_is_far_beyond_everything_that_was_measured(measured):
    points = enumerate(points_of(measured))
    changed = [
        (features, replace(cost, train_seconds=0.01 if number == 0 else 5.0)) for number, (features, cost) in points
    ]
    model = CostModel(changed, False)
    assert max(model.predict(target.features).train_seconds for target in measured.candidates) <= 4 * 5.0 + 1e-9


def test_the_error_is_a_factor_in_both_directions(measured):
    for noise in (2.0, 0.5):
        checks = [(t.features, cost_of(t, noise)) for t in measured.candidates[-2:]]
        model = CostModel([(t.features, cost_of(t)) for t in measured.candidates], False)
        error = measure_error(model, checks)
        assert error.recipes == 2
        assert 1.3 < error.time <= 2.0  # evaluation and checkpoint are as predicted
    exact = [(target.features, cost) for target, cost in measured.checks]
    error = measure_error(CostModel(points_of(measured, checks=False), False), exact)
    assert error.time == pytest.approx(1.0, abs=0.1)


def test_memory_of_a_gpu_grows_from_nothing_and_that_of_a_process_from_its_own():
    cost = cost_of(measure_made_up().candidates[0])
    points = [({"batch_size": 32.0}, cost), ({"batch_size": 64.0}, replace(cost, device_memory_mb=2 * 628))]
    for is_gpu, expected in ((True, 4 * 628), (False, 400 + 228 * ((2 * 628 - 400) / 228) ** 2)):
        found = CostModel(points, is_gpu).predict({"batch_size": 128.0})
        assert found.device_memory_mb == pytest.approx(expected, rel=0.12)

"""The model finds factors that it was never given together."""

from dataclasses import replace

import pytest

from search.planning.cost_model import CostModel, Point, measure_error
from search.planning.targets import Target
from tests.search.planning.made_up import cost_of, measure_made_up, prepare


@pytest.fixture(scope="module")
def measured():
    return measure_made_up(prepare())


def test_a_combination_that_was_not_measured_has_the_product_of_the_factors(measured):
    fitted = [one for one in measured.measurements if one.target.kind != "check"]
    model = CostModel([Point(one.target.features, one.cost) for one in fitted], False)
    others = [target for target in measured.candidates if target.features not in [p.target.features for p in fitted]]
    assert len(others) > 5
    for target in others:
        found, real = model.predict(target.features), cost_of(target)
        assert found.train_seconds == pytest.approx(real.train_seconds, rel=0.1)
        assert found.images_per_second == pytest.approx(real.images_per_second, rel=0.1)
        assert found.ram_mb == pytest.approx(real.ram_mb, rel=0.15)


def test_a_measured_recipe_keeps_its_own_measurement(measured):
    odd = Target(measured.candidates[0].recipe, "most")
    cost = cost_of(odd, noise=7.0)
    model = CostModel([*measured.points, Point(odd.features, cost)], False)
    assert model.predict(odd.features) == cost


def test_chance_in_small_numbers_does_not_multiply(measured):
    """A start that seemed to take no time once made the product of others thousands of seconds."""
    noisy = [
        Point(point.features, replace(point.cost, setup_seconds=0.5 * bool(number), ram_mb=400.5 + 20 * bool(number)))
        for number, point in enumerate(measured.points)
    ]
    model = CostModel(noisy, False)
    for target in measured.candidates:
        found = model.predict(target.features)
        assert found.setup_seconds <= 0.5
        assert found.ram_mb < 600


def test_no_prediction_is_far_beyond_everything_that_was_measured(measured):
    points = measured.points
    costs = [replace(point.cost, train_seconds=0.01 if number == 0 else 5.0) for number, point in enumerate(points)]
    model = CostModel([Point(point.features, cost) for point, cost in zip(points, costs, strict=True)], False)
    assert max(model.predict(target.features).train_seconds for target in measured.candidates) <= 4 * 5.0 + 1e-9


def test_the_error_is_a_factor_in_both_directions(measured):
    for noise in (2.0, 0.5):
        checks = [Point(t.features, cost_of(t, noise)) for t in measured.candidates[-2:]]
        model = CostModel([Point(t.features, cost_of(t)) for t in measured.candidates], False)
        error = measure_error(model, checks)
        assert error.recipes == 2
        assert 1.3 < error.time <= 2.0  # evaluation and checkpoint are as predicted
    assert measured.error.time == pytest.approx(1.0, abs=0.1)


def test_memory_of_a_gpu_grows_from_nothing_and_that_of_a_process_from_its_own():
    point = Point({"batch_size": 32.0}, cost_of(measure_made_up(prepare()).candidates[0]))
    double = Point({"batch_size": 64.0}, point.cost.__class__(**vars(point.cost) | {"device_memory_mb": 2 * 628}))
    for is_gpu, expected in ((True, 4 * 628), (False, 400 + 228 * ((2 * 628 - 400) / 228) ** 2)):
        found = CostModel([point, double], is_gpu).predict({"batch_size": 128.0})
        assert found.device_memory_mb == pytest.approx(expected, rel=0.12)

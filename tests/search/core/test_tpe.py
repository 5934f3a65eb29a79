"""TPE's densities and draws, beside those of Optuna."""

import math

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator, _ParzenEstimatorParameters
from optuna.samplers._tpe.sampler import default_weights

from search.core.tpe import Axis, Kernels, Points, Proposal

OPTUNA = _ParzenEstimatorParameters(1.0, True, False, default_weights, True)
AXES = {
    "choice": (Axis(0, 2, ("a", "b", "c")), CategoricalDistribution(("a", "b", "c"))),
    "float": (Axis(-1.0, 3.0), FloatDistribution(-1.0, 3.0)),
    "log": (Axis(1e-5, 1.0, is_log=True), FloatDistribution(1e-5, 1.0, log=True)),
    # So many that two points never have the same: which of them then gets which width is chance in Optuna.
    "whole": (Axis(2, 10**6, is_whole=True), IntDistribution(2, 10**6)),
}


def draw_points(axes: list[Axis], count: int, random: np.random.Generator) -> np.ndarray:
    return np.array([[axis.encode(axis.draw(random)) for axis in axes] for _ in range(count)]).reshape(count, len(axes))


def test_the_densities_are_those_of_optuna() -> None:
    random = np.random.default_rng(0)
    for _ in range(1000):
        kinds = random.choice(list(AXES), size=random.integers(1, 7))
        axes = [AXES[kind][0] for kind in kinds]
        known, new = draw_points(axes, random.integers(0, 60), random), draw_points(axes, 5, random)
        plain = [
            {
                str(i): np.exp(column) if axis.is_log else column
                for i, (axis, column) in enumerate(zip(axes, each.T, strict=True))
            }
            for each in (known, new)
        ]
        space = {str(i): AXES[kind][1] for i, kind in enumerate(kinds)}
        theirs = _ParzenEstimator(plain[0], space, OPTUNA).log_pdf(plain[1])
        assert Kernels(known, axes).log_density(new) == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("axis", [*(axis for axis, _ in AXES.values()), Axis(0, 3, is_whole=True)])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_draws_have_the_density(axis: Axis, count: int) -> None:
    """The mean of q/p over draws from p is 1 for any density q; here q is equal everywhere."""
    random = np.random.default_rng(count)
    kernels = Kernels(draw_points([axis], count, random), [axis])
    draws = kernels.draw(20_000, random)
    low, high = axis.edges
    size = len(axis.options) or high - low
    assert np.mean(np.exp(-kernels.log_density(draws)) / size) == pytest.approx(1, abs=0.05)
    assert low <= draws.min() <= draws.max() <= high
    assert axis.encode(axis.decode(draws.max())) == pytest.approx(draws.max())


@pytest.mark.parametrize("axis", [AXES["choice"][0], Axis(0, 3, is_whole=True)])
def test_each_option_is_drawn_as_often_as_its_density_says(axis: Axis) -> None:
    kernels = Kernels(np.array([[1.0]]), [axis])
    numbers = np.arange(axis.low, axis.high + 1)
    drawn = np.bincount(kernels.draw(40_000, np.random.default_rng(0))[:, 0].astype(int)) / 40_000
    assert drawn == pytest.approx(np.exp(kernels.log_density(numbers[:, None])), abs=0.01)


def test_parameters_that_occur_together_are_a_group() -> None:
    points, axis = Points(), Axis(0.0, 1.0)
    for names in ("ab", "abc", "ad", "bc"):
        points.add(dict.fromkeys(names, 0.5), dict.fromkeys(names, axis))
    assert sorted("".join(group) for group in points.groups) == ["a", "b", "c", "d"]
    points = Points()
    for names in ("xyab", "xycd", "xyab"):
        points.add(dict.fromkeys(names, 0.5), dict.fromkeys(names, axis))
    assert sorted("".join(group) for group in points.groups) == ["ab", "cd", "xy"]


def test_the_matrix_grows_in_both_directions() -> None:
    points = Points()
    for number in range(200):
        names = ["first", f"name{number}"]
        assert points.add(dict.fromkeys(names, number), dict.fromkeys(names, Axis(0.0, 200.0))) == number
    assert points.of(np.arange(200), ["first"])[:, 0].tolist() == list(range(200))
    assert points.of(np.arange(200), ["name7"]).tolist() == [[7.0]]


def test_two_parameters_whose_good_values_depend_on_each_other_are_drawn_so() -> None:
    """Good are (0, 0) and (1, 1), others are (0, 1) and (1, 0): each parameter alone says nothing."""
    points, axes = Points(), dict.fromkeys("ab", Axis(0, 1, ("no", "yes")))
    for number in range(40):
        points.add({"a": ("no", "yes")[number % 2], "b": ("no", "yes")[number // 2 % 2]}, axes)
    equal = [number for number in range(40) if number % 2 == number // 2 % 2]
    others = [number for number in range(40) if number not in equal]
    proposal = Proposal(points, np.array(equal), np.array(others), np.random.default_rng(0))
    drawn = []
    for _ in range(20):
        choose = proposal.begin()
        drawn.append((choose("a", axes["a"]), choose("b", axes["b"])))
    assert {("no", "no"), ("yes", "yes")} == set(drawn)


@pytest.mark.parametrize("high", [0.1, 0.3, 0.7, 3e-4])
def test_a_logarithm_does_not_leave_its_axis(high: float) -> None:
    axis = Axis(1e-5, high, is_log=True)
    assert [axis.decode(edge) for edge in axis.edges] == [1e-5, high]
    assert axis.decode(math.log(high) + 1e-9) == high

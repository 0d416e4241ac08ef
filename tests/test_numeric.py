"""Derivative estimates: error bars cover the truth, kinks are seen, and nothing right is called wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, settings
from hypothesis import given as given_many
from hypothesis import strategies as st

from gradfuzz.checker import numeric
from gradfuzz.checker.numeric import Answer, Estimate, LadderSpec, Samples

# Most of these properties are parametrised too: a few draws for every function and ladder are many in all.
DRAWS = 12


def given(**drawn):
    return lambda test: settings(max_examples=DRAWS, deadline=None)(given_many(**drawn)(test))


EPS = float(np.finfo(np.float64).eps)
LADDERS = {"screen": numeric.SCREEN, "wide": numeric.WIDE, "fine": numeric.FINE, "near": numeric.NEAR}

# A function, its derivative, and points of the scale one around which both are smooth.
SMOOTH = {
    "sin": (np.sin, np.cos),
    "cos": (np.cos, lambda t: -np.sin(t)),
    "exp": (np.exp, np.exp),
    "cube": (lambda t: t**3, lambda t: 3 * t**2),
    "tanh": (np.tanh, lambda t: 1 / np.cosh(t) ** 2),
    "reciprocal": (lambda t: 1 / (t + 5), lambda t: -1 / (t + 5) ** 2),
    "constant": (lambda t: np.full_like(t, 3.0), np.zeros_like),
    "line": (lambda t: 2 * t - 1, lambda t: np.full_like(t, 2.0)),
}


def along(f, at=0.0, spec=numeric.WIDE, scale=1.0):
    """Sample t -> f(at + scale t) as a vector of one element."""
    with np.errstate(all="ignore"):
        points = [np.array([float(at)])] + [np.array([at + s * scale * h]) for s in (1, -1) for h in spec.steps]
        rows = [np.asarray(f(p), dtype=float) for p in points]
    count = spec.rungs
    return Samples(spec, rows[0], np.array(rows[1 : 1 + count]), np.array(rows[1 + count :]))


def estimate(samples, noise=0.0):
    return numeric.central(samples, noise=np.full(len(samples.centre), noise), eps=EPS)


def kinked(samples, noise=0.0):
    return bool(numeric.not_smooth(samples, noise=np.full(len(samples.centre), noise), eps=EPS)[0])


def answer(analytic, est, samples, **wider):
    comparison = numeric.compare(
        np.array([analytic]), est, (slice(0, 1),), jitter=np.zeros(1), natural=samples.largest,
        least_scale=np.zeros(1), eps=EPS, **wider,
    )  # fmt: skip
    return comparison.answer


points = st.floats(-2, 2)


@pytest.mark.parametrize("ladder", LADDERS)
@pytest.mark.parametrize("name", SMOOTH)
@given(at=points)
@example(at=0.0)
def test_the_error_bar_covers_the_truth(name, ladder, at):
    f, derivative = SMOOTH[name]
    value, error = estimate(along(f, at, LADDERS[ladder]))
    truth = derivative(np.array([at]))
    assert np.abs(value - truth) <= numeric.AGREE_BARS * error + 8 * EPS * np.abs(truth)


@pytest.mark.parametrize("name", SMOOTH)
@given(at=points)
def test_the_wide_ladder_knows_smooth_functions_to_a_millionth(name, at):
    f, derivative = SMOOTH[name]
    samples = along(f, at)
    scale = max(float(np.abs(derivative(np.array([at])))[0]), float(samples.largest[0]))
    assert estimate(samples).error[0] <= 1e-6 * scale


@pytest.mark.parametrize("name", SMOOTH)
@given(at=points, exponent=st.integers(-100, 100), size=st.floats(1, 10))
def test_an_estimate_scales_with_the_function(name, at, exponent, size):
    f, _ = SMOOTH[name]
    unit = size * 10.0**exponent
    plain, scaled = estimate(along(f, at)), estimate(along(lambda t: unit * f(t), at))
    bar = numeric.AGREE_BARS * (plain.error + scaled.error / unit)
    assert np.abs(scaled.value / unit - plain.value) <= bar + 64 * EPS * np.abs(plain.value)


@pytest.mark.parametrize("ladder", LADDERS)
@pytest.mark.parametrize("name", SMOOTH)
@given(at=points, exponent=st.integers(-30, 30))
def test_the_right_value_is_never_contradicted(name, ladder, at, exponent):
    f, derivative = SMOOTH[name]
    unit = 10.0**exponent
    samples = along(lambda t: unit * f(t), at, LADDERS[ladder])
    right = unit * float(derivative(np.array([at]))[0])
    assert answer(right, estimate(samples), samples) is not Answer.CONTRADICTS


@pytest.mark.parametrize("name", [n for n in SMOOTH if n != "constant"])
@pytest.mark.parametrize("off", [1.0005, 0.9995, 1.1, 2.0, -1.0, 0.0])
@given(at=st.floats(0.25, 1.25), exponent=st.integers(-30, 30))
def test_a_value_off_by_a_two_thousandth_is_contradicted(name, off, at, exponent):
    f, derivative = SMOOTH[name]
    unit = 10.0**exponent
    samples = along(lambda t: unit * f(t), at)
    wrong = off * unit * float(derivative(np.array([at]))[0])
    assert answer(wrong, estimate(samples), samples) is Answer.CONTRADICTS


@given(at=st.floats(0.25, 1.25))
def test_the_right_value_agrees_with_power(at):
    samples = along(np.sin, at)
    assert answer(math.cos(at), estimate(samples), samples) is Answer.AGREES


def test_nan_is_contradicted_by_a_known_derivative():
    samples = along(np.sin, 0.5)
    assert answer(math.nan, estimate(samples), samples) is Answer.CONTRADICTS


@given(offset=st.sampled_from([1e4, 1e8, 1e12]), at=points)
def test_a_large_offset_widens_the_error_bar_instead_of_lying(offset, at):
    samples = along(lambda t: offset + t, at)
    value, error = estimate(samples)
    assert abs(value[0] - 1) <= numeric.AGREE_BARS * error[0]
    assert error[0] >= EPS * offset  # at the longest step, 0.1, rounding alone is ten times that


def test_beyond_its_power_the_error_bar_forbids_every_claim():
    samples = along(lambda t: 1e16 + t, 0.3)
    assert answer(0.0, estimate(samples), samples) is not Answer.CONTRADICTS
    assert answer(1.0, estimate(samples), samples) is not Answer.CONTRADICTS


@pytest.mark.parametrize("noise", [1e-12, 1e-9, 1e-6])
@given(seed=st.integers(0, 2**32 - 1))
def test_rounding_that_is_passed_in_widens_the_error_bar(noise, seed):
    rng = np.random.default_rng(seed)
    samples = along(lambda t: np.sin(t) + noise * rng.uniform(-1, 1), 0.7, numeric.FINE)
    value, error = estimate(samples, noise)
    assert abs(value[0] - math.cos(0.7)) <= numeric.AGREE_BARS * error[0]


KINKS = {
    "abs": (np.abs, 0.0),
    "relu": (lambda t: np.maximum(t, 0), 0.0),
    "abs plus a curve": (lambda t: np.abs(t) + np.sin(t), 0.0),
    "maximum of two curves": (lambda t: np.maximum(np.sin(t), t**2 - t), 0.0),
    "clamp at its bound": (lambda t: np.clip(t, -1, 1), 1.0),
}


@pytest.mark.parametrize("ladder", LADDERS)
@pytest.mark.parametrize("name", KINKS)
def test_a_kink_is_seen(name, ladder):
    f, at = KINKS[name]
    assert kinked(along(f, at, LADDERS[ladder]))


@pytest.mark.parametrize("name", ["step", "sign"])
def test_a_jump_is_seen(name):
    f = {"step": lambda t: (t > 0).astype(float), "sign": np.sign}[name]
    assert kinked(along(lambda t: f(t) + (t > 0)))


@pytest.mark.parametrize("ladder", LADDERS)
@pytest.mark.parametrize("name", SMOOTH)
@given(at=points)
@example(at=0.0)
def test_a_smooth_function_has_no_kink(name, ladder, at):
    # What two roundings of the point do to the value, as jitter would tell: x + t loses as much in x.
    f = SMOOTH[name][0]
    noise = float(np.abs(f(at * (1 + 2 * EPS)) - f(at)))
    assert not kinked(along(f, at, LADDERS[ladder]), noise)


@given(noise=st.floats(1e-12, 1e-3), seed=st.integers(0, 2**32 - 1))
def test_noise_is_no_kink(noise, seed):
    rng = np.random.default_rng(seed)
    samples = along(lambda t: t + noise * rng.uniform(-1, 1), 1.0, numeric.FINE)
    assert not kinked(samples, noise)


def test_noise_unannounced_would_look_like_one():
    rng = np.random.default_rng(0)
    samples = along(lambda t: t + 1e-3 * rng.uniform(-1, 1), 1.0, numeric.FINE)
    assert kinked(samples)


@pytest.mark.parametrize(("side", "slope"), [(1, 3.0), (-1, -1.0)])
def test_a_one_sided_slope_looks_to_its_own_side_only(side, slope):
    samples = along(lambda t: np.where(t > 0, 3 * t + t**2, -t + np.sin(t) ** 2))
    value, error = numeric.one_sided(samples, side, noise=np.zeros(1), eps=EPS)
    assert abs(value[0] - slope) <= numeric.AGREE_BARS * error[0]
    assert error[0] < 1e-3


@pytest.mark.parametrize("f", [lambda t: np.sqrt(t), lambda t: np.log(t), lambda t: np.where(t < 0, np.nan, t)])
def test_outside_the_domain_nothing_is_known(f):
    value, error = estimate(along(f, 0.0))
    assert error[0] == np.inf
    samples = along(f, 0.0)
    assert answer(123.0, Estimate(value, error), samples) is Answer.CANNOT_TELL


def test_the_steps_inside_the_domain_still_count():
    samples = along(lambda t: np.log(t), 0.05, numeric.WIDE)  # -0.05 +- 0.1 leaves it, the shorter steps do not
    assert np.isnan(samples.minus).any()
    value, error = estimate(samples)
    assert abs(value[0] - 20) <= numeric.AGREE_BARS * error[0] < np.inf


def test_one_element_outside_its_domain_leaves_the_others_known():
    spec = numeric.WIDE
    good, bad = along(np.sin, 0.3, spec), along(np.sqrt, 0.0, spec)
    both = Samples(
        spec, np.hstack([good.centre, bad.centre]), np.hstack([good.plus, bad.plus]), np.hstack([good.minus, bad.minus])
    )
    error = estimate(both).error
    assert error[0] < 1e-8
    assert error[1] == np.inf


def test_beside_a_pole_the_error_bar_is_honest():
    samples = along(lambda t: 1 / t, 0.15, numeric.WIDE)
    value, error = estimate(samples)
    assert abs(value[0] + 1 / 0.15**2) <= numeric.AGREE_BARS * error[0]


def test_an_infinite_slope_is_never_a_converged_one():
    samples = along(lambda t: np.sign(t) * np.sqrt(np.abs(t)), 0.0, numeric.FINE)
    value, error = estimate(samples)
    assert error[0] > numeric.POWER_RELATIVE * abs(value[0])


def confirmed(samples, analytic, value):
    return bool(
        numeric.confirmed_by_short_steps(samples, np.array([analytic]), np.array([value]), noise=np.zeros(1), eps=EPS)[
            0
        ]
    )


def test_long_steps_over_a_staircase_are_not_confirmed_by_short_ones():
    stairs = along(lambda t: np.floor(1e3 * t) / 1e3, 0.00050001, numeric.FINE)
    assert not confirmed(stairs, analytic=0.0, value=1.0)
    assert confirmed(along(lambda t: t, 0.0005, numeric.FINE), analytic=0.0, value=1.0)


def test_long_steps_over_an_oscillation_are_not_confirmed_by_short_ones():
    wave = along(lambda t: np.sin(1e6 * t) / 1e6, 0.0, numeric.FINE)
    assert not confirmed(wave, analytic=1.0, value=0.0)
    assert confirmed(wave, analytic=0.0, value=1.0)


@given(wrong=st.floats(1.001, 1.5))
def test_tolerances_only_widen_what_agrees(wrong):
    samples = along(np.exp, 0.0)
    est = estimate(samples)
    assert answer(wrong, est, samples) is Answer.CONTRADICTS
    assert answer(wrong, est, samples, rtol=1.0) is Answer.AGREES
    assert answer(wrong, est, samples, atol=1.0) is Answer.AGREES
    assert answer(1.0, est, samples, rtol=1e-30, atol=1e-300) is Answer.AGREES


def test_nothing_to_compare_agrees():
    empty = Samples(numeric.WIDE, np.zeros(0), np.zeros((4, 0)), np.zeros((4, 0)))
    comparison = numeric.compare(
        np.zeros(0), estimate(empty), (), jitter=np.zeros(0), natural=np.zeros(0), least_scale=np.zeros(0), eps=EPS
    )
    assert comparison.answer is Answer.AGREES


def test_a_small_element_is_judged_by_the_largest_of_its_own_tensor():
    value = np.array([1.0, 1e-9, 1e-9])
    est = Estimate(value, np.full(3, 1e-13))
    off = value + np.array([0.0, 5e-10, 5e-10])
    parts = (slice(0, 2), slice(2, 3))  # the second element lies beside a large one, the third is alone
    comparison = numeric.compare(
        off, est, parts, jitter=np.zeros(3), natural=np.zeros(3), least_scale=np.zeros(3), eps=EPS
    )
    assert list(comparison.answers) == [Answer.AGREES, Answer.AGREES, Answer.CONTRADICTS]


@given(first=st.floats(1e-6, 1), ratio=st.floats(1.5, 8), rungs=st.integers(2, 9))
def test_steps_fall_by_the_ratio(first, ratio, rungs):
    steps = LadderSpec(first, ratio, rungs).steps
    assert len(steps) == rungs
    assert steps[0] == first
    np.testing.assert_allclose(steps[:-1] / steps[1:], ratio)


def test_a_weighted_sum_leaves_out_what_has_no_weight():
    bad, good = along(np.sqrt, 0.0), along(np.sin, 0.3)
    both = Samples(
        good.spec, np.hstack([good.centre, bad.centre]), np.hstack([good.plus, bad.plus]),
        np.hstack([good.minus, bad.minus]),
    )  # fmt: skip
    assert np.isfinite(both.dot(np.array([2.0, 0.0])).plus).all()
    assert not np.isfinite(both.dot(np.array([2.0, 1.0])).minus).all()

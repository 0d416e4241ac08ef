"""Strategies: what is drawn, how often, what it shrinks to, and what is refused."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch.distributions import constraints

from gradfuzz import strategies as gst
from gradfuzz.case import Case
from gradfuzz.element import elements_of, tensor_of
from gradfuzz.errors import StrategyError
from gradfuzz.strategies import case as case_module
from gradfuzz.strategies.dim import Dim, parse
from gradfuzz.strategies.layout import FILLER, KINDS
from gradfuzz.strategies.shape import MAX_ELEMENTS
from gradfuzz.strategies.value import DRAWN, MODES, pool

FLOATING = ("float64", "float32", "bfloat16", "float16")
DRAW = settings(
    max_examples=500,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SHRINK = settings(max_examples=600, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass
class Declared:
    """The least that `cases` asks of a target."""

    parameters: dict[str, Any]
    fn: Any = torch.sin
    name: str = "declared"
    order: int = 2


def drawn(strategy, count=150, seed=7):
    """The first `count` values of a strategy, the same in every run."""
    values = []

    @hypothesis.seed(seed)
    @settings(DRAW, max_examples=count)
    @given(strategy)
    def collect(value):
        values.append(value)

    collect()
    return values


def smallest(strategy, condition=lambda value: True, seed=3, examples=SHRINK.max_examples):
    """What a strategy shrinks to under a condition."""
    settings = hypothesis.settings(SHRINK, max_examples=examples)
    return hypothesis.find(strategy, condition, settings=settings, random=random.Random(seed))


def elements(recipe):
    return elements_of(recipe.build().detach().reshape(-1))


def sizes(*dims, count=120, seed=7):
    """Sizes of the tensors of cases that declare these dims."""
    target = Declared({f"x{i}": gst.tensors(d, layout="contiguous") for i, d in enumerate(dims)})
    cases = drawn(gst.cases(target), count, seed)
    return [tuple(case.inputs[argument.input].size for argument in case.arguments) for case in cases]


# --- dims ----------------------------------------------------------------------------------------


def test_the_notation_is_read_word_by_word():
    assert parse("") == ()
    assert parse("*b 3 #n") == (
        Dim(((1, "b"),), variadic=True),
        Dim(constant=3),
        Dim(((1, "n"),), broadcast=True),
    )
    assert parse("2*n+m-1") == (Dim(((2, "n"), (1, "m")), constant=-1),)
    assert parse("n*2") == parse("2*n")
    assert parse("...") == parse("*_")
    assert parse("#*b") == parse("*#b")


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ("n,m", "dims 'n,m': 'n,m' is no dimension; write a name, a number, a sum such as n+1, or *b, #n, ..."),
        ("n -1", "dims 'n -1': '-1' is no dimension; write a name, a number, a sum such as n+1, or *b, #n, ..."),
        ("2-3", "dims '2-3': '2-3' is no dimension; it is always negative"),
        ("*n+1", "dims '*n+1': '*n+1' is no dimension; * goes before a single name"),
        ("##n", "dims '##n': '##n' is no dimension; write each of # and * once"),
        ("*a *b", "dims '*a *b' has more than one variadic part; keep one of them"),
        (3, "dims=3 is no text; write names and numbers, such as '*b n'"),
    ],
)
def test_dims_that_cannot_be_read_are_refused_with_the_remedy(dims, message):
    with pytest.raises(StrategyError) as caught:
        gst.tensors(dims)
    assert str(caught.value) == message


def test_names_are_shared_by_the_arguments_of_a_case():
    for x, w in sizes("*b n", "n m"):
        assert x[-1] == w[0]
    for x, y in sizes("*b n", "*b 3"):
        assert x[:-1] == y[:-1]
        assert y[-1] == 3


def test_sums_follow_their_names_whichever_is_drawn_first():
    for dims in [("n", "n+1"), ("n+1", "n")]:
        for pair in sizes(*dims):
            n = pair[dims.index("n")][0]
            assert pair[dims.index("n+1")] == (n + 1,)
    for n, less in sizes("n", "n-2"):
        assert less[0] == n[0] - 2 >= 0
    for (both,), (a,), (b,) in sizes("2*a+b", "a", "b"):
        assert both == 2 * a + b


def test_a_size_that_turns_out_too_small_is_drawn_again_and_a_contradiction_is_refused():
    for n, less in sizes("n", "n-4", count=200):
        assert less[0] == n[0] - 4
    with pytest.raises(StrategyError, match=r"the declared dims contradict each other .*; no sizes satisfy all"):
        sizes("a-b", "b-a-1", count=5)


def test_a_broadcast_side_is_the_full_one_or_one():
    seen = set()
    for x, y in sizes("#n", "n"):
        assert x[0] in (1, y[0])
        seen.add(x == y)
    assert seen == {True, False}


def test_a_broadcast_group_drops_leading_sides_and_flattens_others():
    ranks = set()
    for x, y in sizes("*b", "#*b"):
        assert torch.broadcast_shapes(x, y) == torch.Size(x)
        ranks.add(len(x) - len(y))
    assert 0 in ranks
    assert len(ranks) > 2


def test_anonymous_dimensions_are_shared_with_nobody():
    assert any(x != y for x, y in sizes("_ _", "_ _"))
    assert any(len(x) != len(y) for x, y in sizes("...", "..."))


def test_ordinary_sizes_empty_ones_scalars_and_block_boundaries_all_come_up():
    shapes = [x for (x,) in sizes("*b n", count=700)]
    sides = Counter(n for shape in shapes for n in shape)
    assert {0, 1, 2, 3, 4, 5} <= set(sides)
    assert set(sides) - set(range(6)) <= {8, 9, 16, 17, 32, 33, 64, 65}
    assert len(set(sides)) > 8
    assert max(sides) > 33
    past = sum(any(n >= 8 for n in shape) for shape in shapes) / len(shapes)
    assert 0.02 < past < 0.15
    assert any(shape == () for (shape,) in sizes("*s"))
    assert {len(shape) for shape in shapes} == {1, 2, 3, 4}
    assert max(math.prod(shape) for shape in shapes) <= MAX_ELEMENTS


def test_different_names_often_have_equal_sizes_and_mostly_different_ones():
    square = [n == m for (n, m), *_ in sizes("n m")]
    assert 0.1 < sum(square) / len(square) < 0.6


def test_tensors_stay_small_whatever_their_rank():
    assert max(math.prod(x) for (x,) in sizes("a b c d e f g h", count=200)) <= MAX_ELEMENTS
    assert max(math.prod(x) for (x,) in sizes("a a a", count=200)) <= MAX_ELEMENTS


def test_shapes_shrink_to_few_dimensions_of_one():
    assert smallest(gst.shapes("*b n")) == (1,)
    assert smallest(gst.shapes("*b")) == ()
    assert smallest(gst.shapes("*b n"), lambda s: len(s) == 3) == (1, 1, 1)
    assert smallest(gst.shapes("n m"), lambda s: s[0] > s[1] > 0) == (2, 1)
    assert smallest(gst.shapes("n"), lambda s: s[0] > 8) == (9,)


def test_emptiness_stays_only_where_it_is_the_cause():
    assert smallest(gst.shapes("n m"), lambda s: 0 in s) in [(0, 1), (1, 0)]
    assert smallest(gst.shapes("n"), lambda s: s != (1,)) == (2,)


# --- dtypes and devices --------------------------------------------------------------------------


def test_float64_comes_first_and_most_often_and_every_real_floating_dtype_comes():
    seen = Counter(drawn(gst.dtypes()))
    assert set(seen) == set(FLOATING)
    assert seen.most_common(1)[0][0] == "float64"
    assert smallest(gst.dtypes()) == "float64"
    assert set(drawn(gst.dtypes([torch.complex64, "float16"]), 50)) == {"complex64", "float16"}


def test_the_tensors_of_a_case_share_a_dtype_unless_they_declare_others():
    target = Declared({"x": gst.tensors("n"), "y": gst.tensors("n"), "z": gst.tensors("n", dtype="float32")})
    cases = [
        [case.build().inputs[argument.input].dtype for argument in case.arguments]
        for case in drawn(gst.cases(target), 150)
    ]
    assert all(x is y for x, y, _ in cases)
    assert {x for x, _, z in cases} > {torch.float32, torch.float64}
    assert {z for _, _, z in cases} == {torch.float32}


def test_complex_is_drawn_only_where_it_is_declared():
    plain = drawn(gst.tensors("*s"))
    assert {r.storage.dtype for r in plain} <= set(FLOATING)
    declared = drawn(gst.tensors("*s", dtype=("complex128", "complex64")), 100)
    assert {r.storage.dtype for r in declared} == {"complex128", "complex64"}


def test_a_case_can_be_held_to_some_dtypes():
    target = Declared({"x": gst.tensors("n"), "i": gst.tensors("n", dtype="int32")})
    for case in drawn(gst.cases(target, dtypes="float32"), 50):
        assert [s.dtype for s in case.storages[:2]] == ["float32", "int32"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gst.dtypes("float65"), "dtype 'float65' is unknown; known are float64, float32, bfloat16"),
        (lambda: gst.dtypes(()), "dtype=() leaves no dtype; name one, or None for the real floating dtypes"),
        (lambda: gst.tensors("n", dtype="load"), "dtype 'load' is unknown"),
        (
            lambda: gst.cases(Declared({"x": gst.tensors("n")}), dtypes="int64"),
            "dtypes='int64' carries no gradient; give floating or complex dtypes",
        ),
        (
            lambda: gst.tensors("n", dtype="int64", requires_grad=True),
            "requires_grad=True, but int64 carries no gradient; leave it out",
        ),
        (lambda: gst.devices(()), "devices=() leaves no device; name one, such as 'cpu'"),
        (lambda: gst.devices("abacus"), "device 'abacus' is not available here; available are cpu"),
    ],
)
def test_dtypes_and_devices_that_are_not_there_are_refused(call, message):
    with pytest.raises(StrategyError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_devices_are_the_cpu_unless_asked():
    assert set(drawn(gst.devices(), 20)) == {"cpu"}
    assert {s.device for c in drawn(gst.cases(Declared({"x": gst.tensors("n")})), 50) for s in c.storages} == {"cpu"}


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", dict.fromkeys(MODES))
@pytest.mark.parametrize("dtype", FLOATING)
def test_every_element_is_exact_in_its_dtype(mode, dtype):
    for values in drawn(gst.values(5, dtype=dtype, mode=mode), 100):
        assert elements_of(tensor_of(dtype, values)) == values


@pytest.mark.parametrize("dtype", FLOATING)
def test_generic_elements_keep_off_the_multiples_of_an_eighth(dtype):
    for values in drawn(gst.values(6, dtype=dtype, mode="generic"), 200):
        assert all(value * 8 != round(value * 8) for value in values)
        assert all(abs(value) <= 4 for value in values)
        assert len(set(values)) > 1


def test_half_of_the_cases_are_generic_and_every_mode_comes_up():
    weights = Counter(MODES)
    assert set(weights) == {"generic", "ties", "structured", "wide", "special"}
    assert weights["generic"] * 2 == len(MODES)


def test_what_breaks_derivatives_comes_up_within_a_few_dozen_cases():
    target = Declared({"x": gst.tensors("n m", dtype="float64"), "y": gst.tensors("n m", dtype="float64")})
    seen: Counter[str] = Counter()
    cases = drawn(gst.cases(target), 600)
    for case in cases:
        inputs = case.build().inputs
        x, y = inputs[0].detach(), inputs[-1].detach()
        if not x.numel():
            continue
        seen["zero"] += bool((x == 0).any())
        seen["all zero"] += bool((x == 0).all())
        seen["two zeros in a row"] += bool(((x[:, 1:] == 0) & (x[:, :-1] == 0)).any())
        seen["equal rows"] += bool(x.shape[0] > 1 and (x[0] == x[-1]).all())
        seen["past 20"] += bool((x.abs() > 20).any())
        seen["gap past 709"] += bool(((x - y).abs() > 709).any())
        seen["tie"] += bool((x.sort(-1).values.diff() == 0).any())
    for what in ("zero", "all zero", "two zeros in a row", "equal rows", "past 20", "gap past 709", "tie"):
        assert seen[what] > len(cases) / 48, what


def test_a_mode_may_touch_one_element_or_all():
    zeros = [sum(v == 0 for v in values) for values in drawn(gst.values(6, mode="ties"), 200)]
    assert {1, 2} <= set(zeros)
    special = [sum(isinstance(v, str) for v in values) for values in drawn(gst.values(6, mode="special"), 150)]
    assert {0, 1} <= set(special)


def test_special_elements_are_those_that_formulas_forget():
    seen = {str(v) for values in drawn(gst.values(8, dtype="float32", mode="special"), 150) for v in values}
    assert {"0.0", "-0.0", "inf", "-inf", "nan:7fc00000"} <= seen
    finite = {abs(x) for x in pool("special", "float32").values if math.isfinite(x)} - {0.0}
    assert max(finite) ** 4 <= torch.finfo(torch.float32).max
    assert min(finite) < torch.finfo(torch.float32).smallest_normal


def test_structured_matrices_are_singular_identity_sorted_or_alike():
    found = Counter()
    for recipe in drawn(gst.tensors("3 3", dtype="float64", layout="contiguous"), 700):
        x = recipe.build().detach()
        found["identity"] += bool((x == torch.eye(3, dtype=x.dtype)).all())
        found["constant"] += bool((x == x[0, 0]).all() and x[0, 0] != 0)
        found["one hot"] += int((x != 0).sum() == 1 and (x == 1).any())
        found["sorted"] += bool((x.diff(dim=-1) > 0).all())
        found["twin rows"] += bool((x[0] == x[2]).all() and (x[0] != x[1]).any())
        found["zero row"] += bool((x[0] == 0).all() and (x[1] != 0).any())
    assert all(found[kind] for kind in ("identity", "constant", "one hot", "sorted", "twin rows", "zero row")), found


def test_many_elements_are_filled_from_a_drawn_seed_and_shrink_to_the_simplest_filling():
    count = 2 * DRAWN
    first, again = drawn(gst.values(count), 50), drawn(gst.values(count), 50)
    assert first == again
    assert all(len(values) == count for values in first)
    assert max(len(set(values)) for values in first) > DRAWN
    simplest = smallest(gst.values(count))
    assert all(1 < value < 1.125 for value in simplest)


def test_values_shrink_to_generic_ones_near_one():
    assert smallest(gst.values(3)) == (1.0078125, 1.0234375, 1.0390625)
    assert smallest(gst.values(2), lambda v: v[0] == 0) == (0.0, 1.0234375)
    assert smallest(gst.values(1), lambda v: float(v[0]) < 0) == (-0.1171875,)
    assert smallest(gst.values(1), lambda v: float(v[0]) > 15)[0] < 40


def test_bounds_are_kept_and_both_ends_are_drawn():
    for dtype in FLOATING:
        seen = set()
        for recipe in drawn(gst.tensors("n", dtype=dtype, bounds=(0.25, 2.5)), 150):
            values = elements(recipe)
            assert all(0.25 <= value <= 2.5 for value in values)
            seen.update(values)
        assert {0.25, 2.5} <= seen
        assert len(seen) > 20


def test_bounds_that_a_dtype_cannot_hold_exactly_are_still_kept():
    for dtype in FLOATING:
        for recipe in drawn(gst.tensors("n", dtype=dtype, bounds=(0.1, 0.3)), 200):
            assert all(0.1 <= value <= 0.3 for value in elements(recipe))


@pytest.mark.parametrize("bounds", [(0, math.inf), (-math.inf, -1), (-1000, 1000), (1e-3, 2e-3), (5, 5), (0, 1e300)])
def test_unusual_bounds_are_kept(bounds):
    for recipe in drawn(gst.tensors("n", bounds=bounds, dtype=("float64", "float32")), 200):
        assert all(bounds[0] <= float(value) <= bounds[1] for value in elements(recipe))


def test_an_integer_dtype_with_bounds_draws_integers_and_both_ends():
    recipes = drawn(gst.tensors("n", dtype="int64", bounds=(-4, 6)), 150)
    seen = {value for recipe in recipes for value in elements(recipe)}
    assert seen == set(range(-4, 7))
    assert not any(recipe.build().requires_grad for recipe in recipes)
    assert elements(smallest(gst.tensors("2", dtype="int64", bounds=(-4, 6)))) == (0, 0)


def test_small_integer_dtypes_and_bools_stay_in_their_range():
    assert {v for r in drawn(gst.tensors("n", dtype="bool"), 50) for v in elements(r)} == {True, False}
    assert all(0 <= v <= 255 for r in drawn(gst.tensors("n", dtype="uint8", bounds=(-5, 999)), 50) for v in elements(r))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: gst.tensors("n", bounds=(2, 1)),
            "bounds=(2, 1) hold nothing; write (low, high) with low <= high",
        ),
        (lambda: gst.tensors("n", bounds=3), "bounds=3 is no pair of numbers; write (low, high)"),
        (
            lambda: gst.tensors("n", bounds=(0, 1), dtype="complex64"),
            "bounds=(0, 1) have no meaning for complex dtypes; leave them out",
        ),
        (
            lambda: drawn(gst.tensors("2", bounds=(0.2, 0.8), dtype="int64"), 1),
            "bounds=(0.2, 0.8) hold no int64; widen them or choose another dtype",
        ),
        (
            lambda: gst.values(3, mode="odd"),
            "mode='odd' is unknown; known are generic, ties, structured, wide, special",
        ),
    ],
)
def test_values_that_cannot_be_drawn_are_refused(call, message):
    with pytest.raises(StrategyError) as caught:
        call()
    assert str(caught.value) == message


# --- constraints ---------------------------------------------------------------------------------

SHAPE_OF = {
    "lower_cholesky": "n n",
    "positive_definite": "*b n n",
    "corr_cholesky": "k+2 k+2",
    "simplex": "*b k+1",
    "symmetric": "n n",
}


@pytest.mark.parametrize(
    "constraint",
    [
        "positive",
        "nonnegative",
        "unit_interval",
        "simplex",
        "lower_cholesky",
        "positive_definite",
        "corr_cholesky",
        "symmetric",
        constraints.greater_than(2.0),
        constraints.interval(-1.0, 3.0),
        constraints.less_than(-1.0),
        constraints.independent(constraints.positive, 1),
    ],
    ids=str,
)
def test_elements_satisfy_their_constraint(constraint):
    dims = SHAPE_OF.get(constraint, "*b n") if isinstance(constraint, str) else "*b n"
    strategy = gst.tensors(dims, constraint=constraint, dtype="float64")
    seen = set()
    for recipe in drawn(strategy, 200):
        x = recipe.build().detach()
        if x.numel():
            assert bool(strategy.constraint.check(x).all())
            seen.add(elements(recipe))
    assert len(seen) > 50


def test_a_constrained_tensor_reaches_a_closed_edge_but_not_an_open_one():
    closed = drawn(gst.tensors("n", constraint="nonnegative"), 150)
    assert any(0.0 in elements(r) for r in closed)
    assert not any(0.0 in elements(r) for r in drawn(gst.tensors("n", constraint="positive"), 150))


def test_constrained_low_precision_elements_are_rounded_to_their_dtype():
    for recipe in drawn(gst.tensors("n", constraint="unit_interval", dtype="bfloat16"), 100):
        assert elements_of(recipe.storage.build()) == recipe.storage.elements


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: gst.tensors("n", constraint="integer_interval"),
            "constraint='integer_interval' is no constraint without parameters in torch.distributions.constraints; "
            "give a name such as 'positive', or an object such as constraints.interval(0, 1)",
        ),
        (
            lambda: gst.tensors("n", constraint="boolean"),
            "constraint=Boolean() has no transform from the real numbers; register one with "
            "torch.distributions.transform_to.register, or use another, such as 'positive'",
        ),
        (
            lambda: gst.tensors("n", constraint=3),
            "constraint=3 is neither a name nor an object of torch.distributions.constraints",
        ),
        (
            lambda: gst.tensors("n m", constraint="positive_definite"),
            "constraint PositiveDefinite() needs square matrices; end dims='n m' with one name twice, as 'n n'",
        ),
        (
            lambda: gst.tensors("*b", constraint="simplex"),
            "constraint Simplex() needs 1 dimensions at the end; dims='*b' has no such end",
        ),
        (
            lambda: gst.tensors("#n #n", constraint="lower_cholesky"),
            "constraint LowerCholesky() takes whole dimensions; write dims='#n #n' without '#' at the end",
        ),
        (
            lambda: gst.tensors("n", constraint="positive", bounds=(0, 1)),
            "bounds=(0, 1) and constraint='positive' exclude each other; give one of them",
        ),
        (
            lambda: gst.tensors("n", constraint="positive", dtype="complex64"),
            "constraint='positive' needs real floating dtypes, got complex64",
        ),
    ],
)
def test_constraints_that_cannot_be_met_are_refused(call, message):
    with pytest.raises(StrategyError) as caught:
        call()
    assert str(caught.value) == message


# --- layouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_each_layout_holds_the_same_elements_as_a_contiguous_tensor(kind):
    dtype = "complex128" if kind == "conjugated" else "float64"
    for recipe in drawn(gst.tensors("2 3 4 2", dtype=dtype, layout=kind), 20):
        x = recipe.build().detach()
        assert x.shape == (2, 3, 4, 2)
        logical = elements(recipe)
        assert not {FILLER, (FILLER, 0.0)} & set(logical)
        match kind:
            case "contiguous":
                assert x.is_contiguous()
            case "transposed":
                assert x.mT.is_contiguous()
            case "permuted":
                assert sorted(x.stride()) == [1, 2, 8, 24] or sorted(x.stride())[0] == 1
            case "channels_last":
                assert x.is_contiguous(memory_format=torch.channels_last)
            case "offset":
                assert x.storage_offset() > 0
            case "sliced":
                assert x.untyped_storage().nbytes() > x.numel() * x.itemsize
            case "expanded":
                assert 0 in x.stride()
            case "overlapping":
                assert x.stride()[-2:] == (1, 1)
                assert torch.equal(x[..., 1:, :-1].nan_to_num(), x[..., :-1, 1:].nan_to_num())
            case "negated":
                assert x.is_neg()
            case "conjugated":
                assert x.is_conj()


def test_every_layout_comes_up_and_contiguous_is_the_simplest():
    recipes = drawn(gst.tensors("*b n m"), 700)
    plain = sum(r.build().is_contiguous() and not r.view.offset and not r.view.neg for r in recipes)
    assert 0.6 < plain / len(recipes) < 0.95
    assert any(r.view.neg for r in recipes)
    assert any(0 in r.view.stride and r.view.numel for r in recipes)
    assert smallest(gst.layouts(3)).steps == (1, 1, 1)
    assert smallest(gst.layouts(3)).order == (0, 1, 2)


def test_a_layout_that_the_rank_does_not_allow_is_contiguous():
    assert all(r.build().is_contiguous() for r in drawn(gst.tensors("n", layout="channels_last"), 20))


def test_an_event_of_a_constraint_is_never_expanded_or_overlapping():
    for recipe in drawn(gst.tensors("3 2 2", constraint="positive_definite"), 200):
        assert 0 not in recipe.view.stride[1:]


def test_an_unknown_layout_is_refused():
    with pytest.raises(StrategyError, match="layout='diagonal' is unknown; known are contiguous, transposed"):
        gst.tensors("n", layout="diagonal")
    with pytest.raises(StrategyError, match="layout='' is unknown"):
        gst.layouts(2, ())


# --- indices -------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["table", "index"])
def test_an_index_fits_its_table_whichever_is_declared_first(first):
    parameters = {"table": gst.tensors("n d"), "index": gst.indices("*k", below="n")}
    if first == "index":
        parameters = dict(reversed(parameters.items()))
    target = Declared(parameters)
    duplicates = 0
    for case in drawn(gst.cases(target), 150):
        inputs = dict(zip(parameters, case.build().inputs, strict=True))
        index, n = inputs["index"], inputs["table"].shape[0]
        assert index.dtype is torch.int64
        assert not index.requires_grad
        if index.numel():
            assert 0 <= int(index.min()) <= int(index.max()) < n
            duplicates += len(index.unique()) < index.numel()
    assert duplicates > 10
    place = list(parameters).index("table")
    # One case in sixty has an empty table; and what a seed draws depends on the constants of the modules loaded.
    without = smallest(gst.cases(target), lambda case: case.inputs[place].size[0] == 0, examples=3000)
    assert without.inputs[list(parameters).index("index")].numel == 0


def test_an_index_below_a_number_reaches_both_ends_and_shrinks_to_zeros():
    seen = {v for r in drawn(gst.indices("k", below=4), 200) for v in elements(r)}
    assert seen == {0, 1, 2, 3}
    assert elements(smallest(gst.indices("2", below=4))) == (0, 0)


@pytest.mark.parametrize(
    ("below", "message"),
    [
        (0, "below=0 leaves no index; use 1 or more"),
        ("n+1", "below='n+1' is no name of a dimension; write one name, such as 'n'"),
        (1.5, "below=1.5 is neither the name of a dimension nor a number"),
    ],
)
def test_an_index_below_nothing_is_refused(below, message):
    with pytest.raises(StrategyError) as caught:
        gst.indices("k", below=below)
    assert str(caught.value) == message


# --- grad_outputs --------------------------------------------------------------------------------


def test_grad_outputs_come_as_autograd_hands_them_over():
    found = Counter()
    for recipes in drawn(gst.grad_outputs([((2, 3), torch.float64), ((4,), "float32")]), 300):
        assert any(recipe is not None for recipe in recipes)
        first = recipes[0]
        if first is None:
            found["undefined"] += 1
            continue
        g = first.build()
        assert g.shape == (2, 3)
        assert not g.requires_grad
        found["expanded scalar"] += g.stride() == (0, 0)
        found["transposed"] += g.stride() == (1, 2)
        found["offset"] += g.storage_offset() > 0
        found["zeros"] += bool((g == 0).all())
        found["one hot"] += int((g != 0).sum() == 1)
        found["generic"] += g.is_contiguous() and len(g.unique()) > 3
    kinds = ("undefined", "expanded scalar", "transposed", "offset", "zeros", "one hot", "generic")
    assert all(found[kind] > 5 for kind in kinds), found


def test_grad_outputs_shrink_to_defined_contiguous_ones():
    first, second = smallest(gst.grad_outputs([((2,), "float64"), ((), "float64")]))
    assert (first.view.stride, first.view.offset) == ((1,), 0)
    assert second is not None
    undefined = smallest(gst.grad_outputs([((), "float64"), ((), "float64")]), lambda g: None in g)
    assert sum(g is None for g in undefined) == 1


def test_an_output_without_a_gradient_is_refused():
    with pytest.raises(StrategyError, match=r"an output of size \(2,\) and dtype int64 has no gradient; leave it out"):
        gst.grad_outputs([((2,), torch.int64)])
    with pytest.raises(StrategyError, match=r"outputs=\(\) leaves no gradient"):
        gst.grad_outputs([])


# --- cases ---------------------------------------------------------------------------------------

TWO = Declared({"x": gst.tensors("*b n"), "y": gst.tensors("*b n")}, fn=lambda x, y: (x + y, x * y))


def test_the_same_draws_make_the_same_cases():
    assert drawn(gst.cases(TWO), 60) == drawn(gst.cases(TWO), 60)


def test_a_case_shrinks_to_what_a_person_would_write():
    case = smallest(gst.cases(TWO))
    assert case == Case(
        "declared",
        case.storages,
        tuple(spec for spec in case.inputs if spec.size == (1,) and spec.requires_grad and spec.leaf),
        case.arguments,
    )
    assert [s.elements for s in case.storages] == [(1.0078125,), (1.0234375,)]
    assert [s.dtype for s in case.storages] == ["float64", "float64"]


def test_what_matters_stays_and_everything_else_shrinks_away():
    masked = smallest(gst.cases(TWO), lambda c: len(c.inputs) == 2 and not c.inputs[0].requires_grad)
    assert [spec.size for spec in masked.inputs] == [(1,), (1,)]
    assert masked.inputs[1].requires_grad
    assert masked.grad_outputs is None
    undefined = smallest(gst.cases(TWO), lambda c: c.grad_outputs is not None and c.grad_outputs[1] is None)
    assert undefined.grad_outputs[0] is not None
    assert all(spec.requires_grad for spec in undefined.inputs)
    zero = smallest(gst.cases(TWO), lambda c: 0.0 in c.storages[0].elements)
    assert zero.storages[0].elements == (0.0,)


def test_rare_things_come_one_at_a_time_and_each_comes():
    seen = Counter()
    for case in drawn(gst.cases(TWO), 700):
        asks = [spec.requires_grad for spec in case.inputs]
        assert any(asks)
        twists = {
            "masked": not all(asks),
            "same": len(case.inputs) == 1,
            "views": len(case.inputs) == 2 and case.inputs[0].storage == case.inputs[1].storage,
            "non-leaf": not all(spec.leaf for spec in case.inputs),
            "undefined": any(case.plan.undefined),
        }
        assert sum(twists.values()) <= 1
        seen.update(name for name, is_so in twists.items() if is_so)
        seen["explicit"] += case.grad_outputs is not None
        seen["left to the checker"] += case.grad_outputs is None
    assert all(seen[name] for name in ("masked", "same", "views", "non-leaf", "undefined")), seen
    assert seen["left to the checker"] > seen["explicit"] > 100


def test_one_tensor_for_two_arguments_is_one_input():
    case = smallest(gst.cases(TWO), lambda c: len(c.inputs) == 1)
    assert [argument.input for argument in case.arguments] == [0, 0]
    assert len(case.storages) == 1
    a, b = case.build().arguments(case.build().inputs)[0]
    assert a is b


def test_tensors_of_different_constraints_are_never_one():
    target = Declared({"x": gst.tensors("n"), "y": gst.tensors("n", constraint="positive")})
    assert all(len(case.inputs) == 2 for case in drawn(gst.cases(target), 200))


def test_what_is_declared_of_gradients_is_kept():
    target = Declared({"x": gst.tensors("n", requires_grad=False), "y": gst.tensors("n", requires_grad=True)})
    for case in drawn(gst.cases(target), 100):
        assert [spec.requires_grad for spec in case.inputs] == [False, True]


def test_arguments_keep_their_order_and_a_star_passes_by_keyword():
    target = Declared({"x": gst.tensors(""), "*mode": st.sampled_from(["sum", "mean"]), "shape": st.lists(st.just(2))})
    for case in drawn(gst.cases(target), 30):
        kinds = [(a.name, a.kind) for a in case.arguments]
        assert kinds == [("x", "positional"), ("mode", "keyword"), ("shape", "positional")]
        assert case.arguments[1].value in ("sum", "mean")
        assert isinstance(case.arguments[2].value, tuple)


def test_an_optional_tensor_is_a_tensor_or_none_and_shares_the_names_of_the_case():
    target = Declared({"x": gst.tensors("n"), "bias": gst.tensors("n") | st.none()})
    seen = set()
    for case in drawn(gst.cases(target), 200):
        seen.add(case.arguments[1].input is None)
        if len(case.inputs) == 2:
            assert case.inputs[0].size == case.inputs[1].size
    assert seen == {True, False}


def test_the_probe_tells_the_outputs_and_a_forward_that_refuses_leaves_them_to_the_checker():
    def refuse(*_):
        raise ValueError("no")

    cases = drawn(gst.cases(Declared({"x": gst.tensors("n")}, fn=refuse)), 100)
    assert all(case.grad_outputs is None for case in cases)
    integers = Declared({"x": gst.tensors("n")}, fn=lambda x: x.argsort())
    assert all(case.grad_outputs is None for case in drawn(gst.cases(integers), 100))
    told = gst.cases(TWO, probe=lambda case: [((7,), torch.float32)])
    explicit = [case.grad_outputs for case in drawn(told, 100) if case.grad_outputs is not None]
    assert explicit
    assert {g.size for (g,) in explicit} == {(7,)}


def test_drawing_leaves_torchs_generator_as_it_was():
    target = Declared({"x": gst.tensors("n")}, fn=torch.nn.functional.dropout)
    case = smallest(gst.cases(target), lambda c: c.inputs[0].numel > 1)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    case_module.outputs_of(target, case)
    assert torch.equal(before, torch.random.get_rng_state())


def test_most_cases_are_accepted_by_the_functions_they_are_for():
    functions = {
        torch.matmul: {"a": gst.tensors("*b n k"), "b": gst.tensors("k m")},
        torch.add: {"a": gst.tensors("*b"), "b": gst.tensors("#*b")},
        torch.nn.functional.embedding: {"index": gst.indices("*k"), "table": gst.tensors("n d")},
        torch.linalg.det: {"a": gst.tensors("n n", dtype="float64")},
        torch.ldexp: {"x": gst.tensors("*s"), "e": gst.tensors("*s", dtype="int64", bounds=(-4, 4))},
    }
    for fn, parameters in functions.items():
        accepted = 0
        cases = drawn(gst.cases(Declared(parameters, fn=fn)), 200)
        for case in cases:
            call = case.build()
            args, kwargs = call.arguments(call.inputs)
            try:
                fn(*args, **kwargs)
            except (RuntimeError, IndexError):
                continue
            accepted += 1
        assert accepted > 0.9 * len(cases), fn


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "declared declares no arguments; a derivative needs at least one tensor"),
        (
            {"xs": st.lists(gst.tensors("n"), min_size=1)},
            "argument 'xs' is a list that holds tensors, which a case cannot say yet; "
            "declare a function that takes them one by one",
        ),
        (
            {"x": st.builds(torch.ones, st.just(2))},
            "argument 'x' draws live tensors; declare it with gst.tensors(...)",
        ),
        (
            {"x": st.builds(dict)},
            "argument 'x' draws a dict, which a case cannot hold; draw None, numbers, text, tuples of them, "
            "or a dtype, layout or memory format of torch",
        ),
        (
            {"x": gst.tensors("n", constraint="positive").map(lambda r: replace(r))},
            "argument 'x': a constraint must be declared by gst.tensors itself, not under map or lists",
        ),
        (
            {"x": gst.tensors("n", constraint="positive") | gst.tensors("n", constraint="unit_interval")},
            "has branches of different constraints; declare one of them",
        ),
    ],
)
def test_arguments_that_a_case_cannot_hold_are_refused(parameters, message):
    with pytest.raises(StrategyError) as caught:
        drawn(gst.cases(Declared(parameters)), 30)
    assert message in str(caught.value)


def test_recipes_are_drawn_outside_of_cases_too():
    for recipe in drawn(gst.tensors("n n"), 30):
        x = recipe.build()
        assert x.shape[0] == x.shape[1]
        assert x.requires_grad
        assert hash(recipe) == hash(recipe)

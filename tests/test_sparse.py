"""Sparse inputs: judged as functions of their values, in every layout that torch differentiates."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

import gradfuzz
from gradfuzz.checker import GradcheckError, Status, check

VALUES = torch.tensor([0.5, -1.25, 2.0, 0.75], dtype=torch.float64)
LAYOUTS = ("coo", "uncoalesced", "csr", "csc", "bsr")


def sparse(layout, *, dtype=torch.float64):
    """A 2x4 tensor with four values, in one of the layouts; two of them on one element where uncoalesced."""
    values = VALUES.to(dtype)
    if layout == "uncoalesced":
        made = torch.sparse_coo_tensor([[0, 1, 1, 0], [2, 0, 3, 2]], values, (2, 4))
    elif layout == "bsr":
        made = torch.sparse_bsr_tensor([0, 1], [1], values.reshape(1, 2, 2), (2, 4))
    else:
        full = torch.zeros(2, 4, dtype=dtype)
        full[[0, 0, 1, 1], [1, 3, 0, 3]] = values
        made = {"coo": full.to_sparse, "csr": full.to_sparse_csr, "csc": full.to_sparse_csc}[layout]()
    return made.requires_grad_()


def dense(rows, columns):
    return torch.linspace(-1.3, 1.7, rows * columns, dtype=torch.float64).reshape(rows, columns).requires_grad_()


class Twice(Function):
    """Densified and doubled; the gradient is handed back by `give`."""

    @staticmethod
    def forward(ctx, x, give):
        ctx.give = give
        return 2 * x.detach().to_dense()

    @staticmethod
    def backward(ctx, g):
        return ctx.give(g), None


class Turned(Function):
    """A sparse tensor times 3j, whose backward forgets the conjugate."""

    @staticmethod
    def forward(ctx, x):
        return 3j * x.detach()

    @staticmethod
    def backward(ctx, g):
        return 3j * g


class Spread(Function):
    """The square of a sparse tensor as a dense one; its backward's factor is given."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.detach().to_dense() ** 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return ctx.factor * g * x.to_dense(), None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.to_dense() ** 2,
        lambda x: x.sum() ** 3,
        lambda x: 3 * x,
        lambda x: x.t().to_dense() ** 2,
        lambda x: (x + x).to_dense() ** 2,
        lambda x: (x @ torch.ones(4, 2, dtype=x.dtype)) ** 2,
    ],
    ids=["dense", "sum", "scaled", "transposed", "added", "product"],
)
def test_what_torch_differentiates_is_judged_and_left_in_peace(layout, function):
    verdict = check(function, sparse(layout))
    assert [str(f) for f in verdict.findings] == []
    assert verdict.status is Status.PASS, verdict.reason
    assert verdict.elements > 0


@pytest.mark.parametrize("layout", ["coo", "uncoalesced"])
@pytest.mark.parametrize("function", [torch.sparse.mm, torch.matmul], ids=["mm", "matmul"])
def test_both_arguments_of_a_sparse_product_are_judged_at_both_orders(layout, function):
    x, w = sparse(layout), dense(4, 3)
    assert check(lambda a, b: function(a, b) ** 2, (x, w)).status is Status.PASS
    wrong = check(lambda a, b: function(a, b * 1.001 - 0.001 * b.detach()) ** 2, (x, w))
    assert [f.where for f in wrong.findings] == ["input 1"]
    assert wrong.findings[0].symptom.value == "wrong-gradient"


@pytest.mark.parametrize(
    "function", [torch.sparse.sum, lambda x: x * x, lambda x: x + 2 * x], ids=["sum", "mul", "add"]
)
def test_sparse_functions_of_an_uncoalesced_tensor_pass(function):
    assert check(function, sparse("uncoalesced")).status is Status.PASS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wrong_factor_is_found_through_every_layout(layout):
    assert check(lambda x: Spread.apply(x, 2.0), sparse(layout)).status is Status.PASS
    verdict = check(lambda x: Spread.apply(x, 2.001), sparse(layout))
    assert {(f.symptom.value, f.order, f.where) for f in verdict.findings} >= {("wrong-gradient", 1, "input 0")}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_factor_that_is_wrong_for_one_value_is_found_at_that_value(layout):
    def function(x):
        weights = torch.ones(2, 4, dtype=x.dtype)
        weights[1, 3] = 1.01
        y = Spread.apply(x, 2.0)
        return y + (weights - 1) * (y - y.detach())

    (finding,) = check(function, sparse(layout)).findings
    at = {"coo": "(3,)", "uncoalesced": "(2,)", "csr": "(3,)", "csc": "(3,)", "bsr": "(0, 1, 1)"}[layout]
    assert (finding.symptom.value, finding.element) == ("wrong-gradient", at)


def test_a_second_derivative_that_is_wrong_is_found():
    class Saved(Function):
        @staticmethod
        def forward(ctx, x):
            square = x.detach().to_dense() ** 2
            ctx.save_for_backward(square)
            return x.detach().to_dense() * square

        @staticmethod
        def backward(ctx, g):
            return 3 * g * ctx.saved_tensors[0]

    kinds = [(f.symptom.value, f.order) for f in check(Saved.apply, sparse("coo")).findings]
    assert ("wrong-second-derivative", 2) in kinds


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128])
def test_every_dtype_is_judged(dtype):
    assert check(lambda x: x.to_dense() ** 2, sparse("coo", dtype=dtype)).status is Status.PASS
    wrong = check(lambda x: Spread.apply(x, 2.2), sparse("coo", dtype=dtype))
    assert "wrong-gradient" in {f.symptom.value for f in wrong.findings}


@pytest.mark.parametrize(
    ("give", "symptom"),
    [
        (lambda g: 2 * g, None),
        (lambda g: (2 * g).to_sparse(), None),
        (lambda g: 2 * g.sum(0), "metadata"),
        (lambda g: (2 * g).detach(), "detached"),
        (lambda g: 2 * g.to_sparse().t(), "metadata"),
        (lambda g: g.mul_(2), "mutation"),
        (lambda g: None, "wrong-gradient"),
    ],
    ids=["dense", "sparse", "too small", "detached", "turned", "in place", "none"],
)
def test_the_gradient_of_a_sparse_input_may_be_dense_or_sparse_and_must_fit(give, symptom):
    verdict = check(lambda x: Twice.apply(x, give), sparse("coo"))
    found = {f.symptom.value for f in verdict.findings}
    assert found == set() if symptom is None else symptom in found, found


def test_an_element_that_the_pattern_lacks_is_masked_which_is_no_defect():
    def ones_everywhere(g):
        return 2 * g + torch.where(torch.eye(2, 4, dtype=torch.bool), 7.0, 0.0) * g

    # The diagonal of the pattern is empty but for (1, 1) of none of the values.
    assert check(lambda x: Twice.apply(x, ones_everywhere), sparse("coo")).status is Status.PASS


def test_sparse_outputs_of_dense_inputs_are_judged():
    x = dense(2, 3)
    assert check(lambda t: (t * t).to_sparse(), x).status is Status.PASS
    verdict = check(lambda t: (t * t * 1.01 - 0.01 * (t * t).detach()).to_sparse(), x)
    assert "wrong-gradient" in {f.symptom.value for f in verdict.findings}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_complex_sparse_outputs_are_judged_in_every_layout(layout):
    x = sparse(layout, dtype=torch.complex128)
    assert [str(f) for f in check(lambda t: 3j * t, x).findings] == []
    wrong = check(Turned.apply, x)
    assert "wrong-gradient" in {f.symptom.value for f in wrong.findings}


def test_sparse_grad_outputs_may_be_given_for_sparse_outputs():
    x = sparse("coo")
    verdict = check(lambda t: t * t, x, torch.ones(2, 4, dtype=torch.float64).to_sparse())
    assert verdict.status is Status.PASS, verdict.reason


def test_a_sparse_tensor_that_is_passed_twice_stays_one():
    seen = []

    def function(a, b):
        seen.append(a is b)
        return a.to_dense() * b.to_dense()

    x = sparse("coo")
    assert check(function, (x, x)).status is Status.PASS
    assert all(seen)


def test_a_constant_sparse_argument_is_handed_over_as_it_is():
    x = sparse("uncoalesced").detach()
    seen = set()

    def function(w, s):
        seen.add((s.layout, s.is_coalesced()))
        return torch.sparse.mm(s, w) ** 2

    assert check(function, (dense(4, 2), x)).status is Status.PASS
    assert seen == {(torch.sparse_coo, False)}


def test_a_function_without_a_sparse_kernel_is_rejected_and_one_without_a_second_derivative_refuses_it():
    assert check(torch.special.i0, sparse("csr")).status in {Status.REJECTED, Status.FAIL}
    kinds = [(f.symptom.value, f.order) for f in check(lambda x: torch.sparse.softmax(x, 1), sparse("coo")).findings]
    assert kinds == [("not-differentiable", 2)]
    assert check(lambda x: torch.sparse.softmax(x, 1), sparse("coo"), order=1).status is Status.PASS


def test_a_sparse_tensor_without_values_is_judged():
    x = torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.int64), VALUES[:0], (2, 4)).requires_grad_()
    assert not check(lambda t: t.to_dense() ** 2, x).findings


def test_values_that_are_rows_are_judged():
    x = torch.sparse_coo_tensor([[2, 0, 2]], dense(3, 2).detach(), (3, 2)).requires_grad_()
    assert check(lambda t: t.to_dense() ** 2, x).status is Status.PASS
    assert check(lambda t: Spread.apply(t, 2.1), x).findings


def test_a_layout_that_cannot_be_judged_is_refused_with_the_remedy():
    x = dense(2, 3).detach().float().to_mkldnn().requires_grad_()
    with pytest.raises(ValueError, match=r"^input 0 has layout torch._mkldnn; .* pass it dense$"):
        check(lambda t: t.to_dense(), x)


def test_a_tensor_too_large_for_a_dense_look_up_is_refused_by_its_shape():
    x = torch.sparse_coo_tensor([[0], [0]], VALUES[:1], (1 << 20, 1 << 20)).requires_grad_()
    with pytest.raises(ValueError, match=r"shape \(1048576, 1048576\).* give a smaller one"):
        check(torch.sparse.sum, x)


@pytest.mark.parametrize("masked", [True, False])
def test_the_drop_ins_take_sparse_inputs(masked):
    x, w = sparse("uncoalesced"), dense(4, 3)
    assert gradfuzz.gradcheck(torch.sparse.mm, (x, w), masked=masked)
    assert gradfuzz.gradgradcheck(torch.sparse.mm, (x, w), masked=masked)
    with pytest.raises(GradcheckError, match="wrong-gradient"):
        gradfuzz.gradcheck(lambda t: Spread.apply(t, 2.1), x, masked=masked)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_third_derivative_of_a_sparse_input_is_judged(layout):
    assert check(lambda x: x.sum() ** 4, sparse(layout), order=3).status is Status.PASS


def test_a_third_derivative_that_torch_refuses_of_a_sparse_input_is_said_to_be_refused():
    found = check(lambda x: x.to_dense() ** 4, sparse("coo"), order=3).findings
    assert [(f.symptom.value, f.order) for f in found] == [("not-differentiable", 3)]

"""The oracles: functions wrong on purpose are found for what they are, and correct ones are left in peace."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F  # its usual name
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gradfuzz.checker import Status, check


def x_of(*values, dtype=torch.float64):
    return torch.tensor(values or (0.5, -1.25, 2.0), dtype=dtype, requires_grad=True)


def matrix(rows=2, columns=3, dtype=torch.float64):
    values = torch.linspace(-1.3, 1.7, rows * columns, dtype=torch.float64)
    return values.reshape(rows, columns).to(dtype).requires_grad_()


def square_matrix(*values):
    return torch.tensor(values, dtype=torch.float64).reshape(2, 2).requires_grad_()


def operator(forward, backward):
    """A Function of two plain functions: forward(x...) and backward(grad, x...)."""

    class Operator(Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, *grads):
            return backward(*grads, *ctx.saved_tensors)

    return Operator.apply


@dataclass(frozen=True)
class Faulty:
    """A function that is wrong, its twin that is not, and what must be said of the first."""

    fault: object
    twin: object
    inputs: tuple
    symptom: str
    order: int | None
    mode: str
    where: str


def off_by_a_two_thousandth():
    def square(factor):
        return operator(lambda x: x * x, lambda g, x: factor * g * x)

    return Faulty(square(2.001), square(2.0), (x_of(),), "wrong-gradient", 1, "rev", "input 0")


def wrong_at_one_element_of_many():
    def square(slip):
        def backward(g, x):
            mask = torch.arange(x.numel(), dtype=x.dtype) == 77
            return 2 * g * x * torch.where(mask, slip, 1.0)

        return operator(lambda x: x * x, backward)

    x = torch.linspace(0.5, 2.0, 200, dtype=torch.float64).requires_grad_()
    return Faulty(square(1.01), square(1.0), (x,), "wrong-gradient", 1, "rev", "input 0")


def wrong_for_the_second_input():
    def product(sign):
        return operator(lambda a, b: a * b, lambda g, a, b: (g * b, sign * g * a))

    return Faulty(product(-1), product(1), (x_of(), x_of(1.0, 2.0, 3.0)), "wrong-gradient", 1, "rev", "input 1")


def wrong_only_where_the_input_is_negative():
    def absolute(left):
        return operator(torch.abs, lambda g, x: g * torch.where(x < 0, left, 1.0))

    return Faulty(absolute(1.0), absolute(-1.0), (x_of(),), "wrong-gradient", 1, "rev", "input 0")


def wrong_at_exactly_zero():
    def identity(at_zero):
        return operator(lambda x: x * 1, lambda g, x: g * torch.where(x == 0, at_zero, 1.0))

    return Faulty(identity(0.0), identity(1.0), (x_of(0.0),), "wrong-gradient", 1, "rev", "input 0")


def outside_both_slopes_of_a_kink():
    def relu(at_zero):
        return operator(torch.relu, lambda g, x: g * torch.where(x == 0, at_zero, (x > 0).to(x.dtype)))

    return Faulty(relu(3.0), relu(0.5), (x_of(0.0),), "wrong-gradient", 1, "rev", "input 0")


def conjugate_forgotten():
    def square(conj):
        return operator(lambda z: z * z, lambda g, z: 2 * g * (z.conj() if conj else z))

    z = x_of(0.5 + 1j, -1 + 0.25j, dtype=torch.complex128)
    return Faulty(square(False), square(True), (z,), "wrong-gradient", 1, "rev", "input 0")


def sum_over_the_broadcast_dimension_is_a_mean():
    def scale(reduce):
        return operator(lambda x, w: x * w, lambda g, x, w: (g * w, reduce(g * x, 0)))

    inputs = (matrix(4, 3), x_of())
    return Faulty(scale(torch.mean), scale(torch.sum), inputs, "wrong-gradient", 1, "rev", "input 1")


def value_saved_in_forward():
    class Faulted(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x * x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return 3 * g * ctx.saved_tensors[0]

    twin = operator(lambda x: x**3, lambda g, x: 3 * g * x * x)
    return Faulty(Faulted.apply, twin, (x_of(),), "wrong-second-derivative", 2, "rev-rev", "input 0")


def double_backward_lacks_a_term():
    def cube(factor):
        inner = operator(lambda g, x: 3 * g * x * x, lambda gg, g, x: (3 * gg * x * x, factor * gg * g * x))
        return operator(lambda x: x**3, inner)

    return Faulty(cube(5.0), cube(6.0), (x_of(),), "wrong-second-derivative", 2, "rev-rev", "input 0")


def backward_without_graph():
    def sine(slope):
        return operator(torch.sin, lambda g, x: g * slope(x))

    def through_data(g, x):
        return (g * torch.cos(x)).detach()

    return Faulty(operator(torch.sin, through_data), sine(torch.cos), (x_of(),), "detached", 2, "rev-rev", "input 0")


def no_graph_at_all():
    return Faulty(lambda x: x.detach() ** 2, lambda x: x**2, (x_of(),), "detached", 1, "rev", "input 0")


class Linear(Function):
    """A Function with a forward rule of its own, off by a factor."""

    factor = 1.0

    @staticmethod
    def forward(x):
        return 3 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return 3 * g

    @classmethod
    def jvp(cls, ctx, t):
        return 3 * cls.factor * t


class LinearOff(Linear):
    factor = 1.01


def tangent_off():
    return Faulty(LinearOff.apply, Linear.apply, (x_of(),), "forward-mode", 1, "fwd", "output 0")


def undefined_is_an_error(materialize):
    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return 2 * a + 3 * b

    return Both.apply


def undefined_raises():
    return Faulty(
        undefined_is_an_error(False), undefined_is_an_error(True), (x_of(),), "undefined-gradient", 1, "rev",
        "grad_output 0",
    )  # fmt: skip


def undefined_is_ones():
    def both(instead):
        class Both(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(False)
                ctx.shape = x.shape
                return x * 2, x * 3

            @staticmethod
            def backward(ctx, a, b):
                a = instead(ctx.shape, dtype=torch.float64) if a is None else a
                b = torch.zeros(ctx.shape, dtype=torch.float64) if b is None else b
                return 2 * a + 3 * b

        return Both.apply

    return Faulty(both(torch.ones), both(torch.zeros), (x_of(),), "undefined-gradient", 1, "rev", "grad_output 0")


def nan_from_an_untaken_branch():
    def guarded(inner):
        return lambda x: torch.where(x > 0, inner(x), torch.zeros_like(x))

    def late(x):
        return x * torch.log(x)

    def early(x):
        safe = torch.where(x > 0, x, torch.ones_like(x))
        return x * torch.log(safe)

    return Faulty(guarded(late), guarded(early), (x_of(-1.0, 2.0),), "nonfinite", 1, "rev", "input 0")


def counts_its_calls():
    calls = []

    def backward(g, x):
        calls.append(1)
        return g * (1 + 0.01 * len(calls))

    return Faulty(
        operator(lambda x: x * 1, backward), operator(lambda x: x * 1, lambda g, x: g * 1), (x_of(),),
        "nondeterministic", 1, "rev", "input 0",
    )  # fmt: skip


def gradient_of_another_shape():
    def double(reduce):
        return operator(lambda x: 2 * x, lambda g, x: 2 * (g.sum() if reduce else g))

    return Faulty(
        lambda x: double(True)(x.expand(2, 3).reshape(6)), lambda x: double(False)(x.expand(2, 3).reshape(6)),
        (x_of(),), "metadata", 1, "rev", "backward",
    )  # fmt: skip


def backward_writes_to_its_grad_output():
    def double(times):
        return operator(lambda x: 2 * x, lambda g, x: times(g, 2))

    return Faulty(double(torch.Tensor.mul_), double(torch.mul), (x_of(),), "mutation", 1, "rev", "grad_output 0")


def forward_writes_to_its_input():
    def twice(x, copy):
        y = x.detach().clone() if copy else x.detach()
        y.mul_(2)
        return x * 2

    return Faulty(
        lambda x: twice(x, copy=False), lambda x: twice(x, copy=True), (x_of(),), "mutation", 0, "", "input 0"
    )


def reads_its_grad_output_in_memory_order():
    def weights(x):
        return torch.arange(x.numel(), dtype=x.dtype).reshape(x.shape)

    def backward(contiguous):
        def raw(g, x):
            g = g.contiguous() if contiguous else g
            return torch.as_strided(g, x.shape, torch.empty(x.shape).stride()) * weights(x)

        return raw

    faulty, twin = (operator(lambda x: x * weights(x), backward(contiguous)) for contiguous in (False, True))
    return Faulty(faulty, twin, (matrix(),), "layout-dependent", 1, "rev", "grad_output")


def reads_its_input_in_memory_order():
    def cube(contiguous):
        def forward(x):
            y = x.contiguous() if contiguous else x
            return x * torch.as_strided(y, x.shape, torch.empty(x.shape).stride()).square()

        return operator(forward, lambda g, x: 3 * g * x * x)

    return Faulty(cube(False), cube(True), (matrix(),), "layout-dependent", 0, "", "output 0")


def backward_in_half_precision():
    def cube(dtype):
        return operator(lambda x: x**3, lambda g, x: 3 * g * (x.to(dtype) ** 2).to(x.dtype))

    return Faulty(cube(torch.float32), cube(torch.float64), (x_of(0.3, -1.1, 2.3),), "precision", 1, "rev", "input 0")


def constant_rounded_in_low_precision():
    def scaled(constant):
        def backward(g, x):
            return g * (constant if x.dtype is torch.float32 else 1.7)

        return operator(lambda x: 1.7 * x, backward)

    return Faulty(
        scaled(1.701), scaled(1.7), (x_of(0.3, -1.1, 2.3, dtype=torch.float32),), "precision", 1, "rev", "input 0"
    )


def batching_rule_forgets_the_factor():
    def double(factor):
        class Double(Function):
            @staticmethod
            def forward(x):
                return 2 * x

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, g):
                return Inner.apply(g)

        class Inner(Function):
            @staticmethod
            def forward(g):
                return 2 * g

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, gg):
                return 2 * gg

            @staticmethod
            def vmap(info, in_dims, g):
                return factor * g, in_dims[0]

        return Double.apply

    return Faulty(double(3), double(2), (x_of(),), "batched", 1, "rev", "input 0")


def another_value_without_gradients():
    def scaled(x, factor):
        return x * (1 if torch.is_grad_enabled() else factor)

    return Faulty(lambda x: scaled(x, 1.01), lambda x: scaled(x, 1), (x_of(),), "value-changes", 0, "", "output 0")


def same_tensor_twice_is_taken_for_a_square():
    def product(shortcut):
        def backward(g, a, b):
            if shortcut and a.data_ptr() == b.data_ptr():
                return g * b, None
            return g * b, g * a

        return operator(lambda a, b: a * b, backward)

    return Faulty(product(True), product(False), (x_of(), x_of(1.0, 2.0, 3.0)), "aliasing", 1, "rev", "input 0")


def gradient_needs_the_other_one():
    def product(halve):
        class Product(Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a * b

            @staticmethod
            def backward(ctx, g):
                a, b = ctx.saved_tensors
                factor = 0.5 if halve and not all(ctx.needs_input_grad) else 1.0
                return factor * g * b, factor * g * a

        return Product.apply

    return Faulty(
        product(True), product(False), (x_of(), x_of(1.0, 2.0, 3.0)), "requires-grad-mask", 1, "rev", "input 0"
    )


def leaves_the_default_dtype_changed():
    def doubled(x, dtype):
        torch.set_default_dtype(dtype)
        return 2 * x

    return Faulty(
        lambda x: doubled(x, torch.float64), lambda x: doubled(x, torch.float32), (x_of(),), "global-state", None, "",
        "default dtype",
    )  # fmt: skip


def reseeds_the_generator():
    def doubled(x, seed):
        if seed:
            torch.manual_seed(3)
        return 2 * x

    return Faulty(lambda x: doubled(x, True), lambda x: doubled(x, False), (x_of(),), "global-state", None, "", "seed")


def refuses_a_second_derivative():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * torch.cos(ctx.saved_tensors[0])

    twin = operator(torch.sin, lambda g, x: g * torch.cos(x))
    return Faulty(Once.apply, twin, (x_of(),), "not-differentiable", 2, "rev-rev", "double backward")


def backward_raises():
    def sine(slope):
        return operator(torch.sin, lambda g, x: g * slope(x))

    def broken(x):
        return x[7]

    return Faulty(sine(broken), sine(torch.cos), (x_of(),), "backward-error", 1, "rev", "backward")


def double_backward_raises():
    class Broken(Function):
        @staticmethod
        def forward(ctx, g, x):
            return g * torch.cos(x)

        @staticmethod
        def backward(ctx, gg):
            raise ValueError("no such thing")

    twin = operator(torch.sin, lambda g, x: g * torch.cos(x))
    return Faulty(operator(torch.sin, Broken.apply), twin, (x_of(),), "backward-error", 2, "rev-rev", "double backward")


FAULTS = [
    off_by_a_two_thousandth, wrong_at_one_element_of_many, wrong_for_the_second_input,
    wrong_only_where_the_input_is_negative, wrong_at_exactly_zero, outside_both_slopes_of_a_kink, conjugate_forgotten,
    sum_over_the_broadcast_dimension_is_a_mean, value_saved_in_forward, double_backward_lacks_a_term,
    backward_without_graph, no_graph_at_all, tangent_off, undefined_raises, undefined_is_ones,
    nan_from_an_untaken_branch, counts_its_calls, gradient_of_another_shape, backward_writes_to_its_grad_output,
    forward_writes_to_its_input, reads_its_grad_output_in_memory_order, reads_its_input_in_memory_order,
    backward_in_half_precision, constant_rounded_in_low_precision, batching_rule_forgets_the_factor,
    another_value_without_gradients, same_tensor_twice_is_taken_for_a_square, gradient_needs_the_other_one,
    leaves_the_default_dtype_changed, reseeds_the_generator, refuses_a_second_derivative, backward_raises,
    double_backward_raises,
]  # fmt: skip
# What is not seen for what it is yet, each with the reason; a mended one must leave this list.
faults = pytest.mark.parametrize("make", FAULTS, ids=lambda f: f.__name__)


@faults
def test_a_fault_is_found_for_what_it_is(make):
    faulty = make()
    verdict = check(faulty.fault, faulty.inputs)
    assert verdict.status is Status.FAIL, verdict
    kinds = [(f.symptom.value, f.order, f.mode, f.where) for f in verdict.findings]
    assert (faulty.symptom, faulty.order, faulty.mode, faulty.where) in kinds


@faults
def test_its_correct_twin_is_left_in_peace(make):
    faulty = make()
    verdict = check(faulty.twin, faulty.inputs)
    assert [str(f) for f in verdict.findings] == []
    assert verdict.status is Status.PASS, verdict.reason


@faults
def test_asking_for_its_symptom_alone_finds_it_too(make):
    faulty = make()
    verdict = check(faulty.fault, faulty.inputs, oracles=[faulty.symptom])
    assert {f.symptom.value for f in verdict.findings} == {faulty.symptom}


@faults
def test_the_same_seed_gives_the_same_verdict(make):
    if make is counts_its_calls:
        pytest.skip("what it gives depends on how often it was called before")
    faulty = make()
    first, second = (check(faulty.fault, faulty.inputs, seed=5) for _ in range(2))
    assert str(first) == str(second)


# Correct functions ------------------------------------------------------------------------------------------------


class Square(Function):
    """A correct Function with everything: undefined gradients, a graph in backward, no state."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return None if g is None else 2 * g * ctx.saved_tensors[0]


class WithAuxiliary(Function):
    """The second output is declared not to be differentiable."""

    @staticmethod
    def forward(ctx, x):
        count = (x > 0).to(x.dtype)
        ctx.mark_non_differentiable(count)
        ctx.save_for_backward(x)
        return x * x, count

    @staticmethod
    def backward(ctx, g, _):
        return 2 * g * ctx.saved_tensors[0]


def changes_a_copy_in_place(x):
    y = x.clone()
    y[0] = y[0] * 2
    return y.mul_(x)


def with_keyword(x, *, slope):
    return F.leaky_relu(x, slope)


def with_dict(x):
    return {"sum": x.sum(), "parts": (x.exp(), [x**2])}


def view_of(x):
    return x.detach().reshape(3, -1).repeat(1, 2)[:, ::2].requires_grad_()


def two_views():
    base = torch.tensor([0.5, -1.25, 2.0, 0.75], dtype=torch.float64)
    return base[:3].requires_grad_(), base[1:].requires_grad_()


def not_a_leaf():
    return x_of().view(3) * 1


INDEX = torch.tensor([0, 2, 2])
Z = x_of(0.5 + 1j, -1 + 0.25j, dtype=torch.complex128)
HALVES = (torch.float32, torch.bfloat16, torch.float16)

CORRECT = {
    "smooth": (lambda x: torch.tanh(x).sin(), (x_of(),)),
    "abs at 0": (torch.abs, (x_of(0.0, 1.0, -1.0),)),
    "relu at 0": (torch.relu, (x_of(0.0, -0.0, 2.0),)),
    "clamp at its bounds": (lambda x: x.clamp(-1, 1), (x_of(-1.0, 0.5, 1.0),)),
    "maximum of two equal entries": (torch.amax, (x_of(1.0, 1.0, 0.0),)),
    "maximum of equal tensors": (torch.maximum, (x_of(1.0, 2.0), x_of(1.0, 2.0))),
    "median of equal entries": (torch.median, (x_of(0.0, 0.0, 0.0),)),
    "sort of four equal entries": (lambda x: torch.sort(x)[0], (x_of(0.0, 0.0, 0.0, 0.0),)),
    "second smallest of four equal entries": (lambda x: torch.kthvalue(x, 2)[0], (x_of(1.0, 1.0, 1.0, 1.0),)),
    "quantile of equal entries": (lambda x: torch.quantile(x, 0.4), (x_of(0.0, 0.0, 0.0, 0.0),)),
    "cumulative maximum with ties": (lambda x: x.cummax(0)[0], (x_of(0.0, 0.0, 1.0, 1.0),)),
    "infinite slope": (torch.sqrt, (x_of(0.0, 1.0),)),
    "logarithm at 0": (torch.log, (x_of(0.0, 1.0),)),
    "infinite entries": (torch.tanh, (x_of(float("inf"), -float("inf"), 0.5),)),
    "nan passes through": (lambda x: x * 2, (x_of(float("nan"), 1.0),)),
    "staircase far out": (torch.ceil, (x_of(27805.42578125, 9027.8564453125),)),
    "sawtooth far out": (torch.frac, (x_of(9344.3, -2608.2, 600.1),)),
    "oscillation far out": (torch.tan, (x_of(18992.0, 18992.0),)),
    "cancellation": (lambda x: (x + 1e8) - 1e8, (x_of(1.3e-4, -7.8e-5, 9.7e-7),)),
    "gradient that cancels": (F.tanhshrink, (x_of(-1.01e-4, -1.7e-4, -1.6e-5),)),
    "large offset": (lambda x: (x + 1e6).var(), (x_of(),)),
    "huge": (torch.logsumexp, (x_of(-11392.0, 5472.0, 19200.0), 0)),
    "tiny": (lambda x: x**3, (x_of(1e-4, -3e-5),)),
    "wide": (lambda x: x.square().sum(), (x_of(1e-8, 1e4, -3.0),)),
    "dropout": (lambda x: F.dropout(x, 0.5), (x_of(),)),
    "noise": (lambda x: x * torch.randn_like(x), (x_of(),)),
    "noise by sign": (lambda x: F.rrelu(x, training=True), (x_of(0.0, -1.0, 1.0),)),
    "in place on a copy": (changes_a_copy_in_place, (x_of(),)),
    "its input itself": (lambda x: x, (x_of(),)),
    "a view of its input": (lambda x: x[1:], (x_of(),)),
    "auxiliary output": (lambda x: (x**2, x.detach() * 3), (x_of(),)),
    "declared auxiliary output": (WithAuxiliary.apply, (x_of(),)),
    "constant output": (lambda x: (x**2, torch.ones(2)), (x_of(),)),
    "integer output": (lambda x: (x**2, x.argsort()), (x_of(),)),
    "nested outputs": (with_dict, (x_of(),)),
    "unused input": (lambda x, y: x**2, (x_of(), x_of())),
    "keyword": (lambda x: with_keyword(x, slope=0.1), (x_of(),)),
    "numbers beside": (torch.clamp, (x_of(), -1.0, 1.0)),
    "indices beside": (lambda x, i: x[i], (x_of(), INDEX)),
    "a constant tensor beside": (torch.mul, (x_of(), torch.ones(3, dtype=torch.float64))),
    "a list of tensors": (lambda xs: torch.cat(xs), ([x_of(), x_of(1.0)],)),
    "complex": (lambda z: z * z.conj() + z.exp(), (Z,)),
    "complex to real": (lambda z: z.abs(), (Z,)),
    "real to complex": (torch.fft.fft, (x_of(),)),
    "modulus at 0": (lambda z: z.abs(), (x_of(0j, 1j, dtype=torch.complex128),)),
    "scalar": (torch.sin, (torch.tensor(0.5, dtype=torch.float64, requires_grad=True),)),
    "one element": (torch.cos, (x_of(0.5),)),
    "empty": (torch.sin, (torch.zeros(0, 3, dtype=torch.float64, requires_grad=True),)),
    "no rows": (lambda x: x.sum(0), (torch.zeros(0, 3, dtype=torch.float64, requires_grad=True),)),
    "view": (torch.sin, (view_of(matrix(2, 3)),)),
    "transposed": (lambda x: x @ x.mT, (matrix().detach().T.requires_grad_(),)),
    "expanded": (torch.exp, (x_of(0.5).detach().expand(3).requires_grad_(),)),
    "conjugated": (torch.exp, (Z.detach().conj().requires_grad_(),)),
    "not a leaf": (torch.exp, (not_a_leaf(),)),
    "one tensor twice": (torch.mul, (shared := x_of(), shared)),
    "two views of one storage": (torch.mul, two_views()),
    "a Function": (Square.apply, (x_of(),)),
    "determinant": (torch.det, (square_matrix(1.0, 2.0, 3.0, 5.0),)),
    "ill conditioned": (torch.inverse, (square_matrix(1.0, 1.0, 1.0, 1.0001),)),
    **{f"{dtype} power": (lambda x: x**3 + x.exp(), (x_of(dtype=dtype),)) for dtype in HALVES},
    **{f"{dtype} product": (torch.matmul, (matrix(2, 3, dtype), matrix(3, 2, dtype))) for dtype in HALVES},
    **{f"{dtype} softmax": (lambda x: torch.softmax(x, 0), (x_of(dtype=dtype),)) for dtype in HALVES},
}  # fmt: skip


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_function_is_left_in_peace(name):
    function, inputs = CORRECT[name]
    for seed in range(2):
        verdict = check(function, inputs, seed=seed)
        assert [str(f) for f in verdict.findings] == []


CONCLUSIVE = [
    "smooth", "relu at 0", "huge", "tiny", "wide", "dropout", "in place on a copy", "its input itself",
    "auxiliary output", "constant output", "unused input", "complex", "scalar", "transposed", "one tensor twice",
    "torch.float32 power", "torch.bfloat16 product", "determinant",
]  # fmt: skip


@pytest.mark.parametrize("name", CONCLUSIVE)
def test_what_is_ordinary_is_judged_and_not_shrugged_at(name):
    function, inputs = CORRECT[name]
    verdict = check(function, inputs)
    assert verdict.status is Status.PASS, verdict.reason
    assert verdict.elements > 0

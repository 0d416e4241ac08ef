"""Results that depend on memory layout."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, matrix, operator, x_of

from gradfuzz.checker import check


def reads_its_grad_output_in_memory_order():
    def weights(x):
        return torch.arange(x.numel(), dtype=x.dtype).reshape(x.shape)

    def backward(contiguous):
        def raw(g, x):
            g = g.contiguous() if contiguous else g
            return torch.as_strided(g, x.shape, torch.empty(x.shape).stride()) * weights(x)

        return raw

    faulty, twin = (operator(lambda x: x * weights(x), backward(contiguous)) for contiguous in (False, True))
    return Pair(faulty, twin, (matrix(),), "layout-dependent", 1, "rev", "grad_output")


def reads_its_input_in_memory_order():
    def cube(contiguous):
        def forward(x):
            y = x.contiguous() if contiguous else x
            return x * torch.as_strided(y, x.shape, torch.empty(x.shape).stride()).square()

        return operator(forward, lambda g, x: 3 * g * x * x)

    return Pair(cube(False), cube(True), (matrix(),), "layout-dependent", 0, "", "output 0")


def stride_of_zero_is_taken_for_one_number():
    def square(shortcut):
        def backward(g, x):
            if shortcut and 0 in g.stride():
                g = g.flatten()[0]
            return 2 * g * x

        return operator(lambda x: x * x, backward)

    return Pair(square(True), square(False), (matrix(),), "layout-dependent", 1, "rev", "grad_output")


def expanded_input_is_taken_for_one_number():
    def square(shortcut):
        def forward(x):
            return torch.full_like(x, x.flatten()[0].item() ** 2) if shortcut and 0 in x.stride() else x * x

        return operator(forward, lambda g, x: 2 * g * x)

    return Pair(square(True), square(False), (matrix(),), "layout-dependent", 0, "", "output 0")


def ignores_the_neg_bit():
    def square(resolve):
        def raw(x):
            return x if resolve or not x.is_neg() else torch._neg_view(x)

        return operator(lambda x: x**3, lambda g, x: 3 * g * x * raw(x))

    return Pair(square(False), square(True), (x_of(),), "layout-dependent", 1, "rev", "input 0")


def ignores_the_conj_bit():
    def double(resolve):
        def backward(g, z):
            return 2 * (g if resolve or not g.is_conj() else g.conj())

        return operator(lambda z: 2 * z, backward)

    z = x_of(0.5 + 1j, -1 + 0.25j, dtype=torch.complex128)
    return Pair(double(False), double(True), (z,), "layout-dependent", 1, "rev", "grad_output")


def double_backward_reads_in_memory_order():
    def cube(contiguous):
        def read(t):
            t = t.contiguous() if contiguous else t
            return torch.as_strided(t, t.shape, torch.empty(t.shape).stride(), t.storage_offset())

        inner = operator(lambda g, x: 3 * g * x * x, lambda h, g, x: (3 * h * x * x, 6 * h * read(g.detach()) * x))
        return operator(lambda x: x**3, inner)

    return Pair(cube(False), cube(True), (matrix(),), "layout-dependent", 2, "rev-rev", "grad_output")


def reads_its_index_in_memory_order():
    def take(contiguous):
        def function(x, index):
            index = index.contiguous() if contiguous else index
            return x[torch.as_strided(index, index.shape, torch.empty(index.shape).stride())] ** 2

        return function

    inputs = (x_of(), torch.tensor([[0, 2], [1, 0]]))
    return Pair(take(False), take(True), inputs, "layout-dependent", 0, "", "output 0")


def channels_last_is_forgotten():
    def scale(plain):
        def backward(g, x):
            last = g.is_contiguous(memory_format=torch.channels_last) and not g.is_contiguous()
            return (1.5 if last and not plain else 3.0) * g * x

        return operator(lambda x: 1.5 * x * x, backward)

    x = torch.linspace(-1.3, 1.7, 24, dtype=torch.float64).reshape(1, 3, 2, 4).requires_grad_()
    return Pair(scale(False), scale(True), (x,), "layout-dependent", 1, "rev", "grad_output")


class TestLayout(Pairs):
    pairs = (
        reads_its_grad_output_in_memory_order,
        reads_its_input_in_memory_order,
        stride_of_zero_is_taken_for_one_number,
        expanded_input_is_taken_for_one_number,
        ignores_the_neg_bit,
        ignores_the_conj_bit,
        double_backward_reads_in_memory_order,
        reads_its_index_in_memory_order,
        channels_last_is_forgotten,
    )


def test_a_function_that_refuses_the_neg_bit_with_a_clear_message_is_left_in_peace():
    import numpy as np

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.from_numpy(np.sin(x.detach().numpy()))

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return torch.from_numpy(g.detach().numpy() * np.cos(x.detach().numpy()))

    assert check(Sine.apply, (x_of(),), order=1).passed


def test_which_of_equal_elements_a_maximum_chooses_may_depend_on_strides():
    def chosen(x):
        flat = x.reshape(-1)
        k = int(flat.argmax()) if x.is_contiguous() else len(flat) - 1 - int(flat.flip(0).argmax())
        return flat[k] ** 2

    assert check(chosen, (matrix(),)).passed


def test_numbers_that_are_drawn_behind_a_seed_of_the_function_s_own_may_fill_memory_in_any_order():
    def dropped(x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            return torch.dropout(x, 0.5, train=True)

    assert check(dropped, (matrix(4, 5),)).passed


def test_an_operator_that_could_draw_but_does_not_gets_no_such_leave():
    def misread(x):
        y = torch.dropout(x, 0.5, train=False)
        return y * torch.as_strided(x, x.shape, torch.empty(x.shape).stride()).detach()

    found = check(misread, (matrix(4, 5),), oracles=["layout-dependent"]).findings
    assert [f.order for f in found] == [0]


def test_a_gradient_that_is_a_sum_which_cancels_rounds_as_its_terms_do():
    # Equal inputs have no variance: each element's gradient is some 2000, and together they are nothing.
    def normalised(x):
        return 8.5 * torch.nn.functional.batch_norm(x, None, None, training=True)

    x = torch.tensor([[-7.9375], [3.609375], [-8.0625]], dtype=torch.bfloat16, requires_grad=True)
    verdicts = [check(normalised, (x,), oracles=["layout-dependent"], seed=seed) for seed in range(8)]
    assert [str(f) for v in verdicts for f in v.findings] == []

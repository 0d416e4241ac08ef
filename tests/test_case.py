"""Cases and elements: what is plain data becomes the same tensor again, and nonsense is refused on one line."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradfuzz import strategies as gst
from gradfuzz.case import Argument, Case, StorageSpec, TensorSpec, contiguous_stride
from gradfuzz.element import COMPLEX, FLOATS, INTEGERS, dtype_of, elements_of, tensor_of

ODD_FLOATS = (0.0, -0.0, 1.5, "inf", "-inf")
NANS = {
    "float64": ("nan:7ff8000000000000", "nan:fff8000000000001", "nan:7ff0000000000001"),
    "float32": ("nan:7fc00000", "nan:ffc00001", "nan:7f800001"),
    "bfloat16": ("nan:7fc0", "nan:ffc1", "nan:7f81"),
    "float16": ("nan:7e00", "nan:fe01", "nan:7c01"),
}


def bits(x: torch.Tensor) -> list[int]:
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.dtype.itemsize]
    return x.view(width).tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_signed_zeros_infinities_and_nan_payloads_survive_as_elements(dtype):
    elements = (*ODD_FLOATS, *NANS[dtype])
    tensor = tensor_of(dtype, elements)
    assert tensor.dtype is dtype_of(dtype)
    again = elements_of(tensor)
    assert [str(e) for e in again] == [str(e) for e in elements]
    assert bits(tensor_of(dtype, again)) == bits(tensor)


@pytest.mark.parametrize("dtype", FLOATS)
@given(data=st.data())
def test_every_bit_pattern_survives_as_an_element(dtype, data):
    width = 8 * dtype_of(dtype).itemsize
    pattern = data.draw(st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1))
    kind = {16: torch.int16, 32: torch.int32, 64: torch.int64}[width]
    tensor = torch.tensor([pattern], dtype=kind).view(dtype_of(dtype))
    assert bits(tensor_of(dtype, elements_of(tensor))) == [pattern]


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_elements_are_pairs_of_parts(dtype):
    part = COMPLEX[dtype]
    elements = ((0.5, -0.0), ("inf", NANS[part][1]))
    again = elements_of(tensor_of(dtype, elements))
    assert str(again) == str(elements)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_and_bools_are_elements_as_they_are(dtype):
    elements = (True, False) if dtype == "bool" else (0, 1, 100)
    assert elements_of(tensor_of(dtype, elements)) == elements


def test_elements_of_lazy_bits_are_the_logical_ones():
    z = torch.tensor([1 + 2j]).conj()
    assert elements_of(z) == ((1.0, -2.0),)
    assert elements_of(torch._neg_view(torch.tensor([3.0]))) == (-3.0,)


def test_an_unknown_dtype_is_refused_with_those_that_are_known():
    with pytest.raises(KeyError, match="dtype 'float65' is unknown; known are float64, float32"):
        dtype_of("float65")
    with pytest.raises(KeyError, match="dtype 'load' is unknown"):
        dtype_of("load")


def one(size, stride, elements, **flags):
    return Case(
        "t", (StorageSpec("float64", elements),), (TensorSpec(0, size, stride, **flags),), (Argument("x", input=0),)
    )


def test_a_view_has_the_strides_and_the_offset_of_its_recipe():
    (x,) = one((2, 2), (1, 2), (9.0, 1.0, 2.0, 3.0, 4.0), offset=1, requires_grad=True).build().inputs
    assert x.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert (x.stride(), x.storage_offset(), x.is_leaf, x.requires_grad) == ((1, 2), 1, True, True)


def test_an_expanded_view_keeps_its_stride_of_zero():
    (x,) = one((3,), (0,), (2.0,)).build().inputs
    assert x.tolist() == [2.0, 2.0, 2.0]
    assert x.stride() == (0,)


def test_lazy_bits_are_set_on_the_built_view():
    (x,) = one((1,), (1,), (2.0,), neg=True, requires_grad=True).build().inputs
    assert x.is_neg()
    assert x.is_leaf
    assert x.tolist() == [-2.0]
    case = Case("t", (StorageSpec("complex64", ((1.0, 2.0),)),), (TensorSpec(0, (1,), (1,), conj=True),))
    (z,) = case.build().inputs
    assert z.is_conj()
    assert z.tolist() == [1 - 2j]


def test_an_input_that_is_no_leaf_still_asks_for_a_gradient():
    (x,) = one((1,), (1,), (2.0,), requires_grad=True, leaf=False).build().inputs
    assert not x.is_leaf
    assert x.requires_grad


def test_inputs_of_one_storage_share_memory_and_two_calls_never_do():
    spec = TensorSpec(0, (2,), (1,))
    case = Case("t", (StorageSpec("float64", (1.0, 2.0)),), (spec, spec))
    a, b = case.build().inputs
    assert a.data_ptr() == b.data_ptr()
    assert case.build().inputs[0].data_ptr() != a.data_ptr()


def test_grad_outputs_are_built_with_none_for_an_undefined_one():
    case = Case("t", (StorageSpec("float64", (1.0,)),), grad_outputs=(None, TensorSpec(0, (4,), (0,))))
    undefined, expanded = case.build().grad_outputs
    assert undefined is None
    assert expanded.tolist() == [1.0] * 4
    assert Case("t").build().grad_outputs is None


def test_arguments_go_by_position_and_by_keyword_and_one_input_may_go_twice():
    case = Case(
        "t",
        (StorageSpec("float64", (1.0,)),),
        (TensorSpec(0, (1,), (1,)),),
        (
            Argument("x", input=0),
            Argument("n", value=3),
            Argument("y", input=0),
            Argument("mode", "keyword", value="sum"),
            Argument("w", "keyword", input=0),
        ),
    )
    call = case.build()
    other = (torch.ones(1),)
    args, kwargs = call.arguments(other)
    assert args == (other[0], 3, other[0])
    assert args[0] is args[2]
    assert kwargs == {"mode": "sum", "w": other[0]}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TensorSpec(0, (2, 3), (1,)),
            "size (2, 3) and stride (1,) differ in length; give one stride a side",
        ),
        (lambda: TensorSpec(0, (2,), (-1,)), "size (2,), stride (-1,), offset 0: none may be negative"),
        (
            lambda: one((3,), (2,), (0.0,) * 4, offset=0),
            "size (3,), stride (2,), offset 0 need 5 elements; storage 0 holds 4",
        ),
        (lambda: Case("t", (), (TensorSpec(0, (), ()),)), "storage 0 does not exist; the case has 0"),
        (
            lambda: Case("t", (), (), (Argument("x", input=2),)),
            "argument 'x': input 2 does not exist",
        ),
        (
            lambda: Case("t", (), grad_outputs=(TensorSpec(1, (), ()),)),
            "storage 1 does not exist; the case has 0",
        ),
    ],
)
def test_a_recipe_that_cannot_be_built_is_refused_on_one_line(make, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is compared whole
        make()
    assert str(caught.value) == message


def test_a_view_may_end_with_its_storage_and_an_empty_one_needs_none():
    assert one((3,), (2,), (0.0,) * 5).build().inputs[0].shape == (3,)
    assert one((0, 3), (3, 1), ()).build().inputs[0].shape == (0, 3)


def test_contiguous_strides_are_those_of_torch():
    for size in [(), (3,), (2, 3, 4), (2, 0, 3), (1, 1)]:
        assert contiguous_stride(size) == torch.empty(size).stride()


class Anything:
    name = "t"
    order = 2

    def __init__(self, **parameters):
        self.parameters = parameters

    @staticmethod
    def fn(*args):
        return args[0] * 2


@given(gst.cases(Anything(x=gst.tensors("*s", dtype=[*FLOATS, "complex64", "int64"]), y=gst.tensors("n #n"))))
def test_a_drawn_case_builds_the_same_tensors_each_time_and_is_hashable_data(case):
    first, second = case.build(), case.build()
    for spec, a, b in zip(case.inputs, first.inputs, second.inputs, strict=True):
        assert (tuple(a.shape), a.stride(), a.storage_offset()) == (spec.size, spec.stride, spec.offset)
        assert elements_of(a.reshape(-1)) == elements_of(b.reshape(-1))
    for storage in case.storages:
        assert elements_of(storage.build()) == storage.elements  # nothing was rounded
    assert hash(case) == hash(pickle.loads(pickle.dumps(case)))
    assert dataclasses.replace(case) == case

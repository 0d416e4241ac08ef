"""The narrow doors into torch say what the public ones say."""

from __future__ import annotations

import pytest
import torch

from gradfuzz.checker import engine
from gradfuzz.errors import CheckError


def leaves():
    x = torch.tensor([0.5, -1.25], dtype=torch.float64, requires_grad=True)
    return x, torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("door", ["narrow", "public"])
def test_differentiate_is_autograd_grad(door, monkeypatch):
    if door == "public":
        monkeypatch.setattr(engine, "_BACKWARD", None)
    x, y = leaves()
    unused = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    out, v = x.exp() * y, torch.tensor([1.0, -2.0], dtype=torch.float64)
    want = torch.autograd.grad(out, (x, y, unused), v, create_graph=True, allow_unused=True)
    got = engine.differentiate([out], [x, y, unused], [v], create_graph=True)
    assert got[2] is want[2] is None
    assert all(torch.equal(a, b) and a.requires_grad for a, b in zip(got[:2], want[:2], strict=True))


def test_the_graph_is_kept_only_where_asked():
    x, _ = leaves()
    out, v = x.exp(), torch.ones(2, dtype=torch.float64)
    engine.differentiate([out], [x], [v], retain_graph=True)
    engine.differentiate([out], [x], [v])
    with pytest.raises(RuntimeError, match="second time"):
        engine.differentiate([out], [x], [v])


def test_a_grad_output_that_does_not_fit_is_refused():
    x, _ = leaves()
    with pytest.raises(CheckError, match="shapes and dtypes"):
        engine.differentiate([x.exp()], [x], [torch.ones(3, dtype=torch.float64)])


@pytest.mark.parametrize("door", ["narrow", "public"])
@pytest.mark.parametrize(
    "function", [lambda x, y: (x.exp() * y,), lambda x, y: ((x * y).sum(), x.sin()), lambda x, y: (x.pow(3), y * 1.0)]
)
def test_pushing_twice_is_nested_jvp(door, function, monkeypatch):
    x = tuple(t.detach() for t in leaves())
    u, w = (torch.tensor([1.0, 2.0]).double(),) * 2, (torch.tensor([-0.5, 0.25]).double(),) * 2
    if door == "public":
        monkeypatch.setattr(engine, "_levels", lambda: None)
    want = torch.func.jvp(lambda *p: torch.func.jvp(function, p, u)[1], x, w)[1]
    got = engine.push_twice(function, x, u, w)
    assert all(torch.allclose(a, b) for a, b in zip(got, want, strict=True))


def test_a_push_that_fails_leaves_no_level_behind():
    x = tuple(t.detach() for t in leaves())

    def fails(*_):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        engine.push_twice(fails, x, x, x)
    assert torch.allclose(engine.push_twice(lambda x, y: (x * y,), x, x, x)[0], 2 * x[0] * x[1])


def test_this_torch_has_both_doors():
    assert engine._BACKWARD is not None
    assert engine._levels() is not None

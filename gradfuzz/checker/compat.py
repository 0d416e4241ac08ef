"""gradcheck and gradgradcheck with the signatures of torch's own, answered by `check`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError
from torch.utils import _pytree as pytree

from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised, Subject, is_differentiable
from gradfuzz.checker.judge import check
from gradfuzz.checker.line import Tolerance
from gradfuzz.checker.maps import Map
from gradfuzz.checker.mode import Manner, batched, batched_forward, forward_mode, repeats
from gradfuzz.checker.sparse import by_values
from gradfuzz.checker.verdict import Finding, Status, Symptom, Verdict
from gradfuzz.errors import CheckError

Inputs = torch.Tensor | Sequence[Any]
GradOutputs = torch.Tensor | Sequence[torch.Tensor | None]

# torch's default; the ladders of steps choose their own unless a caller asks for another one.
DEFAULT_EPS = 1e-6

# Where torch's generator stands meanwhile: nobody seeds with it, so a function that seeds for itself shows.
UNUSUAL_SEED = 0x6A09E667F3BCC908

# What makes a derivative wrong at the very call that was given. The remaining symptoms are about other calls
# (an argument passed twice, no gradient asked for) or about what surrounds the derivative: `check` has those.
ALWAYS = (
    Symptom.WRONG_GRADIENT,
    Symptom.WRONG_SECOND_DERIVATIVE,
    Symptom.DETACHED,
    Symptom.NONFINITE,
    Symptom.NONDETERMINISTIC,
    Symptom.METADATA,
    Symptom.MUTATION,
    Symptom.LAYOUT_DEPENDENT,
    Symptom.PRECISION,
    Symptom.NOT_DIFFERENTIABLE,
    Symptom.BACKWARD_ERROR,
)


class GradcheckError(TorchGradcheckError):
    """A derivative is wrong; the message says which, where, got and want, one finding a line.

    It is torch's class of that name too, and so a RuntimeError.

    Attributes:
        findings: What the message says, as values.
    """

    def __init__(self, message: str, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class GradcheckWarning(UserWarning):
    """Nothing contradicts the derivatives, but not everything could be judged; the message says why."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Inputs,
    eps: float = DEFAULT_EPS,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    *,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Check first derivatives, as `torch.autograd.gradcheck` does and by its arguments.

    The inputs may have any floating or complex dtype and any strides. Differences come with their own error
    bar; `atol` and `rtol` only widen what agrees.

    Args:
        func: Called as ``func(*inputs)``, on fresh copies; returns a tensor or a nest of tensors.
        inputs: A tensor or a sequence of arguments.
        eps: The least step of the differences, relative to the inputs' own scale; the default leaves it free.
        atol: What a derivative may be off by, absolutely.
        rtol: What a derivative may be off by, relative to its size.
        raise_exception: False returns False where True raises GradcheckError.
        nondet_tol: How far two equal calls may differ.
        check_undefined_grad: Whether undefined grad_outputs must be treated as zeros.
        check_grad_dtypes: Accepted; a gradient's dtype is always looked at.
        check_batched_grad: Whether the backward must run under vmap, and give what a loop gives.
        check_batched_forward_grad: The same for forward mode.
        check_forward_ad: Whether forward mode must exist and be right.
        check_backward_ad: False looks at forward mode alone.
        fast_mode: Accepted; the cost does not grow with the number of elements in either mode.
        masked: Accepted; differences move the values that a sparse input has, its pattern stands still in either case.

    Returns:
        True where nothing is wrong; with a GradcheckWarning where something could not be judged.

    Raises:
        GradcheckError: A derivative is wrong.
        CheckError: The arguments cannot be judged; a ValueError.
        Exception: Whatever the function itself raises, unchanged.
    """
    del check_grad_dtypes, fast_mode, masked
    if not (check_forward_ad or check_backward_ad):
        raise CheckError("check_forward_ad and check_backward_ad are both False; one of them must be True")
    if check_batched_grad and not check_backward_ad:
        raise CheckError("check_batched_grad=True batches the backward; it needs check_backward_ad=True")
    if check_batched_forward_grad and not check_forward_ad:
        raise CheckError("check_batched_forward_grad=True batches forward mode; it needs check_forward_ad=True")
    manner = Manner(_tolerance(eps, atol, rtol), nondet_tol)

    def verdicts() -> Iterator[Verdict]:
        function, _ = _opened(func, inputs)
        if check_backward_ad:
            yield _judged(function, None, 1, manner, undefined=check_undefined_grad)
        if check_forward_ad:
            yield forward_mode(function, manner)
        if check_batched_grad:
            yield batched(function, manner)
        if check_batched_forward_grad:
            yield batched_forward(function, manner)

    return _concluded(verdicts(), raise_exception=raise_exception)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Inputs,
    grad_outputs: GradOutputs | None = None,
    eps: float = DEFAULT_EPS,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    check_undefined_grad: bool = True,
    check_grad_grad_types: bool = False,
    *,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check second derivatives, and the first, as `torch.autograd.gradgradcheck` does and by its arguments.

    Arguments that `gradcheck` has too mean the same here, of both orders.

    Args:
        func: Called as ``func(*inputs)``, on fresh copies; returns a tensor or a nest of tensors.
        inputs: A tensor or a sequence of arguments.
        grad_outputs: One upstream gradient an output that carries a graph; None for one that is undefined.
            Without them generic ones are drawn.
        eps: The least step of the differences, relative to the inputs' own scale; the default leaves it free.
        atol: What a derivative may be off by, absolutely.
        rtol: What a derivative may be off by, relative to its size.
        check_undefined_grad: Whether undefined gradients must be treated as zeros, in both backwards.
        check_grad_grad_types: Whether every second-order gradient must have the dtype of its tensor.
        gen_non_contig_grad_outputs: Accepted; other layouts of grad_outputs are always tried.
        raise_exception: False returns False where True raises GradcheckError.
        nondet_tol: How far two equal calls may differ.
        check_grad_dtypes: The same as `check_grad_grad_types`.
        check_batched_grad: Whether the double backward must run under vmap, and give what a loop gives.
        check_fwd_over_rev: Whether forward mode over the backward must exist and be right.
        check_rev_over_rev: False looks at the first order, and at second derivatives by forward over reverse alone.
        fast_mode: Accepted; the cost does not grow with the number of elements in either mode.
        masked: Accepted; differences move the values that a sparse input has, its pattern stands still in either case.

    Returns:
        True where nothing is wrong; with a GradcheckWarning where something could not be judged.

    Raises:
        GradcheckError: A derivative is wrong.
        CheckError: The arguments cannot be judged; a ValueError.
        Exception: Whatever the function itself raises, unchanged.
    """
    del gen_non_contig_grad_outputs, fast_mode, masked
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise CheckError("check_fwd_over_rev and check_rev_over_rev are both False; one of them must be True")
    if check_batched_grad and not check_rev_over_rev:
        raise CheckError("check_batched_grad=True batches the double backward; it needs check_rev_over_rev=True")
    manner = Manner(_tolerance(eps, atol, rtol), nondet_tol)

    def verdicts() -> Iterator[Verdict]:
        function, judged = _opened(func, inputs)
        given = (grad_outputs,) if isinstance(grad_outputs, torch.Tensor) else grad_outputs
        if given is not None and len(given) == len(judged):  # else there is one for each output judged
            given = [g for g, flag in zip(given, judged, strict=True) if flag]
        order = 2 if check_rev_over_rev else 1
        yield _judged(function, given, order, manner, undefined=check_undefined_grad)
        if not _carries_graph(function):
            return  # no gradient exists that could be differentiated again
        if check_rev_over_rev:
            twice = function.gradient(given, graph=True)
            yield repeats(twice, manner)
            if check_batched_grad:
                yield batched(twice, manner)
        if check_fwd_over_rev:
            yield forward_mode(function.gradient(given, graph=False), manner)
        if check_grad_grad_types or check_grad_dtypes:
            yield _second_order_dtypes(function, given)

    return _concluded(verdicts(), raise_exception=raise_exception)


def _tolerance(eps: float, atol: float, rtol: float) -> Tolerance:
    for name, value in (("eps", eps), ("atol", atol), ("rtol", rtol)):
        if not value >= 0:  # so written that nan is refused
            raise CheckError(f"{name}={value} is no tolerance; give 0 or more")
    return Tolerance(rtol, atol, 0.0 if eps == DEFAULT_EPS else eps)


def _opened(func: Callable[..., Any], inputs: Inputs) -> tuple[Map, tuple[bool, ...]]:
    """Call the function once as it is, and leave out outputs without a graph where others have one.

    Such an output was declared not to be differentiable; where no output has a graph, all of them are judged.

    Returns:
        The function with its arguments, and by output of floating or complex dtype whether it is judged.

    Raises:
        CheckError: Nothing can be judged.
        Exception: Whatever the function raises.
    """
    func, arguments = by_values(func, (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs))
    try:
        outputs = Map(func, arguments).forward()[1]
    except ForwardRaised as refusal:
        raise refusal.error from None
    check(func, arguments, order=1, oracles=())  # objects to what cannot be judged, and looks for nothing else
    judged = tuple(o.requires_grad for o in outputs)
    if len(set(judged)) < 2:
        return Map(func, arguments), (True,) * len(outputs)

    def kept(*values: Any) -> Any:
        leaves = [o for o in pytree.tree_leaves(func(*values)) if is_differentiable(o)]
        return tuple(o for o, flag in zip(leaves, judged, strict=True) if flag)

    return Map(kept, arguments), judged


def _carries_graph(function: Map) -> bool:
    return any(o.requires_grad for o in function.forward()[1])


def _judged(
    function: Map, grad_outputs: Sequence[torch.Tensor | None] | None, order: int, manner: Manner, *, undefined: bool
) -> Verdict:
    oracles = (*ALWAYS, Symptom.UNDEFINED_GRADIENT) if undefined else ALWAYS
    return check(
        function.func, function.inputs, grad_outputs, order=order, oracles=oracles, seed=manner.seed,
        tolerance=manner.tolerance, nondet_tol=manner.nondet_tol, modes=(),
    )  # fmt: skip


def _second_order_dtypes(function: Map, grad_outputs: Sequence[torch.Tensor | None] | None) -> Verdict:
    """Demand that every second-order gradient has the dtype of what it is a gradient of."""
    v = function.gradient(grad_outputs, graph=True).inputs[1]
    subject = Subject(function.func, function.inputs)
    try:
        second = subject.second(None, v, subject.point)
    except BackwardRaised:
        return Verdict(Status.PASS)  # nothing is there to have a dtype; the ordinary check has reported it
    names = [*subject.names, *(f"grad_output {i}" for i in range(len(v)))]
    tensors, gradients = (*subject.wrt, *v), (*second.hessian_u, *second.jacobian_u)
    found = tuple(
        Finding(Symptom.METADATA, name, f"dtype {g.dtype}", f"dtype {x.dtype}", 2, "rev-rev")
        for name, x, g in zip(names, tensors, gradients, strict=True)
        if g.dtype != x.dtype
    )
    return Verdict(Status.FAIL if found else Status.PASS, found)


def _about_the_value(finding: Finding) -> bool:
    """Whether a finding is about F under another layout: as_strided is no wrong derivative, and torch passes it."""
    return finding.symptom is Symptom.LAYOUT_DEPENDENT and finding.order == 0


def _concluded(verdicts: Iterator[Verdict], *, raise_exception: bool) -> bool:
    """Raise, warn or return, by the first verdict with findings; leave torch's generator as it was found."""
    reasons: list[str] = []
    findings: tuple[Finding, ...] = ()
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), warnings.catch_warnings():
        torch.default_generator.manual_seed(UNUSUAL_SEED)  # the CPU's alone, which is restored
        warnings.simplefilter("ignore")  # the function is called many times; what it warns of is not our answer
        for verdict in verdicts:
            findings = tuple(f for f in verdict.findings if not _about_the_value(f))
            if findings:
                break
            if verdict.reason:
                reasons.append(verdict.reason)
    if not findings:
        if reasons:
            reason = "; ".join(dict.fromkeys(reasons))
            warnings.warn(f"not everything could be judged: {reason}", GradcheckWarning, stacklevel=3)
        return True
    if raise_exception:
        raise GradcheckError("\n".join(map(str, findings)), findings)
    return False

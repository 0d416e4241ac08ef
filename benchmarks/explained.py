"""Findings of a sweep that were looked at by hand: what stands in torch, and what is so by definition.

For the tables of this folder alone: the judge knows nothing of names. Each pattern is ``function|symptom|order|mode``;
`docs/notes/false_alarms.md` has the calls and the reasons at length.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple


class Explained(NamedTuple):
    """One finding, or several of one cause.

    Attributes:
        pattern: Of the findings, as `fnmatch` reads it.
        real: Whether it is a defect, rather than so by definition.
        reason: Why, in a sentence.
    """

    pattern: str
    real: bool
    reason: str


STORED_FACTORS = "the forward rule solves with factors or statistics that were stored and carry no tangent"
SCATTER_PROD = "forward mode gives zeros for the product where it ought to refuse"
SCATTERED_COMPLEMENT = "the gradient is kept where src was written, and zero where the input stays"
UNPOOLED_TWICE = "equal indices, which its documentation excludes: the last one is seen, all get its gradient"
THROUGH_LOGARITHMS = "log(grad) - result + input loses what the input's size costs; and constants are added"
NO_BFLOAT16 = "claimed for bfloat16, but the kernel that double backward needs has none"
EXPLAINED = (
    Explained("det|wrong-second-derivative|2|*-fwd", True, STORED_FACTORS),
    Explained("*linalg.det*|wrong-second-derivative|2|*-fwd", True, STORED_FACTORS),
    Explained("*linalg.det*|wrong-gradient|1|rev", True, "0 for a singular matrix of rank n-1, right when recorded"),
    Explained("linalg.solve*|wrong-second-derivative|2|*-fwd", True, STORED_FACTORS),
    Explained("linalg.tensorsolve|wrong-second-derivative|2|*-fwd", True, STORED_FACTORS),
    Explained("logdet|wrong-second-derivative|2|*-fwd", True, STORED_FACTORS),
    Explained("linalg.slogdet|wrong-second-derivative|2|*-fwd", True, STORED_FACTORS),
    Explained("*layer_norm|wrong-second-derivative|2|*-fwd", True, STORED_FACTORS),
    Explained("*batch_norm*|wrong-second-derivative|2|*-fwd", True, STORED_FACTORS),
    Explained("*instance_norm|wrong-second-derivative|2|*-fwd", True, STORED_FACTORS),
    Explained("cholesky_inverse|*|*|*fwd*", True, "two factors that do not commute are swapped in the forward rule"),
    Explained("cumprod|*|2|*-fwd", True, "the forward rule has a branch for zeros that counts as a constant"),
    Explained("scatter_reduce.prod|*|*|*fwd*", True, SCATTER_PROD),
    Explained(
        "*linear_cross_entropy.chunked*|*|*|*", True, "the chunked backward stores gradients that forward computed"
    ),
    Explained("as_strided_scatter|forward-mode|1|fwd", True, SCATTERED_COMPLEMENT),
    Explained("as_strided_scatter|wrong-gradient|1|rev", True, SCATTERED_COMPLEMENT),
    Explained("as_strided*|layout-dependent|*|*", False, "reads memory by the strides it is given, not the input's"),
    Explained(
        "native_group_norm|undefined-gradient|*|*", True, "the gradient of the mean is dropped with that of rstd"
    ),
    Explained("*max_unpool*|layout-dependent|1|rev", True, "the backward views strided indices that forward takes"),
    Explained("*max_unpool*|wrong-gradient|1|rev", False, UNPOOLED_TWICE),
    Explained("*max_unpool*|forward-mode|1|fwd", False, UNPOOLED_TWICE),
    Explained("*max_unpool*|layout-dependent|1|rev", True, "the backward views the indices, which may be strided"),
    Explained(
        "*max_pool3d|layout-dependent|1|rev", True, "the backward refuses a 4-d grad_output laid out as channels-last"
    ),
    Explained("*scaled_dot_product_attention|not-differentiable|2|rev-rev", True, "the fused backward has none"),
    Explained(
        "triangular_solve|wrong-second-derivative|2|fwd-rev",
        True,
        "what the backward takes from forward carries no tangent",
    ),
    Explained("normal*|*|1|*", False, "samples are defined to have no gradient, although they move with the mean"),
    Explained("logcumsumexp|*|*|*", True, THROUGH_LOGARITHMS),
    Explained("native_group_norm|layout-dependent|*|*", True, "strided weights are read as if contiguous"),
    Explained("nextafter|wrong-gradient|1|rev", True, "at equal arguments neither of the two gets the gradient"),
    Explained("*pow|nonfinite|2|rev-rev", True, "log(base) at a base of 0, guarded at the first order only"),
    Explained("*float_power|nonfinite|2|rev-rev", True, "log(base) at a base of 0, guarded at the first order only"),
    Explained("*grid_sample*|backward-error|2|rev-rev", True, "double backward scatters float32 into bfloat16"),
    Explained("sparse.sampled_addmm|backward-error|2|rev-rev", True, "the backward masks by a pattern that is not COO"),
    Explained("i0|not-differentiable|2|rev-rev", True, NO_BFLOAT16),
    Explained("special.i0e|not-differentiable|2|rev-rev", True, NO_BFLOAT16),
    Explained("mish|nonfinite|2|rev-rev", True, "inf / inf in double backward where exp(x) overflows"),
    Explained("linalg.norm.subgradients_at_zero|nonfinite|2|rev-rev", True, "masked at the first order only"),
    Explained("a Function with a jvp|wrong-second-derivative|2|fwd-fwd", True, "torch loses the outer tangent"),
    Explained("native_layer_norm|*|2|rev-rev", True, "without weight, the bias's gradient loses its graph or raises"),
    Explained("*max_pool3d|layout-dependent|1|rev", True, "a grad_output that is channels-last is refused by backward"),
    Explained("*max_unpool*|layout-dependent|1|rev", True, "backward views indices as if contiguous, forward does not"),
    Explained("*median|layout-dependent|0|", True, "a stride of 0 along the dimension: it reads memory of others"),
    Explained("*nll_loss|layout-dependent|*|*", True, "the backward refuses a gradient that is not contiguous"),
    Explained("linalg.eigh|nonfinite|2|rev-fwd", True, "the rule divides by differences that are 0 on the diagonal"),
    Explained(
        "linalg.householder_product|wrong-second-derivative|2|*-fwd",
        True,
        "something the forward rule uses counts as a constant",
    ),
    Explained("masked.logaddexp|nonfinite|2|rev-rev", True, "1 / (1 + exp(y - x)) differentiated: inf / inf"),
    Explained("logaddexp*|nonfinite|2|*", True, "1 / (1 + exp(y - x)) differentiated: inf / inf"),
)


def explained(key: str) -> Explained | None:
    """Find the entry for ``function|symptom|order|mode``; None where nobody has looked at it."""
    return next((entry for entry in EXPLAINED if fnmatchcase(key, entry.pattern)), None)

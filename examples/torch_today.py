"""torch's own functions, declared with the domain their documentation gives and nothing else.

Some are wrong today, at a point of it or in a region; tanh is here to be left in peace.
"""

from __future__ import annotations

import torch

import gradfuzz
from gradfuzz import strategies as gst

ANY = gst.tensors("*s")

tanh = gradfuzz.Target(torch.tanh, {"x": ANY})
sinc = gradfuzz.Target(torch.sinc, {"x": ANY})
logaddexp = gradfuzz.Target(torch.logaddexp, {"x": ANY, "y": ANY})
power = gradfuzz.Target(
    torch.pow, {"base": gst.tensors("*s", bounds=(0.0, 4.0)), "exponent": gst.tensors("*s", bounds=(0.5, 4.0))}
)
ldexp = gradfuzz.Target(torch.ldexp, {"x": ANY, "exponent": gst.tensors("*s", dtype="int64", bounds=(-8, 8))})

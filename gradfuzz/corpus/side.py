"""Side files: the elements of a large storage as raw bytes, named by their SHA-256."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gradfuzz.element import dtype_of, elements_of, tensor_of

if TYPE_CHECKING:
    from gradfuzz.case import Element, StorageSpec

# Storages of more elements than this lie beside the JSON: as text they would fill megabytes.
SIDE_ELEMENTS = 65536
NAME = re.compile(r"[0-9a-f]{64}\.bin")


def pack(storage: StorageSpec) -> bytes:
    """Give the elements as they lie in memory, little-endian."""
    raw: bytes = tensor_of(storage.dtype, storage.elements).view(torch.uint8).numpy().tobytes()
    return raw


def unpack(data: bytes, dtype: str) -> tuple[Element, ...]:
    """Give the elements of packed bytes; a ValueError says why there are none."""
    if dtype == "bool" and data.strip(b"\0\1"):
        raise ValueError("a byte of a bool is 0 or 1")
    return elements_of(torch.frombuffer(bytearray(data), dtype=dtype_of(dtype)))


def name_of(data: bytes) -> str:
    """Give the file name of packed bytes."""
    return f"{hashlib.sha256(data).hexdigest()}.bin"


def itemsize(dtype: str) -> int:
    """Give the bytes of one element."""
    return dtype_of(dtype).itemsize


def read(path: Path, size: int) -> bytes:
    """Read a side file once it proves to be the one that its name says; a ValueError says what it is instead."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError("must be a regular file, not a link or a device")
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("must be a regular file, not a link or a device")
            data = file.read(size + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if len(data) != size:
        raise ValueError(f"must hold {size} bytes, holds {'more' if len(data) > size else len(data)}")
    if name_of(data) != path.name:
        raise ValueError("its bytes do not have the SHA-256 that its name says")
    return data

"""The intrinsic: what it takes and gives, what it means in numpy, and how CUDA C++ writes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from hidet.dtypes import u32
from hidet.ir.intrinsic import Intrinsic, IntrinsicFamily, SameAs, Value, table

_HERE = "hidet_example_morphology.intrinsics"

FAMILY = IntrinsicFamily(
    name="morphology",
    doc="SIMD within a word",
    load=f"{_HERE}:ROWS",
    meanings=f"{_HERE}:MEANINGS",
    spellings={"cuda": f"{_HERE}:CUDA"},
)

MAX_BYTES = Intrinsic(
    name="morphology.max_bytes",
    family=FAMILY,
    group="simd",
    doc="the greater of each of four bytes",
    parameters=(Value("a", (u32,)), Value("b", (u32,))),
    result=SameAs("a"),
)


def _max_bytes(a: Any, b: Any) -> Any:
    return np.maximum(*(np.ascontiguousarray(x, np.uint32)[..., None].view(np.uint8) for x in (a, b))).view(np.uint32)[
        ..., 0
    ]


ROWS = table(MAX_BYTES)
MEANINGS = {MAX_BYTES.name: _max_bytes}
CUDA = {MAX_BYTES.name: "__vmaxu4({0}, {1})"}

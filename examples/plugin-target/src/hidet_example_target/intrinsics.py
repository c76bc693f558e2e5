"""An intrinsic: what it takes and gives, what it means in numpy, and how this target writes it."""

from __future__ import annotations

import numpy as np

from hidet.dtypes import u32, u64
from hidet.ir.intrinsic import Intrinsic, IntrinsicFamily, SameAs, Value, table

_HERE = "hidet_example_target.intrinsics"

FAMILY = IntrinsicFamily(
    name="example_c",
    doc="instructions that C compilers have names for",
    load=f"{_HERE}:ROWS",
    meanings=f"{_HERE}:MEANINGS",
    spellings={"example-c": f"{_HERE}:SPELLINGS"},
)

POPCOUNT = Intrinsic(
    name="example_c.popcount",
    family=FAMILY,
    group="bits",
    doc="how many bits of x are set",
    parameters=(Value("x", (u32, u64)),),
    result=SameAs("x"),
)

ROWS = table(POPCOUNT)
MEANINGS = {"example_c.popcount": lambda x: np.bitwise_count(x).astype(x.dtype)}
SPELLINGS = {"example_c.popcount": "__builtin_popcountll({0})"}
"""Of this target: a C expression with `{0}`, `{1}`, … for the arguments."""

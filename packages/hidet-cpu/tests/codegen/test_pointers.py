"""Pointers that scripts move."""

from __future__ import annotations

import numpy as np

import hidet
from hidet import dims
from hidet.lang import attrs, i64

n = dims.symbol("n")


def test_a_pointer_moves_along_what_it_points_to() -> None:
    @hidet.script
    def forward_and_back(x: i64[n]):
        attrs.func_kind = "public"
        p = ~x[0]
        i = 0
        while i < n:
            p[0] = i + 7
            p = p + 1
            i += 1
        p = p - 2
        p[0] = 1

    x = np.zeros(4, np.int64)
    forward_and_back(x)
    assert x.tolist() == [7, 8, 1, 10]

"""What `fx_nodes` says of the strides that eager mode gives results, against eager mode."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest
import torch

from hidet.torch.fx_nodes import ALWAYS_ROW_MAJOR

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "new_empty": ((2, 3, 4),),
    "new_full": ((2, 3, 4), 1.0),
    "new_ones": ((2, 3, 4),),
    "new_zeros": ((2, 3, 4),),
    "prod": (1, False),
}
"""What operators take beside the tensor; the others are reductions of one axis."""


def _lay(permuted: tuple[int, ...]) -> torch.Tensor:
    """A tensor of shape (3, 4, 5, 6), as a view of a row-major one whose axes are permuted."""
    shape = (3, 4, 5, 6)
    base = torch.arange(360.0).view([shape[axis] for axis in permuted])
    return base.permute([permuted.index(axis) for axis in range(4)])


@pytest.mark.parametrize("permuted", [(0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 2, 3)])
@pytest.mark.parametrize("name", sorted(ALWAYS_ROW_MAJOR))
def test_results_are_row_major_however_operands_lie(name: str, permuted: tuple[int, ...]) -> None:
    operator = attrgetter(name)(torch.ops)
    plain = name.split(".")[1]
    given = _lay(permuted)
    if plain in ("mm", "bmm"):
        left = given.reshape(-1)[: 24 if plain == "mm" else 48].view((6, 4) if plain == "mm" else (2, 6, 4))
        results = [operator(left.mT.contiguous().mT, left.mT), operator(left, left.mT.contiguous())]
    elif plain in ARGUMENTS:
        results = [operator(given, *ARGUMENTS[plain])]
    else:
        axes: list[Any] = [2, 1] if name.endswith(("all.dim", "any.dim")) else [[2], [1, 2]]
        results = [operator(given, axis, keepdim) for axis in axes for keepdim in (False, True)]
    assert all(result.is_contiguous() for result in results)

"""What scripts say of tensors whose memory they cannot read as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hidet
from hidet.errors import LaunchError
from hidet.lang import f32

N = hidet.dims.symbol("n")


@hidet.script
def double(x: f32[N], y: f32[N]):
    for i in range(N):
        y[i] = x[i] * 2.0


def misaligned(step: int) -> np.ndarray:
    """Three numbers from the second byte on, `step` bytes from one to the next."""
    return np.ndarray(3, np.float32, np.zeros(64, np.uint8), 1, (step,))


RECORDS = np.zeros(3, np.dtype([("tag", np.uint8), ("number", np.float32)]))

REFUSED = {
    "misaligned": (misaligned(4), "begins at an address that is no multiple of 4 bytes, the size of its elements"),
    "record": (RECORDS["number"], "has elements 5 bytes apart, which is no multiple of 4 bytes, their size"),
    "negative": (torch._neg_view(torch.zeros(3)), "has its negative bit set: its memory holds the negated numbers"),
    "conjugate": (torch.zeros(3, dtype=torch.complex64).conj().imag, "has its negative bit set"),
    "sparse": (torch.zeros(3).to_sparse(), "a tensor has layout torch.sparse_coo, expected a dense one"),
}


@pytest.mark.parametrize("is_first", [True, False], ids=["first call", "later call"])
@pytest.mark.parametrize("name", REFUSED)
def test_the_error_says_what_is_wrong_with_the_memory(name: str, is_first: bool) -> None:
    wrong, problem = REFUSED[name]
    call = double.build("cpu")["double"]
    if not is_first:
        for library in (np.ones(3, np.float32), torch.ones(3)):
            call(library, np.zeros(3, np.float32))
            call(library, torch.zeros(3))
    for arguments, parameter in (((wrong, np.zeros(3, np.float32)), "x"), ((np.zeros(3, np.float32), wrong), "y")):
        with pytest.raises(LaunchError, match=f"argument {parameter} of double:? {problem}") as caught:
            call(*arguments)
        assert caught.value.hint is not None and "strides" not in str(caught.value)


def test_a_copy_is_what_the_error_asks_for() -> None:
    y = torch.zeros(3)
    for x in (misaligned(4).copy(), RECORDS["number"].copy(), torch._neg_view(torch.zeros(3)).clone()):
        double(x, y)
    double(torch.ones(3).to_sparse().to_dense(), y)
    assert y.tolist() == [2.0, 2.0, 2.0]

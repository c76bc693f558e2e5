"""one_hot asserts that its classes are in range; the assertion runs in torch, and the model around it is compiled."""

import pytest
import torch
import torch.nn.functional as F


def _encode(classes: torch.Tensor) -> torch.Tensor:
    return F.one_hot(classes, 5) * 2


def test_one_hot_with_its_range_check_is_right() -> None:
    classes = torch.tensor([0, 3, 4, 1])
    with pytest.warns(UserWarning, match="_assert_async"):
        result = torch.compile(_encode, backend="hidet")(classes)
    assert torch.equal(result, _encode(classes))

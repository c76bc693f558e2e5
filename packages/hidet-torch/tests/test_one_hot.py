"""one_hot refuses classes out of range, whether torch asserts that (2.13) or leaves it to what follows (2.11)."""

import pytest
import torch
import torch.nn.functional as F


def _encode(classes: torch.Tensor) -> torch.Tensor:
    return F.one_hot(classes, 5) * 2


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
def test_one_hot_with_its_range_check_is_right() -> None:
    classes = torch.tensor([0, 3, 4, 1])
    compiled = torch.compile(_encode, backend="hidet")
    assert torch.equal(compiled(classes), _encode(classes))
    for wrong in (classes + 1, classes - 1):
        with pytest.raises((RuntimeError, IndexError)):
            _encode(wrong)
        with pytest.raises((RuntimeError, IndexError)):
            compiled(wrong)

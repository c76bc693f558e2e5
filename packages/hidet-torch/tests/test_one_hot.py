"""one_hot refuses classes out of range where torch keeps its check in the graph: 2.13 does, 2.11 drops it."""

import warnings

import pytest
import torch
import torch.nn.functional as F

from hidet.errors import FallbackWarning


def _encode(classes: torch.Tensor) -> torch.Tensor:
    return F.one_hot(classes, 5) * 2


def test_one_hot_with_its_range_check_is_right() -> None:
    classes = torch.tensor([0, 3, 4, 1])
    compiled = torch.compile(_encode, backend="hidet")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        assert torch.equal(compiled(classes), _encode(classes))
    if any("_assert_async" in str(warning.message) for warning in caught):
        for wrong in (classes + 1, classes - 1):
            with pytest.raises(RuntimeError, match="Class values"):
                compiled(wrong)
    else:
        assert torch.__version__ < "2.13"

"""Where eager mode has no kernel for an element type, the compiled program refuses it as well."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.nn import functional as F

IMAGE = torch.ones(1, 3, 8, 8, dtype=torch.long)
MATRIX = torch.ones(4, 4, dtype=torch.bool)

REFUSED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "adaptive max pooling": (nn.AdaptiveMaxPool2d(5), IMAGE),
    "without a batch": (nn.AdaptiveMaxPool2d(5), torch.ones(1, 3, 4, dtype=torch.long)),
    "gelu": (F.gelu, IMAGE),
    "silu": (F.silu, IMAGE),
    "hardswish": (F.hardswish, IMAGE),
    "softmax": (lambda x: F.softmax(x, -1), IMAGE),
    "logarithm of softmax": (lambda x: F.log_softmax(x, -1), IMAGE),
    "product of booleans": (lambda x: x @ x, MATRIX),
}
ACCEPTED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "pooling": (nn.MaxPool2d(2), IMAGE),
    "mean": (nn.AvgPool2d(2), IMAGE),
    "relu": (F.relu, IMAGE - 2),
    "product": (lambda x: x @ x, MATRIX.long()),
    "convolution": (lambda x: F.conv2d(x, torch.ones(2, 3, 3, 3, dtype=torch.long)), IMAGE),
    "sigmoid": (torch.sigmoid, IMAGE),
    "softmax of floats": (lambda x: F.softmax(x.float(), -1), IMAGE),
    "resized bytes": (lambda x: F.interpolate(x, scale_factor=2), IMAGE.to(torch.uint8)),
}


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_mode_refuses_is_refused(name: str, dynamic: bool) -> None:
    """defects.md D2."""
    function, x = REFUSED[name]
    with pytest.raises(NotImplementedError) as eager:
        function(x)
    with pytest.raises(NotImplementedError) as compiled:
        torch.compile(function, backend="hidet", dynamic=dynamic)(x)
    assert str(compiled.value) == str(eager.value)


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_eager_mode_computes_is_compiled(name: str) -> None:
    function, x = ACCEPTED[name]
    compiled = torch.compile(function, backend="hidet", options={"strict": True})
    torch.testing.assert_close(compiled(x), function(x))


def test_a_strict_compilation_says_that_torch_has_no_kernel() -> None:
    with pytest.raises(BackendCompilerFailed, match="torch has no kernel of it for these element types"):
        torch.compile(F.gelu, backend="hidet", options={"strict": True})(IMAGE)

"""Functions of torch from your operators
======================================

Say what functions, methods and modules of torch are made of: in operators of hidet, or of one's own.

Functions that hidet does not support end the compilation; here some are taken out, and put back by hand.
"""

import torch
from torch import nn
from torch.nn import functional

import hidet
from hidet import Tensor, ops
from hidet.graph.frontend.torch import dynamo_backends  # noqa: F401  # as scripts of hidet 0.6 import it
from hidet.graph.frontend.torch.registry import (
    HidetModule,
    Registry,
    register_function,
    register_method,
    register_module,
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return functional.softmax(self.linear(x), dim=1).relu()


def run(model: nn.Module, x: torch.Tensor) -> None:
    torch.compiler.reset()
    compiled = torch.compile(model, backend="hidet", options={"strict": True})
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    print("compiled, and right")


@torch.no_grad()
def main() -> None:
    device = "cuda" if hidet.cuda.available() else "cpu"
    model, x = Model().eval().to(device), torch.randn(3, 4, device=device)
    run(model, x)

    del Registry.registered_functions[functional.softmax]
    del Registry.registered_methods[torch.Tensor.relu]
    try:
        run(model, x)
    except RuntimeError as error:  # torch wraps what a backend raises
        print(str(error).splitlines()[1])
        assert "torch.nn.functional.softmax" in str(error) and "torch.Tensor.relu" in str(error)
    else:
        raise AssertionError("both are gone")

    calls = []

    @register_function(functional.softmax)
    def softmax(x: Tensor, dim: int, _stacklevel: int = 3, dtype=None):
        calls.append("softmax")
        return ops.softmax(x, dim)

    @register_method(torch.Tensor.relu)
    def relu(x: Tensor):
        calls.append("relu")
        return ops.maximum(x, 0.0)

    run(model, x)
    assert {*calls} == {"softmax", "relu"}

    # Modules are the units of `from_torch`.
    @register_module(nn.Linear)
    class HidetLinear(HidetModule):
        def __call__(self, x: Tensor) -> Tensor:
            calls.append("linear")
            return ops.matmul_nt(x, self.param("weight")) + self.param("bias")

    module = hidet.frontend.from_torch(model)
    torch.testing.assert_close(module(hidet.from_torch(x)).torch(), model(x), rtol=1e-5, atol=1e-5)
    assert "linear" in calls

    for functions in (Registry.registered_functions, Registry.registered_modules):
        functions.clear()  # everything as before


if __name__ == "__main__":
    main()

"""First steps
===========

First steps: a model of torch compiled, tensors, graphs of symbolic tensors, and what the compiler makes of them.
"""

import torch
from torch import nn

import hidet


class Classifier(nn.Module):
    """Images as ten numbers."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


def compile_a_model(device: str) -> None:
    torch.manual_seed(0)
    dtype = torch.float16 if device == "cuda" else torch.float32
    model = Classifier().eval().to(device, dtype)
    x = torch.randn(1, 3, 16, 16, device=device, dtype=dtype)
    with torch.no_grad():
        # Candidates are measured on a device of one's own.
        mode = "max-autotune" if device == "cuda" else "default"
        optimized = torch.compile(model, backend="hidet", mode=mode)
        found = optimized(x)
        torch.testing.assert_close(found, model(x), rtol=2e-2, atol=2e-2)
        if device == "cuda":
            for name, run in (("eager", model), ("hidet", optimized)):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda.synchronize()
                start.record()
                for _ in range(100):
                    run(x)
                end.record()
                torch.cuda.synchronize()
                print(f"{name}: {start.elapsed_time(end) / 100:.3f} ms")


def make_a_graph(device: str) -> None:
    a, b, c = (hidet.randn(shape, device=device) for shape in ([2, 3], [3, 2], [2]))
    print(a)
    d = hidet.ops.matmul(a, b)
    e = d + c  # operators run at once on tensors that have elements
    print(e)

    x = hidet.symbol_like(a)
    y = hidet.ops.matmul(x, b) + c  # and are remembered for symbolic ones
    print("trace:", y.trace)
    assert x.trace is None and x.storage is None and y.storage is None

    graph: hidet.FlowGraph = hidet.trace_from(y)
    print(graph)
    with hidet.graph.PassContext():
        optimized: hidet.FlowGraph = hidet.graph.optimize(graph)
    print(optimized)
    hidet.utils.assert_close(optimized(a), e, rtol=1e-4, atol=1e-4)

    if device == "cuda":
        (output,) = optimized.cuda_graph().run([a])
        hidet.utils.assert_close(output, e, rtol=1e-4, atol=1e-4)


def main() -> None:
    device = "cuda" if hidet.cuda.available() else "cpu"
    compile_a_model(device)
    make_a_graph(device)


if __name__ == "__main__":
    main()

"""Settings of torch.compile
=========================

Settings of torch.compile with hidet: what is searched, in what types it computes, and a report of differences.
"""

import torch
from torch import nn

import hidet


def model_and_input(device: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    return model.eval().to(device), torch.randn(2, 3, 12, 12, device=device)


def run(device: str, tolerance: float) -> None:
    """Compile anew, with the settings that hold."""
    torch.compiler.reset()
    model, x = model_and_input(device)
    with torch.no_grad():
        compiled = torch.compile(model, backend="hidet")
        torch.testing.assert_close(compiled(x), model(x), rtol=tolerance, atol=tolerance)


def main() -> None:
    device = "cuda" if hidet.cuda.available() else "cpu"
    config = hidet.torch.dynamo_config
    try:
        config.search_space(0)  # 1 and 2 measure candidates
        run(device, 1e-4)

        config.correctness_report()
        run(device, 1e-4)
        config.correctness_report(False)

        config.use_cuda_graph(False)
        config.print_input_graph(True)
        config.use_fp16(True)
        run(device, 2e-2)
        config.use_fp16_reduction(True)
        run(device, 2e-2)
    finally:
        config.reset()


if __name__ == "__main__":
    main()

"""Give a model weights under which every part of it matters to the result.

Fresh models have parameters that hide errors: zero biases, unit scales, batch-norm statistics of zero and one, a zero
head (vit), layer scales of 1e-6 (convnext). A compiler that drops one of those would still look right.
"""

from collections.abc import Callable

import torch
from torch import nn

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def randomise_constant_parameters(model: nn.Module, generator: torch.Generator) -> None:
    """Replace, in place, each parameter whose elements are all equal.

    Zeros become normal with deviation 0.05, tiny scales (below 1e-2) uniform in [0.1, 0.3], all others uniform in
    [0.5, 1.5] times their value.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() == 0 or not bool((parameter == parameter.flatten()[0]).all()):
                continue
            value = float(parameter.flatten()[0])
            if value == 0.0:
                parameter.normal_(0.0, 0.05, generator=generator)
            elif abs(value) < 1e-2:
                parameter.uniform_(0.1, 0.3, generator=generator)
            else:
                parameter.uniform_(0.5, 1.5, generator=generator).mul_(value)


def calibrate_batch_norms(model: nn.Module, run: Callable[[nn.Module], object], generator: torch.Generator) -> None:
    """Set every batch norm's running statistics from one pass, then move them off by a random amount.

    The pass keeps activations near unit scale through the deepest model; the move (mean by a tenth of a deviation,
    variance by up to a quarter) makes folding visible. `run(model)` calls the model on one example batch. The model is
    in eval mode afterwards.
    """
    norms = [module for module in model.modules() if isinstance(module, _BATCH_NORMS)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        run(model)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            mean, variance = norm.running_mean, norm.running_var
            if mean is None or variance is None:
                continue
            shift = torch.empty_like(mean).normal_(0.0, 0.1, generator=generator)
            mean.add_(shift * variance.sqrt())
            variance.mul_(torch.empty_like(variance).uniform_(0.8, 1.25, generator=generator))
            # A channel that happens to be constant must not turn into a division by almost nothing.
            variance.clamp_(min=1e-3)
    model.eval()

"""Run convolutions and linear layers of random sizes in processes of their own, compiled and in float64, and compare.

    python -m tests.fuzz.layers --count 500 --seed 0

Sizes are those of small layers: channels and filters that fill vectors and tiles, that nearly do and that do not, few
pixels and many, channels first and last, sizes that are known and sizes that a call tells, which see another call.
"""

from __future__ import annotations

import argparse
import random
import warnings
from dataclasses import dataclass

import torch
from torch import nn

from tests.fuzz.children import End, ends, in_batches, report, serve
from tests.fuzz.torch_programs import is_device_usable

MODULE = "tests.fuzz.layers"
_COUNTS = (1, 3, 8, 16, 24, 31, 32, 40, 48, 56, 63, 64, 65, 72, 80, 96, 128)
_LIMIT = 1e-4
"""Of the largest difference beside the largest result: sums of a few thousand products in f32."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution, or a linear layer where `taps` is 0. size: of the image, or how many rows there are and 1.
    form: how channels of image and filter lie: "first", "last", "image last". dynamic: axes whose size a call tells.
    """

    channels: int
    filters: int
    taps: int
    step: int
    spread: int
    pad: int
    groups: int
    batch: int
    size: tuple[int, int]
    form: str
    is_transposed: bool
    has_bias: bool
    dynamic: tuple[int, ...]

    def module(self) -> nn.Module:
        """With weights of the generator as it stands."""
        if not self.taps:
            return nn.Linear(self.channels, self.filters, bias=self.has_bias).eval()
        kind = nn.ConvTranspose2d if self.is_transposed else nn.Conv2d
        made = kind(
            self.channels,
            self.filters,
            self.taps,
            self.step,
            self.pad,
            dilation=self.spread,
            groups=self.groups,
            bias=self.has_bias,
        ).eval()
        return made.to(memory_format=torch.channels_last) if self.form == "last" else made  # type: ignore[call-overload]  # of nn.Module

    def images(self, more: int) -> torch.Tensor:
        """Inputs whose dynamic axes are longer by `more`."""
        shape = [self.batch, self.channels, *self.size] if self.taps else [self.batch * self.size[0], self.channels]
        for axis in self.dynamic:
            shape[axis] += more
        made = torch.randn(shape)
        return made if not self.taps or self.form == "first" else made.to(memory_format=torch.channels_last)


def layer(seed: int) -> Layer:
    """That of a seed."""
    while True:
        g = random.Random(seed)
        taps = g.choice((0, 1, 1, 2, 3, 3, 3, 5, 7))
        groups = g.choice((1, 1, 1, 2, 4)) if taps else 1
        channels, filters = (max(groups, count - count % groups) for count in g.choices(_COUNTS, k=2))
        made = Layer(
            channels=channels,
            filters=filters,
            taps=taps,
            step=g.choice((1, 1, 2, 3)),
            spread=g.choice((1, 1, 2)),
            pad=g.choice((0, taps // 2)),
            groups=groups,
            batch=g.randint(2, 4),
            size=(g.randint(2, 20), g.randint(2, 20)),
            form=g.choice(("first", "last", "last", "image last")),
            is_transposed=g.random() < 0.2,
            has_bias=g.random() < 0.5,
            dynamic=g.choice(((), (), (0,), (0, 2, 3) if taps else (0,))),
        )
        reach = made.spread * (made.taps - 1) + 1
        if min(made.size) + 2 * made.pad >= reach or not made.taps:
            return made
        seed += 1 << 32


def end_of(base: str, content: str, seed: int) -> End:
    """Compile the layer of a seed for the device that `content` names, and compare its calls with float64."""
    made, device = layer(seed), torch.device(content)
    torch.manual_seed(seed)
    module, calls = made.module(), [made.images(0), *([made.images(5)] if made.dynamic else [])]
    with torch.no_grad():
        right = [module.double()(images.double()) for images in calls]
        module = module.float().to(device)
        torch._dynamo.reset()
        compiled = torch.compile(module, backend="hidet", dynamic=None if made.dynamic else False)
        for number, (images, expected) in enumerate(zip(calls, right, strict=True)):
            given = images.to(device)
            for axis in made.dynamic:
                torch._dynamo.maybe_mark_dynamic(given, axis)
            found = compiled(given).cpu().double()
            worst = float((found - expected).abs().max()) / (float(expected.abs().max()) or 1.0)
            if found.shape != expected.shape or not worst <= _LIMIT:
                return End(base, seed, "wrong", f"call {number} of {made}: {worst:.1e} from float64")
    return End(base, seed, "ran", "")


def run(count: int, jobs: int, first_seed: int = 0, device: str = "cpu") -> list[End]:
    """Compare `count` layers on a device, `jobs` at a time."""
    return ends(MODULE, [(f"layers on {device}", device, seed) for seed in range(first_seed, first_seed + count)], jobs)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the first layer")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        torch.backends.cudnn.allow_tf32 = False
        serve(end_of, is_device_usable=is_device_usable if torch.cuda.is_available() else None)
    else:
        count, jobs, seed, device = arguments.count, arguments.jobs, arguments.seed, arguments.device
        report(in_batches(count, lambda many, first: run(many, jobs, seed + first, device)))


if __name__ == "__main__":
    main()

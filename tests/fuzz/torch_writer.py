"""A torch program that is written statement by statement while it runs in eager mode.

A statement is kept where eager mode runs it for all sizes of a program, in the program's types and in float64. What
eager mode leaves open is not written: writes to memory that overlaps itself or what is read, positions that are written
twice, and comparisons, roundings and casts to integers of numbers that are not exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

MAX_ELEMENTS = 3000
MAX_VALUE = 1e4
FLOATS = ("f32", "f32", "f32", "f64", "bf16", "f16")
INTEGERS = ("i64", "i64", "i32", "u8", "i16")
DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "u8": torch.uint8,
    "bool": torch.bool,
}
PRELUDE = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n" + "".join(
    f"{name} = {dtype}\n" for name, dtype in DTYPES.items()
)
PRELUDE += '''
AUTOCAST = True
DEVICE = "cpu"


def data(seed, shape, dtype):
    """Small multiples of a quarter, small integers, or truths."""
    source = torch.Generator("cpu").manual_seed(seed)
    if dtype.is_floating_point:
        drawn = torch.randint(-8, 9, shape, generator=source, device="cpu") / 4
    else:
        last = 2 if dtype == torch.bool else 6
        drawn = torch.randint(0, last, shape, generator=source, device="cpu")
    return drawn.to(DEVICE, dtype)


def filled(seed, layer):
    with torch.no_grad():
        for number, tensor in enumerate((*layer.parameters(), *layer.buffers())):
            tensor.copy_(data(seed + number, tensor.shape, tensor.dtype).abs() + 0.25)
    return layer.to(DEVICE)


class Model(nn.Module):
    pass

'''

Names = dict[str, Any]


def namespace(is_wide: bool, device: str = "cpu") -> Names:
    """Names of programs. is_wide: for the reference, where every float type is float64. device: where tensors are."""
    names: Names = {}
    exec(PRELUDE, names)
    names["DEVICE"] = device
    if is_wide:
        names |= dict.fromkeys(("f32", "bf16", "f16"), torch.float64) | {"AUTOCAST": False}
    return names


@dataclass(slots=True)
class Writer:
    """Statements of one program. worlds: a pair of names, in the program's types and in float64, for each size."""

    source: random.Random
    sizes: tuple[int, ...]
    autocasts: bool
    inputs: list[str]
    layers: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    exact: set[str] = field(default_factory=set)
    worlds: list[tuple[Names, Names]] = field(default_factory=list)
    count: int = 0

    def restart(self) -> None:
        """Make the worlds anew."""
        self.worlds = []
        for size in self.sizes:
            pair = namespace(is_wide=False), namespace(is_wide=True)
            for names, is_wide in zip(pair, (False, True), strict=True):
                names |= {"n": size, "self": names["Model"]()}
                for text in (*self.inputs, *self.layers, *self.statements):
                    run_text(text, names, is_wide, self.autocasts and not is_wide)
            self.worlds.append(pair)

    # --- names ---

    def value(self, name: str) -> torch.Tensor:
        """The tensor of a name, for the first size."""
        found = self.worlds[0][0][name]
        assert isinstance(found, torch.Tensor)
        return found

    def tensors(self, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True) -> list[str]:
        """Names of tensors, those of later statements more often than once."""
        names = [name for name, value in self.worlds[0][0].items() if is_tensor_name(name, value) and accepts(value)]
        return names + names[-4:]

    def any(self, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True) -> str:
        names = self.tensors(accepts)
        if not names:
            raise Unfit
        return self.source.choice(names)

    def real(self, rank: int = 0) -> str:
        return self.any(lambda t: t.is_floating_point() and t.dim() >= rank)

    def whole(self) -> str:
        return self.any(lambda t: not t.is_floating_point() and t.dtype != torch.bool)

    def exact_one(self) -> str:
        names = [name for name in self.tensors() if name in self.exact]
        if not names:
            raise Unfit
        return self.source.choice(names)

    def like(self, name: str) -> str:
        """A tensor that broadcasts with another."""
        shape = self.value(name).shape
        return self.any(lambda t: broadcasts(t.shape, shape))

    def axis(self, name: str) -> int:
        rank = self.value(name).dim()
        if rank == 0:
            raise Unfit
        return self.source.randrange(-rank, rank)

    def extent(self, name: str, axis: int) -> int:
        return min(world[name].shape[axis] for world, _ in self.worlds)

    def number(self, name: str = "") -> str:
        """A number, of sizes for some."""
        choice = self.source.random()
        if choice < 0.25:
            return self.size()
        if choice < 0.35:
            return self.truth()
        if name and not self.value(name).is_floating_point():
            return str(self.source.choice((0, 1, 2, 3)))
        return str(self.source.choice((0.5, 2, -1, 1.25, 3, True, -0.25, 0)))

    def size(self) -> str:
        name = self.any(lambda t: t.dim() > 0)
        axis = self.axis(name)
        simple = f"{name}.shape[{axis}]"
        return self.source.choice(
            (
                simple,
                simple,
                f"{name}.numel()",
                f"({simple} - 2)",
                f"({simple} // 2)",
                f"({simple} / 4)",
                f"{name}.dim()",
            )
        )

    def truth(self) -> str:
        name = self.any(lambda t: t.dim() > 0)
        relation = self.source.choice((">", "==", "<=", "!="))
        return f"({name}.shape[{self.axis(name)}] {relation} {self.source.randint(1, 6)})"

    def added_input(self, text: str) -> str:
        """Another argument, of the same shape for all sizes."""
        name = f"x{len(self.inputs)}"
        self._add(f"{name} = {text}", self.inputs)
        self.exact.add(name)
        return name

    def layer(self, text: str) -> str:
        """Another layer of the module."""
        name = f"self.layer{len(self.layers)}"
        self._add(f"{name} = filled({self.source.randrange(1000)}, {text})", self.layers)
        return name

    def _add(self, text: str, texts: list[str]) -> None:
        for names in (n for world in self.worlds for n in world):
            exec(text, names)
        texts.append(text)

    def dtype_name(self, name: str) -> str:
        dtype = self.value(name).dtype
        return next(text for text, each in DTYPES.items() if each == dtype)

    # --- statements ---

    def keeps(self, text: str, name: str, reads: Sequence[str] = (), is_exact: bool = False) -> bool:
        """Run a statement for all sizes; drop it where that fails."""
        before = {n: self.value(n)._version for n in self.tensors()}
        is_good = True
        for pair in self.worlds:
            for names, is_wide in zip(pair, (False, True), strict=True):
                try:
                    run_text(text, names, is_wide, self.autocasts and not is_wide)
                except Exception:  # noqa: BLE001 - whatever eager mode refuses is not written
                    is_good = False
        if is_good and all(self._is_sane(pair) for pair in self.worlds):
            self.statements.append(text)
            self.count += name in self.worlds[0][0]
            touched = {n for n in self.tensors() if before.get(n) != self.value(n)._version}
            for each in touched:
                is_sure = (
                    is_exact and all(r in self.exact for r in reads) and all(self._agrees(p, each) for p in self.worlds)
                )
                (self.exact.add if is_sure else self.exact.discard)(each)
            return True
        self.restart()
        return False

    def _is_sane(self, pair: tuple[Names, Names]) -> bool:
        for name, tensor in pair[0].items():
            if not is_tensor_name(name, tensor):
                continue
            wide = pair[1][name]
            if tensor.shape != wide.shape or tensor.numel() > MAX_ELEMENTS or tensor.dim() > 6:
                return False
            if tensor.is_floating_point() != wide.is_floating_point():
                return False
            if tensor.numel() and tensor.dtype != torch.bool:
                limit = wide.detach().abs().max()
                if not limit <= MAX_VALUE or not tensor.detach().double().isfinite().all():
                    return False
            if not tensor.is_floating_point() and not torch.equal(tensor.long(), wide.long()):
                return False
        return True

    def _agrees(self, pair: tuple[Names, Names], name: str) -> bool:
        return torch.equal(pair[0][name].detach().double(), pair[1][name].detach().double())

    def can_write(self, name: str, *reads: str) -> bool:
        """Whether elements of a tensor have memory of their own, none of which the others read."""
        for world in self.worlds:
            for names in world:
                target = names[name]
                if overlaps_itself(target):
                    return False
                for read in reads:
                    if read != name and _storage(names[read]) == _storage(target):
                        return False
        return True

    def target(self, *reads: str, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True) -> str:
        name = self.any(accepts)
        if not self.can_write(name, *reads):
            raise Unfit
        return name


class Unfit(Exception):
    """No tensor fits a statement."""


def run_text(text: str, names: Names, is_wide: bool, autocasts: bool) -> None:
    """Run statements in eager mode."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if is_wide else default)
    try:
        with torch.autocast(names["DEVICE"], torch.bfloat16, enabled=autocasts):
            exec(text, names)
    finally:
        torch.set_default_dtype(default)


def is_tensor_name(name: str, value: object) -> bool:
    """Whether a name of a world is a variable of the program."""
    return name[:1] in "xv" and name[1:].isdigit() and isinstance(value, torch.Tensor)


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether two elements have the same memory."""
    places = torch.zeros((), dtype=torch.int64)
    for extent, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = places.unsqueeze(-1) + torch.arange(extent) * stride
    return places.unique().numel() != tensor.numel()


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes broadcast."""
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))

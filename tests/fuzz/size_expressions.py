"""Random arithmetic of sizes under `torch.compile(dynamic=True)`, compared with eager mode.

    python -m tests.fuzz.size_expressions --count 200

A program computes numbers, truths and floats from the sizes of its argument, and uses them as fills, factors, bounds of
slices, conditions and results. It is compiled once and called with several sizes.
"""

from __future__ import annotations

import argparse
import math
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

Kind = Literal["int", "float", "bool"]

SIZES = ((9, 4), (4, 9), (11, 2), (5, 5), (2, 7))
"""Extents of the argument of the calls of one program, in order; the first must differ, or torch takes them as one."""

USES: dict[Kind, tuple[str, ...]] = {
    "int": (
        "x * {}",
        "x + {}",
        "torch.full((2,), {})",
        "x[{} % 3 :] * 2",
        "x[: {} % 4] * 2",
        "torch.scalar_tensor({})",
        "torch.ones({} % 5)",
        "{}",
    ),
    "float": ("x * {}", "x - {}", "torch.full((2,), {})", "x.masked_fill(x > 2, {})", "{}"),
    "bool": (
        "x * {}",
        "torch.full((2,), {})",
        "x.masked_fill(x > 2, {})",
        "torch.where(x > 2, {}, x)",
        "torch.scalar_tensor({})",
        "(x > 2) == {}",
        "torch.cond({}, lambda t: t + 1, lambda t: t - 1, (x,))",
        "{}",
    ),
}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A program that does something else than in eager mode. sizes: of the argument of the call."""

    seed: int
    text: str
    sizes: tuple[int, int]
    made: object
    expected: object


class _Writer:
    """Writes expressions over the sizes `a` and `b`, which are at least 2."""

    def __init__(self, source: random.Random) -> None:
        self.source = source

    def expression(self, kind: Kind, depth: int) -> str:
        return str(getattr(self, f"_{kind}")(depth))

    def _constant(self) -> int:
        return self.source.choice((1, 2, 3, 4, 5, 7, 10))

    def _int(self, depth: int) -> str:
        if depth == 0:
            return self.source.choice("ab")
        left = self._int(depth - 1)
        right = self.source.choice((str(self._constant()), self._int(depth - 1)))
        divisor = self.source.choice((str(self._constant()), "a", "b", "(a + b)"))
        return self.source.choice(
            (
                f"({left} + {right})",
                f"({left} - {right})",
                f"({left} * {right})",
                f"({left} // {divisor})",
                f"({left} % {divisor})",
                f"torch.sym_max({left}, {right})",
                f"torch.sym_min({left}, {right})",
                f"torch.sym_ite({self._bool(depth - 1)}, {left}, {self._int(depth - 1)})",
                f"math.floor({self._float(depth - 1)})",
                f"math.ceil({self._float(depth - 1)})",
                f"int({self._float(depth - 1)})",
            )
        )

    def _float(self, depth: int) -> str:
        if depth == 0:
            return self.source.choice((f"torch.sym_float({self._int(0)})", f"({self._int(0)} / {self._constant()})"))
        left, number = self._float(depth - 1), self.source.choice((0.1, 0.5, 0.7, 1.5, 3.0))
        return self.source.choice(
            (
                f"({left} + {self._float(depth - 1)})",
                f"({left} - {number})",
                f"({left} * {number})",
                f"({left} / {self._constant()})",
                f"({self._int(depth - 1)} * {number})",
                f"(a ** 0.5 + {left})",
                f"torch.sym_max({left}, {self._float(depth - 1)})",
                f"torch.sym_ite({self._bool(depth - 1)}, {left}, {self._float(depth - 1)})",
            )
        )

    def _bool(self, depth: int) -> str:
        relation = self.source.choice(("<", "<=", "==", "!=", ">", ">="))
        inner = max(depth - 1, 0)
        if depth == 0 or self.source.random() < 0.5:
            left = self._int(inner)
            return f"({left} {relation} {self.source.choice((str(self._constant()), self._int(inner)))})"
        return self.source.choice(
            (
                f"({self._float(inner)} {relation} {self.source.choice(('2.5', '3.0', self._float(inner)))})",
                f"({self._bool(inner)} & {self._bool(inner)})",
                f"({self._bool(inner)} | {self._bool(inner)})",
                f"torch.sym_not({self._bool(inner)})",
            )
        )


def program(seed: int, uses: int = 6) -> tuple[str, Callable[[torch.Tensor], Any]]:
    """The program of a seed, as text and as a function."""
    source = random.Random(seed)
    writer = _Writer(source)
    items = []
    for _ in range(uses):
        kind: Kind = source.choice(("int", "float", "bool", "bool"))
        items.append(source.choice(USES[kind]).format(writer.expression(kind, source.randint(1, 3))))
    text = "def function(x):\n    a, b = x.shape\n    return (\n"
    text += "".join(f"        {item},\n" for item in items) + "    )\n"
    names: dict[str, Any] = {"torch": torch, "math": math}
    exec(text, names)
    return text, names["function"]


def mismatches(seeds: Sequence[int]) -> Iterator[Mismatch]:
    """What hidet does wrong, of what torch itself can trace."""
    for seed in seeds:
        text, function = program(seed)
        found = _compared(function, "hidet")
        if found is not None and _compared(function, "aot_eager") is None:
            yield Mismatch(seed, text, *found)


def _compared(function: Callable[[torch.Tensor], Any], backend: str) -> tuple[tuple[int, int], object, object] | None:
    """The first call whose outcome differs from eager mode's; None where none does."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for sizes in SIZES:
        x = torch.arange(float(sizes[0] * sizes[1])).reshape(sizes)
        expected, made = _outcome(function, x), _outcome(compiled, x)
        if not _agree(made, expected):
            return sizes, made, expected
    return None


def _outcome(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(x)
    except Exception as error:  # noqa: BLE001 - compared with that of the other
        return error


def _agree(made: object, expected: object) -> bool:
    if isinstance(expected, Exception):
        return isinstance(made, Exception)
    if isinstance(expected, tuple | list):
        return isinstance(made, tuple | list) and all(map(_agree, made, expected))
    if isinstance(expected, torch.Tensor):
        is_like = isinstance(made, torch.Tensor) and made.dtype == expected.dtype and made.shape == expected.shape
        return is_like and torch.allclose(made, expected, rtol=1e-6, atol=0, equal_nan=True)  # type: ignore[arg-type]
    return type(made) is type(expected) and (
        math.isclose(made, expected, rel_tol=1e-15) if isinstance(expected, float) else made == expected  # type: ignore[arg-type]
    )


def main() -> None:
    """Print what is wrong, and how many programs were compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    wrong = 0
    for found in mismatches(range(arguments.first, arguments.first + arguments.count)):
        wrong += 1
        print(f"seed {found.seed}, sizes {found.sizes}\n{found.text}made     {found.made}\nexpected {found.expected}\n")
    print(f"{arguments.count} programs, {wrong} wrong")


if __name__ == "__main__":
    main()

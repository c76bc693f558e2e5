"""Everything that can be seen of one run of a program: results, gradients, and what became of the inputs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy

import torch
from hidet.torch import compat
from hidet.torch.suite.programs import Compile, Program
from torch.overrides import TorchFunctionMode

_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_COMPLEX = {torch.complex32, torch.complex64, torch.complex128}


class NotDifferentiableError(Exception):
    """No result of a program depends on an input that has a gradient."""


def observe(
    program: Program,
    compile_with: Compile,
    *,
    backward: bool,
    dtype: torch.dtype | None = None,
    integers: bool = False,
    seed: int = 0,
) -> list[Any]:
    """Run a program on copies of its inputs. dtype: that all floating-point numbers are
    converted to, float32 or float64; None leaves them as they are. integers: whether int64 is converted as well.
    seed: of random operators.

    The results in order; with `backward` the gradients of a weighted sum of them; without it the tensors among
    the inputs, as the program left them. NotDifferentiableError where there is no gradient; else what it raises.
    """
    kinds = _FLOATS | {torch.int64} if integers else _FLOATS
    given = compat.map_leaves(_copied if dtype is None else partial(_converted, dtype, kinds), program.inputs)
    with _default_dtype(dtype or torch.float32), torch.set_grad_enabled(backward):
        _seed(seed)
        results, wanted = program.run(compile_with, given, dtype)
        found = compat.leaves(results)
        if not backward:
            return [*map(_detached, found), *(leaf for leaf in compat.leaves(given) if isinstance(leaf, torch.Tensor))]
        made = [leaf for leaf in found if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if not made or not wanted:
            raise NotDifferentiableError
        weights = [_weights(leaf, number, program.seed) for number, leaf in enumerate(made)]
        gradients = torch.autograd.grad(made, wanted, weights, allow_unused=True)
        return [*map(_detached, found), *gradients]


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def _weights(result: torch.Tensor, number: int, seed: int) -> torch.Tensor:
    """What a result is multiplied by: the same numbers in every dtype, which bfloat16 can hold."""
    generator = torch.Generator().manual_seed(1000 * seed + number)
    values = torch.randint(-64, 64, result.shape, generator=generator) / 64.0
    return values.to(result.dtype)


def _copied(leaf: Any) -> Any:
    """A tensor with memory of its own and the same strides; whether it has a gradient stays."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    with torch.no_grad():
        if leaf.layout is not torch.strided or leaf.is_quantized or leaf.is_conj() or leaf.is_neg():
            made = leaf.detach().clone()
        else:
            storage: Any = leaf.detach().untyped_storage()
            made = leaf.new_empty(0).set_(storage.clone(), leaf.storage_offset(), leaf.shape, leaf.stride())
    return made.requires_grad_(leaf.requires_grad)


def _converted(dtype: torch.dtype, kinds: Set[torch.dtype], leaf: Any) -> Any:
    if isinstance(leaf, torch.dtype):
        return dtype if leaf in kinds else dtype.to_complex() if leaf in _COMPLEX else leaf
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().to(_converted(dtype, kinds, leaf.dtype), copy=True).requires_grad_(leaf.requires_grad)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def filling_new_memory() -> Iterator[None]:
    """A context in which eager mode fills memory that operators return as they get it: with NaN, the largest number of
    a type, or True."""
    settings: Any = torch.utils.deterministic
    before = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    settings.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        settings.fill_uninitialized_memory = before


class ClearingNewMemory(TorchFunctionMode):
    """While it is active, eager mode clears memory that functions return as they get it. Of a truth value two fillings
    are needed to tell it from one that was written."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """What `func` gives, or zeros where nothing has written it."""
        made = func(*args, **(kwargs or {}))
        if func in _FRESH:
            with torch.no_grad():
                made.zero_()
        return made


_FRESH = {
    *(torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted),
    *(torch.Tensor.new_empty, torch.Tensor.new_empty_strided),
}


def draws(program: Program, *, backward: bool) -> bool:
    """Whether a program, in eager mode, takes numbers from a generator that `observe` seeds."""
    observe(program, lambda function: function, backward=backward)
    after = _generators()
    _seed(0)
    return after != _generators()


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    random.seed(seed)


def _generators() -> tuple[Any, ...]:
    state: Any = numpy.random.get_state()
    kind, keys, *rest = state
    return bytes(torch.get_rng_state().tolist()), kind, bytes(keys), *rest, random.getstate()

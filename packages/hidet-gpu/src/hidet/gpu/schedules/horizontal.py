"""Kernels of the same code in one launch (horizontal fusion): each has a range of the blocks.

What small kernels cost is their launches, a few microseconds each however little they do.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.gpu.intrinsics import intrinsic_call
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Call, Expr, Var
from hidet.ir.func import Function
from hidet.ir.node import IRNode
from hidet.ir.structural import structural_hash
from hidet.ir.visit import rewrite

_MOST = 64
"""Kernels of one launch: a block looks for its own in six steps."""
_MOST_PARAMETERS = 500
"""Of 8 bytes in the 4 KiB that a launch passes (CUDA C++ Programming Guide, section on kernel parameters)."""
_BLOCK = "gpu.block_idx.x"


@dataclass(frozen=True, slots=True, eq=False)
class ItemKernel:
    """A kernel that computes an item a thread, and what it is called with.

    pointers, sizes: arguments for its parameters, in this order. items: how many it computes.
    """

    function: Function
    pointers: tuple[Expr, ...]
    sizes: tuple[Dim, ...]
    items: Dim


def by_code(kernels: Sequence[ItemKernel]) -> list[list[ItemKernel]]:
    """Kernels that run the same code, as many in a list as one launch takes."""
    found: dict[Hashable, list[list[ItemKernel]]] = {}
    for kernel in kernels:
        function = kernel.function
        key = (structural_hash(function.params, function.body), function.attributes)
        lists = found.setdefault(key, [[]])
        if len(lists[-1]) == min(_MOST, max(_MOST_PARAMETERS // (len(function.params) + 1), 1)):
            lists.append([])
        lists[-1].append(kernel)
    return [each for lists in found.values() for each in lists]


def fused(kernels: Sequence[ItemKernel], name: str, threads: int) -> tuple[ItemKernel, Dim]:
    """One kernel that does what several of the same code do, and how many blocks of `threads` it takes.

    A block finds which of them it is of by halving, and takes the arguments of that one. What all are called with is a
    parameter once.
    """
    first = kernels[0]
    merged = _Parameters(kernels)
    k = IRBuilder()
    block = k.let("block", build.cast(intrinsic_call(_BLOCK), dtypes.i64))
    before = Var("before", dtypes.i64)
    for var in (before, *merged.differing):
        k.declare(var)
    ends = [build.size_var(f"end{number}") for number in range(len(kernels))]

    def choose(start: int, stop: int) -> None:
        if stop - start == 1:
            k.assign_each(merged.differing, merged.own[start])
            k.assign(before, ends[start - 1] if start else build.index(0))
            return
        middle = (start + stop) // 2
        with k.if_(block < ends[middle - 1]):
            choose(start, middle)
        with k.else_():
            choose(middle, stop)

    choose(0, len(kernels))
    mine = k.let("mine", build.cast(block - before, dtypes.i32))

    def change(node: IRNode) -> IRNode | None:
        return mine if isinstance(node, Call) and node.callee == _BLOCK else None

    k.emit(rewrite(first.function.body, change))
    blocks: list[Dim] = [0]
    for kernel in kernels:
        blocks.append(blocks[-1] + dims.ceildiv(kernel.items, threads))
    params = (*merged.pointer_params, *merged.size_params, *ends)
    function = Function(name, params, k.body, kind="kernel", attributes=first.function.attributes)
    sizes = (*merged.sizes, *blocks[1:])
    return ItemKernel(function, tuple(merged.pointers), sizes, blocks[-1] * threads), blocks[-1]


class _Parameters:
    """The parameters of kernels of the same code as those of one.

    differing: parameters of the first one that the others are given something else for; own: what takes their place,
    for each kernel.
    """

    def __init__(self, kernels: Sequence[ItemKernel]) -> None:
        self.differing: list[Var] = []
        self.own: list[list[Var]] = [[] for _ in kernels]
        self.pointer_params: list[Var] = []
        self.pointers: list[Expr] = []
        self.size_params: list[Var] = []
        self.sizes: list[Dim] = []
        params = kernels[0].function.params
        count = len(kernels[0].pointers)
        for number, param in enumerate(params[:count]):
            self._differ(param, self.pointer_params)
            self.pointers += [kernel.pointers[number] for kernel in kernels]
        for number, param in enumerate(params[count:]):
            given = [kernel.sizes[number] for kernel in kernels]
            if all(dims.prove_equal(each, given[0]) is True for each in given):
                self.size_params.append(param)
                self.sizes.append(given[0])
            else:
                self._differ(param, self.size_params)
                self.sizes += given

    def _differ(self, param: Var, params: list[Var]) -> None:
        self.differing.append(param)
        for number, variables in enumerate(self.own):
            variables.append(Var(f"{param.name}_{number}", param.type))
            params.append(variables[-1])

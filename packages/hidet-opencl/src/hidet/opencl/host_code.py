"""Host functions of a module as thread IR that a CPU target compiles: launches become calls of OpenCL.

Every host function takes the launch context first: words of the queue, OpenCL's first error, the kernel that failed and
what its launch asked for, and where kernels note failed assertions. Once there is an error nothing more is launched.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.gpu.host_functions import (
    as_word,
    device_functions,
    is_called_by_python,
    replace_arguments,
    three_extents,
    words_on_stack,
)
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Call, Const, Expr, Var
from hidet.ir.func import FINISHES, SYMBOL, Function, Module
from hidet.ir.node import IRNode
from hidet.ir.types import BufferType, PointerType
from hidet.ir.visit import asserts_reach_host, rewrite
from hidet.opencl.codegen.dialect import uses_dynamic_memory

SET_VALUE, SET_POINTER, LAUNCH = "clSetKernelArg", "clSetKernelArgSVMPointer", "clEnqueueNDRangeKernel"
FUNCTIONS = (SET_VALUE, SET_POINTER, LAUNCH)
"""What host code calls of OpenCL."""

CELL = "hidet_kernel_"
"""Begins the name of the two cells in which the loader leaves the handle of a kernel, and the number before that of its
module's first assertion."""

QUEUE, ERROR, FAILED, FAILURE, ASKED = range(5)
"""Words of the launch context; from ASKED on extents of the grid and of a block of the launch that failed."""
CONTEXT_WORDS = ASKED + 6

_WORD = dtypes.i64
_NULL = Const(0, _WORD)


def host_module(module: Module, asserting: frozenset[str]) -> Module | None:
    """The host functions of `module` for a CPU target; None when it has none.

    asserting: kernels that take words for failed assertions besides.
    """
    kernels = {f.name: f for f in module.functions if f.kind == "kernel"}
    asserts = functools.cache(lambda: asserts_reach_host(module, kernel_asserts_reach_host=False))
    hosts = [_Host(f, kernels, asserting) for f in module.functions if f.kind == "host"]
    host = tuple(function for maker in hosts for function in maker.functions(asserts()))
    if not host:
        return None
    called = device_functions(module, host)
    defined = {f.name for f in (*host, *called)}
    externals = tuple(name for name in module.externals if name not in defined)
    entry = module.entry if module.entry in defined else host[0].name
    return Module((*called, *host), entry, externals)


class _Host:
    def __init__(self, function: Function, kernels: Mapping[str, Function], asserting: frozenset[str]) -> None:
        self.original = function
        self.kernels = kernels
        self.asserting = asserting
        self.context = Var("context", PointerType(_WORD))

    def functions(self, asserts: bool) -> tuple[Function, ...]:
        """The function, and the one around it that Python calls where this one may end early."""

        def change(node: IRNode) -> IRNode | None:
            if isinstance(node, s.Launch):
                return self._launch(node)
            if isinstance(node, s.Invoke):
                return replace_arguments(node, (self.context, *node.arguments))
            return None

        body = rewrite(self.original.body, change)
        function = replace(self.original, params=(self.context, *self.original.params), body=body)
        if not asserts or not is_called_by_python(self.original):
            return (function,)
        inner = Function(f"{self.original.name}.inner", function.params, body, "host")
        context, table = (Var(var.name, var.type) for var in function.params)
        call = s.Invoke(inner.name, (context, table))
        attributes = (*self.original.attributes, FINISHES)
        return inner, replace(self.original, params=(context, table), body=call, attributes=attributes)

    def _launch(self, node: s.Launch) -> s.Stmt:
        if not node.block:
            raise CodegenError(
                f"kernel {node.kernel} is launched without threads", hint="run the pass gpu-block-launches before"
            )
        if node.cluster or node.is_cooperative:
            raise CodegenError(
                f"kernel {node.kernel} is launched as a cluster or cooperatively, which OpenCL does not have"
            )
        grid, block = three_extents(node.grid), three_extents(node.block)
        cell = Call(SYMBOL + CELL + node.kernel, (), _WORD)
        cells = Bitcast(cell, PointerType(_WORD))
        handle, status = Var("handle", _WORD), Var("status", dtypes.i32)
        stmts: list[s.Stmt] = [
            s.Declare(handle, build.load(cells, 0)),
            s.Declare(status, Const(0, dtypes.i32)),
            *self._arguments(node, handle, status, cells),
        ]
        sizes, threads = Var("threads", words_on_stack(3)), Var("block", words_on_stack(3))
        for array, extents in ((sizes, [a * b for a, b in zip(grid, block, strict=True)]), (threads, block)):
            stmts.append(s.Declare(array))
            stmts += [s.Store(array, (build.index(n),), extent) for n, extent in enumerate(extents)]
        queue = build.load(self.context, QUEUE)
        none = Const(0, dtypes.u32)
        enqueue = (handle, Const(3, dtypes.u32), _NULL, _at(sizes), _at(threads), none, _NULL, _NULL)
        launch = s.Assign(status, Call(LAUNCH, (queue, *enqueue), dtypes.i32))
        noted = [
            s.Store(self.context, (build.index(ERROR),), build.cast(status, _WORD)),
            s.Store(self.context, (build.index(FAILED),), cell),
            *(s.Store(self.context, (build.index(n),), value) for n, value in enumerate((*grid, *block), ASKED)),
        ]
        stmts += [
            s.If(build.binary("eq", status, 0), launch),
            s.If(build.binary("ne", status, 0), build.seq(noted)),
        ]
        blocks = grid[0] * grid[1] * grid[2]
        nothing_failed = build.equal(build.load(self.context, ERROR), 0)
        return s.If(blocks > 0, s.If(nothing_failed, build.seq(stmts)))

    def _arguments(self, node: s.Launch, handle: Var, status: Var, cells: Expr) -> list[s.Stmt]:
        """Give a kernel its arguments. `status` is not zero where one of them was refused."""
        kernel = self.kernels.get(node.kernel)
        given: list[Expr] = list(node.arguments)
        if node.kernel in self.asserting:
            given += [
                Bitcast(build.load(self.context, FAILURE), PointerType(dtypes.i32)),
                build.cast(build.load(cells, 1), dtypes.i32),
            ]
        values = Var("values", words_on_stack(max(len(given), 1)))
        stmts: list[s.Stmt] = [s.Declare(values)]

        def note(call: Call) -> None:
            stmts.append(s.Assign(status, build.binary("or", status, call)))

        for number, argument in enumerate(given):
            place = Const(number, dtypes.u32)
            word = as_word(argument)
            if isinstance(argument.type, PointerType | BufferType):
                note(Call(SET_POINTER, (handle, place, word), dtypes.i32))
                continue
            stmts.append(s.Store(values, (build.index(number),), word))
            assert isinstance(argument.type, DType)
            param = argument.type if kernel is None or number >= len(kernel.params) else kernel.params[number].type
            nbytes = Const(param.nbytes if isinstance(param, DType) else argument.type.nbytes, _WORD)
            value = Bitcast(build.address(values, number), _WORD)
            note(Call(SET_VALUE, (handle, place, nbytes, value), dtypes.i32))
        if kernel is not None and uses_dynamic_memory(kernel):
            # Memory of no bytes is none that a kernel could have.
            asked = build.index(1) if node.shared_bytes is None else build.maximum(node.shared_bytes, 1)
            note(Call(SET_VALUE, (handle, Const(len(given), dtypes.u32), asked, _NULL), dtypes.i32))
        return stmts


def _at(array: Var) -> Expr:
    return Bitcast(build.address(array, 0), _WORD)

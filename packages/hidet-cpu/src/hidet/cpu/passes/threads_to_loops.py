"""Kernels written for blocks of threads, on a CPU: the threads of a block run one after the other.

That is right for kernels whose threads do not wait for each other and use nothing of a GPU but their indices. Others
are refused with the operation that a CPU lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from hidet import dtypes
from hidet.cpu.codegen.intrinsics import spelling_of
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Call, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.ir.types import BufferType, PointerType
from hidet.ir.visit import located_calls, rewrite, statements

if TYPE_CHECKING:
    from hidet.context import CompileContext

_AXES = "xyz"
_PLACES = ("thread_idx", "block_dim", "block_idx", "grid_dim")
INDICES = tuple(f"gpu.{name}.{axis}" for name in _PLACES for axis in _AXES)
"""What a kernel may ask of a GPU and still run here."""


@dataclass(frozen=True, slots=True)
class ThreadsToLoops:
    """Launches with blocks become launches over the grid alone; see the top of this file."""

    name: ClassVar[str] = "threads-to-loops"

    def run(self, module: Module, ctx: CompileContext) -> Module:
        """The module; itself when none of its kernels is launched with a block. CodegenError for a kernel that uses
        more of a GPU than indices."""
        hosts = [function for function in module.functions if function.kind == "host"]
        launches = [n for f in hosts for n in statements(f.body) if isinstance(n, s.Launch) and n.block]
        if not launches:
            return module
        functions = {function.name: function for function in module.functions}
        launched = {launch.kernel for launch in launches}
        known = [name for name in launched if name in functions]
        for name in known:
            _check_operations(functions, name)
        kernels = {name: functions[name] for name in known}
        made: list[Function] = []
        for function in module.functions:
            if function.name in kernels:
                made += _looping(function)
            else:
                made.append(replace(function, body=rewrite(function.body, lambda n: _relaunched(n, kernels))))
        return Module(tuple(made), module.entry, module.externals)


def _check_operations(functions: Mapping[str, Function], name: str) -> None:
    """CodegenError for a kernel that uses more of a GPU than indices, or calls what uses even these."""
    calls = list(located_calls(functions[name].body))
    called = dict.fromkeys(call.callee for call, _ in calls if call.callee in functions)
    inner = [pair for callee in called for pair in located_calls(functions[callee].body)]
    for call, loc in [*(pair for pair in calls if pair[0].callee not in INDICES), *inner]:
        if call.intrinsic is not None and spelling_of(call.intrinsic) is None:
            raise CodegenError(
                f"{call.callee} is an intrinsic of {call.intrinsic.family.name}, which a CPU does not have",
                loc=loc,
                hint="run_module (hidet.ir.interpret) simulates a GPU",
            )


def _looping(function: Function) -> list[Function]:
    """What one thread does as a function, and the kernel that runs it for every thread of a block.

    The kernel gets addresses as numbers: tensors of a user may overlap, which pointers of kernels must not.
    """
    indices = {name: Var(name.partition(".")[2].replace(".", "_"), dtypes.i32) for name in INDICES}
    body = rewrite(function.body, lambda n: indices.get(n.callee) if isinstance(n, Call) else None)
    one = Function(f"{function.name}.thread", (*function.params, *indices.values()), body)
    numbers = tuple(Var(v.name, dtypes.i64 if _is_memory(v) else v.type) for v in function.params)
    block, grid = (tuple(Var(f"{what}_{axis}", dtypes.i64) for axis in _AXES) for what in ("block", "grid"))
    threads = tuple(Var(f"thread_{axis}", dtypes.i64) for axis in _AXES)
    blocks = tuple(Var(f"block_index_{axis}", dtypes.i64) for axis in _AXES)
    places = tuple(build.cast(var, dtypes.i32) for var in (*threads, *block, *blocks, *grid))
    given = tuple(_as_given(v, number) for v, number in zip(function.params, numbers, strict=True))
    call = Call(one.name, (*given, *places), None)  # type: ignore[arg-type]  # it gives no value
    loops: s.Stmt = s.Evaluate(call)
    for var, extent in zip(threads, block, strict=True):
        loops = s.For(var, build.index(0), extent, loops)
    kernel = Function(function.name, (*numbers, *block, *grid), loops, "kernel", tuple(reversed(blocks)))
    return [one, kernel]


def _is_memory(var: Var) -> bool:
    return isinstance(var.type, PointerType | BufferType)


def _as_given(var: Var, number: Var) -> Expr:
    type_ = var.type
    if isinstance(type_, PointerType | BufferType):
        return Bitcast(number, PointerType(type_.dtype, type_.space))
    return number


def _relaunched(node: IRNode, kernels: Mapping[str, Function]) -> IRNode | None:
    if not isinstance(node, s.Launch) or node.kernel not in kernels:
        return None
    arguments = (Bitcast(a, dtypes.i64) if isinstance(a.type, PointerType | BufferType) else a for a in node.arguments)
    block, grid = _three(node.block), _three(node.grid)
    return s.Launch(node.kernel, tuple(reversed(grid)), (*arguments, *block, *grid), node.cost, loc=node.loc)


def _three(extents: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return (*extents, *(build.index(1) for _ in _AXES[len(extents) :]))

"""Every hardware operation is spelled, and what is spelled compiles for every architecture that has it."""

from __future__ import annotations

import pytest

from hidet import dtypes
from hidet.cuda.codegen.hardware.builtin import BUILTINS
from hidet.cuda.codegen.hardware.ptx import unknown_names
from hidet.cuda.codegen.hardware.table import spelling_of
from hidet.cuda.codegen.module import emit_module
from hidet.cuda.intrinsics import GROUPS, INTRINSICS, PLAIN, intrinsic_call
from hidet.cuda.nvrtc import compile_cubin
from hidet.errors import CodegenError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.intrinsic import Immediate, Intrinsic, Parameter, Value
from hidet.ir.types import BufferType, PointerType, element_dtype, with_lanes

ARCHITECTURES = ((80, "sm_80"), (89, "sm_89"), (90, "sm_90a"))
# Compiling all widths of the same instruction would show nothing new.
WGMMA_COLUMNS = (8, 64, 256)


def choices(row: Intrinsic) -> list[dtypes.DType | None]:
    """The element types to try: those of the first parameter that has several."""
    several = (p for p in row.parameters if not isinstance(p, Immediate) and len(p.dtypes) > 1)
    first = next(several, None)
    return [None] if first is None or isinstance(first, Immediate) else list(first.dtypes)


def argument(parameter: Parameter, dtype: dtypes.DType | None, params: list[Var], local: list[s.Stmt]) -> Expr:
    if isinstance(parameter, Immediate):
        return Const(parameter.least, dtypes.i32)
    own = parameter.dtypes[0] if parameter.dtypes else dtypes.f32
    own = dtype if dtype is not None and (dtype in parameter.dtypes or not parameter.dtypes) else own
    if isinstance(parameter, Value):
        var = Var(parameter.name, with_lanes(own, parameter.lanes[0]))
    elif parameter.spaces[0] == "global":
        var = Var(parameter.name, PointerType(own))
    else:
        count = max(parameter.nbytes // own.nbytes, 4)
        var = Var(parameter.name, BufferType(own, (build.index(count),), space=parameter.spaces[0]))
    is_local = isinstance(var.type, BufferType) and var.type.space != "constant"
    if is_local:
        local.append(s.Declare(var))
    else:
        params.append(var)
    return var


def kernel(number: int, row: Intrinsic, dtype: dtypes.DType | None) -> Function:
    params: list[Var] = []
    body: list[s.Stmt] = []
    call = intrinsic_call(row.name, *[argument(p, dtype, params, body) for p in row.parameters])
    if call.type is None:
        body.append(s.Evaluate(call))
    elif isinstance(call.type, PointerType):
        body.append(s.Store(call, (build.index(0),), build.const(1, call.type.dtype)))
    else:
        output = Var("output", PointerType(element_dtype(call.type)))
        params.append(output)
        body.append(s.Store(output, (build.index(0),), call))
    return Function(f"k{number}_{row.name.replace('.', '_')}", tuple(params), build.seq(body), kind="kernel")


def module(rows: list[tuple[Intrinsic, dtypes.DType | None]]) -> Module:
    kernels = [kernel(number, row, dtype) for number, (row, dtype) in enumerate(rows)]
    launches = [s.Launch(k.name, (build.index(1),), k.params, block=(build.index(128),)) for k in kernels]
    entry = Function("entry", (), build.seq(launches), kind="host")
    return Module((*kernels, entry), "entry")


def test_every_intrinsic_is_spelled() -> None:
    assert [name for name, row in INTRINSICS.items() if spelling_of(row) is None] == []


def test_nothing_else_is_spelled() -> None:
    assert unknown_names() == []
    assert [name for name in BUILTINS if name not in PLAIN] == []


@pytest.mark.parametrize("family", GROUPS)
@pytest.mark.parametrize(("arch", "name"), ARCHITECTURES)
def test_a_family_compiles_without_spills(family, arch, name) -> None:
    rows = [
        (row, dtype)
        for row in GROUPS[family].values()
        if row.arch <= arch
        and not (row.group == "wgmma" and row.matrix is not None and row.matrix.n not in WGMMA_COLUMNS)
        for dtype in choices(row)
    ]
    if not rows:
        pytest.skip(f"sm_{arch} has none of them")
    cubin = compile_cubin(emit_module(module(rows), arch), name)
    assert [kernel for kernel, usage in cubin.usage.items() if usage.spill_bytes] == []
    assert len(cubin.usage) == len(rows)


def test_an_operation_that_the_architecture_lacks_is_refused_by_name() -> None:
    row = INTRINSICS["cuda.wgmma_fence"]
    with pytest.raises(CodegenError, match=r"cuda.wgmma_fence, which needs sm_90a; this device is sm_80"):
        emit_module(module([(row, None)]), 80)

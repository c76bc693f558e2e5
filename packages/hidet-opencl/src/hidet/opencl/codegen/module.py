"""The kernels and device functions of a module as one source in OpenCL C."""

from __future__ import annotations

from dataclasses import replace

from hidet.gpu.codegen.names import function_names
from hidet.gpu.codegen.source import KernelSource, emit_source
from hidet.ir.expr import Call, Const
from hidet.ir.func import Module
from hidet.ir.stmt import Launch
from hidet.ir.visit import walk
from hidet.opencl.codegen.dialect import dialect_for
from hidet.opencl.codegen.intrinsics import NEEDS_BLOCKS, NEEDS_WARPS
from hidet.opencl.codegen.pieces import HEADER, PIECES
from hidet.opencl.codegen.reserved import RESERVED
from hidet.opencl.codegen.warps import Warps


def emit_module(module: Module, warps: Warps) -> KernelSource:
    """The device code of a module whose kernels have no assertions (`hidet.opencl.codegen.assertions`).

    warps: how the device has them. CodegenError names what OpenCL cannot express.
    """
    names = function_names(module.functions, RESERVED)
    blocks = {names[name]: block for name, block in _blocks(module).items() if name in names}
    called = {
        node.callee
        for function in module.functions
        if function.kind != "host"
        for node in walk(function.body)
        if isinstance(node, Call)
    }
    has_warps = not NEEDS_WARPS.isdisjoint(called)
    source = emit_source(module, dialect_for(blocks, warps.attribute if has_warps else ""))
    header = HEADER + (warps.text if has_warps else "") + ("" if NEEDS_BLOCKS.isdisjoint(called) else warps.block)
    if "inverse_erf(" in source.text:
        header += PIECES["inverse_erf"].text + "\n"
    before = header.count("\n")
    return replace(source, text=header + source.text, locs={row + before: loc for row, loc in source.locs.items()})


def _blocks(module: Module) -> dict[str, tuple[int, int, int]]:
    """The threads of a block along each axis, of kernels whose launches agree on constants."""
    found: dict[str, tuple[int, int, int] | None] = {}
    for function in module.functions:
        if function.kind != "host":
            continue
        for node in walk(function.body):
            if isinstance(node, Launch):
                extents = [int(n.value) for n in node.block if isinstance(n, Const)]  # type: ignore[arg-type]  # extents
                is_known = len(extents) == len(node.block)
                block = (*extents, *[1] * (3 - len(extents))) if is_known else None
                known = found.setdefault(node.kernel, block)  # type: ignore[arg-type]  # three numbers
                if known != block:
                    found[node.kernel] = None
    return {name: block for name, block in found.items() if block is not None}

"""Programs as the source that a target's compiler gets, and compiled."""

from __future__ import annotations

from hidet.compiler.modules import build_ir_module
from hidet.errors import CompileError as CompilationFailed
from hidet.ir.func import Module


def codegen(ir_module: Module, src_out_path: str | None = None, target: str = "auto") -> str:
    """The source of a module for a target: LLVM IR, or CUDA C++ ("cuda:sm_90a" needs no GPU). src_out_path: a file to
    write it into as well."""
    source = build_ir_module(ir_module, target).source()
    if src_out_path is not None:
        with open(src_out_path, "w") as file:
            file.write(source)
    return source


__all__ = ["CompilationFailed", "build_ir_module", "codegen"]

"""The kernels and device functions of a module as one CUDA C++ source."""

from __future__ import annotations

from hidet.cuda.codegen.dialect import CUDA_CPP
from hidet.errors import CodegenError
from hidet.gpu.codegen.source import KernelSource, emit_source
from hidet.ir.func import Function, Module
from hidet.ir.visit import located_calls


def emit_module(module: Module, arch: int) -> KernelSource:
    """The device code of `module` for compute capability `arch` / 10; host functions are left out.

    CodegenError names what the architecture or CUDA cannot express.
    """
    for function in module.functions:
        if function.kind != "host":
            check_architecture(function, arch)
    return emit_source(module, CUDA_CPP)


def check_architecture(function: Function, arch: int) -> None:
    """CodegenError for the first intrinsic of `function` that the architecture does not have."""
    for call, loc in located_calls(function.body):
        row = call.intrinsic
        if row is None:
            continue
        if row.arch > arch or (row.is_arch_specific and arch // 10 != row.arch // 10):
            suffix = "a" if row.is_arch_specific else ""
            raise CodegenError(
                f"{function.name} uses {row.name}, which needs sm_{row.arch}{suffix}; this device is sm_{arch}",
                loc=loc,
            )

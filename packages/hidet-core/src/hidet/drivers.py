"""Compiling modules of thread IR, such as scripts become, into functions that Python calls."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hidet.context import CompileContext, Options, make_context
from hidet.driver import compile_modules
from hidet.ir.func import Module
from hidet.ir.stmt import Launch, Print
from hidet.ir.structural import structural_hash
from hidet.ir.table_entry import callable_functions, with_table_entries
from hidet.ir.verify import verify_module
from hidet.ir.visit import walk
from hidet.ir.written import written_parameters
from hidet.passes.manager import run_program_passes
from hidet.runtime.module import CompiledFunction, CompiledModule
from hidet.runtime.parameters import signature_of
from hidet.schedule.units import CompileUnit


def build_ir_module(
    module: Module, target: str = "auto", options: Options | Mapping[str, Any] | None = None
) -> CompiledModule:
    """Compile a module whose functions are called with tensors and numbers; machine code is cached on disk.

    target: "auto" is "cuda" where a kernel is launched with blocks of threads, else "cpu". Raises VerifyError for a
    module that breaks a rule of the thread IR, and the errors of the target for what it cannot do.
    """
    return compile_module(module, make_context(_target_of(module) if target == "auto" else target, options))


def compile_module(module: Module, ctx: CompileContext) -> CompiledModule:
    """As `build_ir_module`, in a context."""
    verify_module(module)
    signatures = [signature_of(f, written_parameters(module)[f.name]) for f in callable_functions(module)]
    complete, entries = with_table_entries(module)
    name = complete.entry
    binaries, _ = compile_modules({name: CompileUnit(complete, structural_hash(complete), effort=3)}, ctx)
    code = ctx.target.load(binaries, ctx.cache)
    prints = any(isinstance(node, Print) for function in module.functions for node in walk(function.body))
    memory = ctx.target.memory
    device = "cpu" if memory is None else memory.name
    functions = {
        signature.function: CompiledFunction(
            signature, code.function(entries[signature.function], ctx.options.threads), device, prints
        )
        for signature in signatures
    }
    usage = {name: found for binary in binaries for name, found in ctx.target.usage(binary).items()}
    source = partial(_source, complete, ctx)
    return CompiledModule(module, functions, source, usage, code)


def _source(module: Module, ctx: CompileContext) -> str:
    return ctx.target.source(run_program_passes(module, ctx))


def _target_of(module: Module) -> str:
    launches = (node for function in module.functions for node in walk(function.body) if isinstance(node, Launch))
    return "cuda" if any(launch.block for launch in launches) else "cpu"

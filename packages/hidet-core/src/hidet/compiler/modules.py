"""Compiling modules of thread IR, such as scripts become, into functions that Python calls."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hidet.compiler.binaries import compile_modules
from hidet.context import CompileContext, Options, make_context
from hidet.host.units import CompileUnit
from hidet.ir.func import Module
from hidet.ir.polls import with_polls
from hidet.ir.stmt import Launch, Print
from hidet.ir.structural import structural_hash
from hidet.ir.table_entry import callable_functions, with_table_entries
from hidet.ir.verify import verify_module
from hidet.ir.visit import walk
from hidet.ir.written import written_parameters
from hidet.passes.manager import run_program_passes
from hidet.plugins.host import load_registry
from hidet.runtime.bounds import BoundsChecks
from hidet.runtime.module import CompiledFunction, CompiledModule
from hidet.runtime.parameters import signature_of
from hidet.target import CheckedModule


def build_ir_module(
    module: Module, target: str = "auto", options: Options | Mapping[str, Any] | None = None
) -> CompiledModule:
    """Compile a module whose functions are called with tensors and numbers; machine code is cached on disk.

    target: "auto" is `target_of(module)`. A module for "cuda" works on the device of its tensors, one for "cuda:1" on
    that one. What is made for a named device or machine ("cuda:sm_90a", "cpu:haswell") is loaded at its first call, so
    that its source and registers can be read where it cannot run.
    options: those of `hidet.context.Options` that concern modules: threads, cache, verify, dump, check_bounds. Raises
    VerifyError for a module that breaks a rule of the thread IR, and the errors of the target for what it cannot do.
    """
    chosen = target_of(module) if target == "auto" else target
    ctx = make_context(chosen, options)
    if ":" in chosen:
        return compile_module(module, ctx, loads_at_first_call=True)

    @functools.cache
    def elsewhere(device: str) -> CompiledModule:
        return build_ir_module(module, f"{chosen}:{device.partition(':')[2]}", options)

    return compile_module(module, ctx, elsewhere)


def compile_module(
    module: Module,
    ctx: CompileContext,
    elsewhere: Callable[[str], CompiledModule] | None = None,
    *,
    loads_at_first_call: bool = False,
) -> CompiledModule:
    """As `build_ir_module`, in a context. elsewhere: the module for another device of the target; None to refuse it."""
    verify_module(module)
    written = written_parameters(module)
    signatures = [signature_of(f, written[f.name]) for f in callable_functions(module)]
    checked: CheckedModule | None = None
    given = module
    if _checks_bounds(ctx):
        checked = ctx.target.check_bounds(module)
        given = checked.module
    given = with_polls(given, in_kernels=ctx.target.device == "cpu")
    complete, entries = with_table_entries(given)
    name = complete.entry
    binaries, _ = compile_modules({name: CompileUnit(complete, structural_hash(complete), effort=3)}, ctx)
    prints = any(isinstance(node, Print) for function in module.functions for node in walk(function.body))

    def load() -> dict[str, CompiledFunction]:
        code = ctx.target.load(binaries, ctx.cache)
        memory = ctx.target.memory
        device = "cpu" if memory is None else memory.name
        bounds = None
        if checked is not None and checked.words:
            assert memory is not None, f"{ctx.target.name} has no memory of its own"
            bounds = BoundsChecks(memory, checked.words, checked.error)
        return {
            signature.function: CompiledFunction(
                signature,
                code.function(entries[signature.function], ctx.options.threads),
                device,
                prints,
                bounds if module.function(signature.function).kind == "host" else None,
                code,
                memory,
                None if memory is None else elsewhere,
            )
            for signature in signatures
        }

    usage = {name: found for binary in binaries for name, found in ctx.target.usage(binary).items()}
    source = partial(_source, complete, ctx)
    compiled = CompiledModule(module, load, source, usage)
    if not loads_at_first_call:
        compiled.load()
    return compiled


def _checks_bounds(ctx: CompileContext) -> bool:
    """Whether indices are checked: what the option says, else whether HIDET_DEBUG=1."""
    chosen = ctx.options.check_bounds
    return os.environ.get("HIDET_DEBUG") == "1" if chosen is None else chosen


def _source(module: Module, ctx: CompileContext) -> str:
    return ctx.target.source(run_program_passes(module, ctx))


def target_of(module: Module) -> str:
    """The target of a module by itself: the first GPU where a kernel is launched with blocks of threads, else the host.

    OptionError where no such target is there.
    """
    launches = (node for function in module.functions for node in walk(function.body) if isinstance(node, Launch))
    registry = load_registry()
    has_blocks = any(launch.block for launch in launches)
    return registry.target_of_kind("gpu") if has_blocks else registry.target_of_device("cpu")

"""Textual LLVM IR to object code, through llvmlite: parse, verify, optimise, emit.

Modules are independent of each other and of the order in which they are compiled; `hidet.cpu.workers` compiles many.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import llvmlite
import llvmlite.binding as llvm

from hidet.cpu.arch import CpuArch, host_arch
from hidet.errors import CodegenError, CompileError

_DEFINITION = re.compile(r'^\s*define\b[^@\n]*@"?([\w.$-]+)', re.MULTILINE)
_PARSE_ERROR = re.compile(r"<string>:(\d+):(\d+): error: (.*)")


def toolchain_version() -> str:
    """Versions that decide which object code a text becomes; part of every kernel's cache key."""
    return f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


def compile_object(text: str, arch: CpuArch, opt_level: int) -> bytes:
    """Object file (ELF or Mach-O, position independent) of one LLVM IR module.

    text: textual IR; triple and data layout are added where it has none.
    opt_level: 0 to 3, as of `opt -O<n>`; loops and straight-line code are vectorised from 1 on.
    Raises CompileError with the offending line when LLVM refuses the text.
    """
    toolchain = _toolchain_for(arch, opt_level)
    return bytes(toolchain.machine.emit_object(_optimised_module(text, toolchain)))


def compile_assembly(text: str, arch: CpuArch, opt_level: int) -> str:
    """Like `compile_object`, as assembly language to be read and tested."""
    toolchain = _toolchain_for(arch, opt_level)
    return str(toolchain.machine.emit_assembly(_optimised_module(text, toolchain)))


def kernel_name(text: str) -> str:
    """Name of the first function that an LLVM IR module defines, for messages; "<empty module>" if it defines none."""
    found = _DEFINITION.search(text)
    return found[1] if found else "<empty module>"


@dataclass(frozen=True, slots=True)
class _Toolchain:
    machine: llvm.TargetMachine
    preamble: str
    opt_level: int


@functools.lru_cache(maxsize=16)
def _toolchain_for(arch: CpuArch, opt_level: int) -> _Toolchain:
    if not 0 <= opt_level <= 3:
        raise CodegenError(f"optimisation level {opt_level} does not exist, expected 0, 1, 2 or 3")
    initialize_targets(arch)
    try:
        target = llvm.Target.from_triple(arch.triple)
    except RuntimeError as error:
        raise CodegenError(f"this LLVM cannot generate code for {arch.triple}: {error}") from error
    # Position-independent code of the small model reaches far symbols through the linker's own table. The large model,
    # which is the default for JITs, would load every address as a 64-bit immediate.
    machine = target.create_target_machine(
        cpu=arch.name, features=arch.features, opt=opt_level, reloc="pic", codemodel="small", jit=True
    )
    # One line and no newline, so that LLVM's line numbers remain those of the text.
    preamble = f'target datalayout = "{machine.target_data}" target triple = "{arch.triple}" '
    return _Toolchain(machine, preamble, opt_level)


@functools.cache
def _initialize_native() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@functools.cache
def _initialize_all() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def initialize_targets(arch: CpuArch) -> None:
    """Make LLVM ready to generate code for `arch`; needed once a process before any target machine is made."""
    _initialize_native()
    if arch.isa != host_arch().isa:
        _initialize_all()


def _optimised_module(text: str, toolchain: _Toolchain) -> llvm.ModuleRef:
    full_text = text if "target datalayout" in text else toolchain.preamble + text
    # A context of its own lets the types and constants of a module go with it.
    try:
        module = llvm.parse_assembly(full_text, llvm.create_context())
    except RuntimeError as error:
        raise _parse_error(text, str(error)) from error
    try:
        module.verify()
    except RuntimeError as error:
        raise CompileError(
            f"LLVM's verifier refused kernel {kernel_name(text)!r}: {str(error).strip()}", hint=_DUMP_HINT
        ) from error
    options = llvm.create_pipeline_tuning_options(speed_level=toolchain.opt_level)
    options.loop_vectorization = options.slp_vectorization = toolchain.opt_level > 0
    # Several vectors at a time take a sixth longer to compile: too long for code that hardly runs.
    options.loop_interleaving = toolchain.opt_level > 1
    builder = llvm.create_pass_builder(toolchain.machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


_DUMP_HINT = "this is a bug of the schedule or the code generator; HIDET_DUMP=<folder> keeps the text"


def _parse_error(text: str, message: str) -> CompileError:
    found = _PARSE_ERROR.search(message)
    if found is None:
        return CompileError(f"LLVM cannot parse kernel {kernel_name(text)!r}: {message}", hint=_DUMP_HINT)
    number, column, problem = int(found[1]), int(found[2]), found[3]
    lines = text.splitlines()
    line = lines[number - 1] if number <= len(lines) else ""
    # On the first line LLVM counts the preamble; its columns are of no use there.
    caret = " " * (column - 1) + "^" if 1 < number <= len(lines) else ""
    return CompileError(
        f"LLVM cannot parse kernel {kernel_name(text)!r}, line {number}: {problem}\n  {line}\n  {caret}".rstrip(),
        hint=_DUMP_HINT,
    )

"""Programs of trials as code that is ready to be called."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hidet.cache import open_cache
from hidet.compiler.binaries import compile_modules
from hidet.context import CompileContext
from hidet.host.code_cache import digest_key, pack, unpack
from hidet.host.units import CompileUnit
from hidet.ir.intrinsic import Intrinsic
from hidet.ir.parser import parse_module
from hidet.ir.structural import structural_hash
from hidet.ir.table_entry import with_table_entries
from hidet.ir.verify import verify_module
from hidet.target import Binary
from hidet.tuning.trial import ProgramText

_EFFORT = 3


@dataclass(frozen=True, slots=True, eq=False)
class LoadedProgram:
    """A program in memory.

    call: takes a table and, on a device, a stream. spilled: bytes a thread that did not fit into registers, of the
    kernel with the most of them. code: keeps the program loaded.
    """

    text: ProgramText
    call: Callable[..., object]
    spilled: int
    code: object

    def table(self, addresses: Sequence[int]) -> bytes:
        """What a call reads. addresses: of inputs, outputs and scratch memory."""
        arguments = self.text.arguments
        return struct.pack(f"<{len(addresses)}Q{len(arguments)}q", *addresses, *arguments)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledProgram:
    """Machine code, and the name of the function that takes a table."""

    binaries: list[Binary]
    entry: str


class Loader:
    """Compiles programs, or takes their code from the kernel cache, and loads them.

    A module is compiled once for all programs that differ in their arguments alone.
    """

    def __init__(self, ctx: CompileContext) -> None:
        self._ctx = ctx
        self._compiled: dict[str, CompiledProgram | Exception] = {}
        self._rows = ctx.registry.intrinsic_rows()

    def load(self, program: ProgramText) -> LoadedProgram:
        """A program in memory. The errors of parser, verifier and target for one that cannot be had."""
        if program.code not in self._compiled:
            try:
                self._compiled[program.code] = compile_program(program, self._ctx, self._rows)
            except Exception as error:  # noqa: BLE001  # whoever asks for this module again gets it again
                self._compiled[program.code] = error
        compiled = self._compiled[program.code]
        if isinstance(compiled, Exception):
            raise compiled
        code = self._ctx.target.load(compiled.binaries, self._ctx.cache)
        usage = [each for binary in compiled.binaries for each in self._ctx.target.usage(binary).values()]
        return LoadedProgram(
            program,
            code.function(compiled.entry, self._ctx.options.threads),
            max((kernel.spill_bytes for kernel in usage), default=0),
            code,
        )


def compile_program(program: ProgramText, ctx: CompileContext, rows: Mapping[str, Intrinsic]) -> CompiledProgram:
    """Parse, verify and compile a program, or take its code from the kernel cache, where it is found without that.

    rows: intrinsics by name. The errors of parser, verifier and target.
    """
    key = digest_key("program of a trial", program.code, _EFFORT, ctx)
    packed = ctx.cache.get(key)
    if packed is not None:
        ((entry, data),) = unpack(packed).items()
        return CompiledProgram([Binary(entry, data)], entry)
    module = parse_module(program.module, rows)
    verify_module(module)
    complete, _ = with_table_entries(module)
    unit = CompileUnit(complete, structural_hash(complete), _EFFORT)
    # One key is enough for what this process and its like alone read.
    binaries, _ = compile_modules({complete.entry: unit}, replace(ctx, cache=open_cache(enabled=False)))
    ctx.cache.put(key, pack({binary.name: binary.data for binary in binaries}))
    return CompiledProgram(binaries, complete.entry)

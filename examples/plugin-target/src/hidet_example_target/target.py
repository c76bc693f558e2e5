"""The target: thread IR to C to machine code, loaded into this process. `docs/targets.md` explains every member."""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hidet.errors import CompileError, LaunchError, OptionError
from hidet.ir.stmt import ASSERTED_VALUES, fill_in
from hidet.loc import Loc
from hidet.passes.program.assert_bounds import assert_bounds
from hidet.target import Binary, CheckedModule, CompileJob, KernelUsage
from hidet_example_target.compiler import compile_assembly, compile_object, describe_compiler, link_library
from hidet_example_target.printer import TARGET, print_c
from hidet_example_target.spelling import symbol

if TYPE_CHECKING:
    from hidet.cache import KernelCache
    from hidet.ir.func import Module


class CTarget:
    """Implements hidet.target.Target for the machine this process runs on, one thread of it.

    machine: what users write behind a colon, "example-c:…". OptionError: this target knows no other machine.
    """

    name = TARGET
    device = "cpu"
    vector_bits = 0
    prefers_channels_last = False
    work_item: Literal["rows", "elements"] = "rows"
    memory = None

    def __init__(self, machine: str | None = None) -> None:
        if machine is not None:
            raise OptionError(
                f"target {TARGET} makes code for this machine alone, got {machine!r}", hint=f"write target={TARGET!r}"
            )

    @property
    def arch(self) -> str:
        """What the compiler calls the machine; its code runs on every processor of that name."""
        return describe_compiler("-dumpmachine")

    def refusal(self, arch: str) -> str | None:
        """Why code for another machine does not run here."""
        return None if arch == self.arch else f"it is code for {arch}, this machine is {self.arch}"

    def fingerprint(self) -> Mapping[str, str]:
        """The compiler's version. Those of the wheels are in every cache key without being asked for."""
        return {"cc": describe_compiler("--version")}

    def check_bounds(self, module: Module) -> CheckedModule:
        """Assertions before each access, as the host runs the code."""
        return CheckedModule(replace(module, functions=tuple(map(assert_bounds, module.functions))))

    def compile(self, jobs: Iterable[CompileJob], progress: Callable[[int, int], None] | None = None) -> list[Binary]:
        """An object file of each module."""
        jobs, binaries = tuple(jobs), []
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "module.o"
            for number, job in enumerate(jobs, 1):
                compile_object(print_c(job.module), min(job.effort, 2), output)
                binaries.append(Binary(job.name, output.read_bytes()))
                if progress is not None:
                    progress(number, len(jobs))
        return binaries

    def source(self, module: Module) -> str:
        """The C text."""
        return print_c(module)

    def listings(self, job: CompileJob) -> Iterator[tuple[str, str]]:
        """The C text (.c), and the machine's assembly (.s)."""
        text = print_c(job.module)
        yield ".c", text
        yield ".s", compile_assembly(text, min(job.effort, 2))

    def usage(self, binary: Binary) -> Mapping[str, KernelUsage]:
        """Nothing to tell of a CPU."""
        return {}

    def load(
        self,
        binaries: Sequence[Binary],
        cache: KernelCache | None = None,
        symbols: Mapping[str, int] | None = None,
    ) -> CCode:
        """Link the objects to a library and load it."""
        if symbols:
            raise CompileError(f"target {TARGET} links with nothing of others, got {', '.join(symbols)}")
        with tempfile.TemporaryDirectory() as folder:
            objects = [Path(folder) / f"{number}.o" for number in range(len(binaries))]
            for path, binary in zip(objects, binaries, strict=True):
                path.write_bytes(binary.data)
            library = Path(folder) / "graph.so"
            link_library(objects, library)
            return CCode(ctypes.CDLL(str(library)))


class CCode:
    """Implements hidet.target.LoadedCode."""

    raise_failure = None

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._run = library.example_run
        self._run.argtypes = [ctypes.c_void_p] * 3
        self._run.restype = ctypes.c_char_p

    def address(self, name: str) -> int:
        """Address of a host function; one with assertions is called by `function` alone."""
        return ctypes.cast(getattr(self._library, symbol(name)), ctypes.c_void_p).value or 0

    def function(self, name: str, threads: int | None) -> Callable[..., object]:
        """A segment as a callable of the slot table, which raises LaunchError for an assertion that fails."""
        segment = self.address(name)

        def call(table: object) -> None:
            values = (ctypes.c_int64 * ASSERTED_VALUES)()
            failure = self._run(segment, table, values)
            if failure is not None:
                kind, function, message, place = json.loads(failure)
                where = f"kernel {function}" if kind == "kernel" else function
                loc = None if place is None else Loc(*place)
                raise LaunchError(f"in {where}: {fill_in(message, values)}", loc=loc)

        return call

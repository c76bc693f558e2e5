"""Object files into this process: ORC links them, and hands out the addresses of what they define.

An object may use what another object of the same call defines, what the caller passes in `symbols`, and the few libc
functions named here. Nothing else of the process is visible to it, so that the same object runs on every machine.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

from hidet.cpu.arch import host_arch
from hidet.cpu.object_symbols import read_symbols
from hidet.cpu.toolchain import initialize_targets
from hidet.errors import CodegenError, suggestion

LIBC_SYMBOLS = frozenset(
    {
        "clock_gettime",
        "dprintf",
        "memcpy",
        "memmove",
        "memset",
        "pthread_attr_init",
        "pthread_attr_setdetachstate",
        "pthread_attr_setstacksize",
        "pthread_create",
        "sched_yield",
        "syscall",
    }
)
"""The only functions of the C library that generated code may call."""

_LINKER_SYMBOLS = frozenset({"_GLOBAL_OFFSET_TABLE_"})  # provided by the JIT linker itself


class LoadedCode:
    """Code in memory. Its addresses are valid as long as this object is alive, so owners of addresses keep it."""

    __slots__ = ("_names", "_tracker", "imported")

    def __init__(
        self, tracker: llvm.ResourceTracker | None, names: frozenset[str], imported: frozenset[str] = frozenset()
    ) -> None:
        """imported: the functions and variables that the code uses and does not define."""
        self._tracker = tracker
        self._names = names
        self.imported = imported

    @property
    def names(self) -> frozenset[str]:
        """The global functions and variables that were loaded."""
        return self._names

    def address(self, name: str) -> int:
        """Address of a global function or variable. Raises CodegenError if no loaded object defines `name`."""
        if self._tracker is None or name not in self._names:
            raise CodegenError(f"the loaded code defines no symbol {name!r}", hint=suggestion(name, self._names))
        return int(self._tracker[name])


def load_objects(objects: Sequence[bytes], symbols: Mapping[str, int] | None = None) -> LoadedCode:
    """Link object files of this machine's kind into memory.

    symbols: addresses of further functions and variables that the objects use, by name.
    Raises CodegenError that names symbols which are missing or defined twice, or that says why linking failed.
    """
    given = symbols or {}
    tables = [read_symbols(data) for data in objects]
    defined = [name for table in tables for name in table.defined]
    names = frozenset(defined)
    if len(names) != len(defined):
        twice = sorted({name for name in names if defined.count(name) > 1})
        raise CodegenError(f"several objects define {', '.join(map(repr, twice))}")
    needed = {name for table in tables for name in table.undefined} - names - _LINKER_SYMBOLS
    missing = sorted(needed - given.keys() - LIBC_SYMBOLS)
    if missing:
        raise CodegenError(
            f"generated code calls {', '.join(map(repr, missing))}, which nothing defines",
            hint="LLVM turns some operations into library calls; the code generator must lower them itself",
        )
    if not names:
        return LoadedCode(None, names)
    library = llvm.JITLibraryBuilder()
    for data in objects:
        library.add_object_img(data)
    for name in sorted(needed):
        library.import_symbol(name, given[name] if name in given else _libc_address(name))
    for name in names:
        library.export_symbol(name)
    linker = _process_linker()
    try:
        return LoadedCode(linker.link(library), names, frozenset(needed))
    except RuntimeError as error:
        raise CodegenError(f"the JIT cannot link the objects that define {sorted(names)}: {error}") from error


class _Linker:
    """The one ORC instance of a process. It never owns a target machine of ours, and names each library anew."""

    def __init__(self) -> None:
        initialize_targets(host_arch())
        # JITLink puts all sections of a library into one block, within reach of the small code model.
        self._jit = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
        self._numbers = itertools.count()

    def link(self, library: llvm.JITLibraryBuilder) -> llvm.ResourceTracker:
        return library.link(self._jit, f"hidet{next(self._numbers)}")


@functools.cache
def _process_linker() -> _Linker:
    return _Linker()


@functools.cache
def _libc_address(name: str) -> int:
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError as error:
        raise CodegenError(f"this machine's C library has no function {name!r}") from error
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address

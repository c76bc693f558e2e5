"""Child process that compiles modules: `python -m hidet.compiler.worker`, driven by `hidet.compiler.workers`.

What comes in on standard input, and goes out on what was standard output, are pickles: both ends are processes of one
user, and nothing of it is ever kept. First comes a `Greeting`, then one `PackedModule` after the other. The answer to
each is a `Binary`, a `Refusal`, or None where the child finds other code than the process that asks. The child ends
when its input does, or by an exception that is no HidetError.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from hidet import errors
from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.dtypes import DType, dtype
from hidet.errors import HidetError
from hidet.host.code_cache import digest_key
from hidet.ir.func import Module
from hidet.ir.intrinsic import Intrinsic
from hidet.loc import Loc
from hidet.passes.manager import run_program_passes
from hidet.passes.pipeline import make_pass
from hidet.plugins.host import load_registry
from hidet.target import Binary, CompileJob, Target


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a child compiles for, as in a `CompileContext`. key: `compilation_key` of the process that asks."""

    target: Target
    options: Options
    machine: str | None
    key: str


@dataclass(frozen=True, slots=True)
class PackedModule:
    """A `CompileJob` whose module is not lowered yet. data: what `pack_module` makes of it."""

    name: str
    data: bytes
    effort: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A HidetError, by the name of its class."""

    kind: str
    message: str
    loc: Loc | None
    hint: str | None

    def error(self) -> HidetError:
        """The error itself."""
        made: HidetError = getattr(errors, self.kind)(self.message, loc=self.loc, hint=self.hint)
        return made


class _Pickler(pickle.Pickler):
    """Writes what there is one of in a process by its name: asked by class, because C code does that by itself."""

    dispatch_table: Mapping[type, Callable[[Any], tuple[Any, ...]]] = {
        DType: lambda found: (dtype, (found.name,)),
        Intrinsic: lambda found: (_intrinsic, (found.name,)),
    }


def _intrinsic(name: str) -> Intrinsic:
    return load_registry().intrinsic_rows()[name]


def pack_module(module: Module) -> bytes | None:
    """A module as bytes for another process; None where it holds what has no pickle, or is nested too deeply."""
    file = io.BytesIO()
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(module)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return None
    return file.getvalue()


def unpack_module(data: bytes) -> Module:
    """Inverse of `pack_module`."""
    module: Module = pickle.loads(data)
    return module


def compilation_key(ctx: CompileContext) -> str:
    """All that decides what becomes of a module, but for the module: plug-ins, passes and tools with their versions."""
    return repr(digest_key("", "", 0, ctx))


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests until they end."""
    greeting: Greeting = pickle.load(requests)
    registry = load_registry()
    ctx = CompileContext(
        target=greeting.target,
        registry=registry,
        options=greeting.options,
        cache=open_cache(enabled=False),
        machine=greeting.machine,
    )
    is_alike = compilation_key(ctx) == greeting.key
    if is_alike:
        _load_compiler(ctx)
    while True:
        try:
            packed: PackedModule = pickle.load(requests)
        except EOFError:
            return
        pickle.dump(_compile(packed, ctx) if is_alike else None, replies)
        replies.flush()


def _load_compiler(ctx: CompileContext) -> None:
    """Import what compiles modules, while the process that asks for it makes them."""
    for spec in ctx.registry.passes_for("program", ctx.target.name):
        make_pass(spec, {})
    ctx.registry.intrinsic_rows()
    ctx.target.compile([])


def _compile(packed: PackedModule, ctx: CompileContext) -> Binary | Refusal:
    try:
        lowered = run_program_passes(unpack_module(packed.data), ctx)
        (binary,) = ctx.target.compile([CompileJob(packed.name, lowered, packed.effort)])
        return binary
    except HidetError as error:
        return Refusal(type(error).__name__, error.message, error.loc, error.hint)


def main() -> None:
    """Serve on the standard streams. Whatever libraries print goes to standard error, not between the answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    # As the process that asks calls the classes of the messages.
    from hidet.compiler import worker

    worker.main()

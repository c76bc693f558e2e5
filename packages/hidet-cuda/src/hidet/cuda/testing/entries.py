"""Host code of a module, compiled and linked to a driver in Python."""

from __future__ import annotations

from typing import Any

from hidet.context import Options
from hidet.cuda.testing.fake_driver import FakeDriver
from hidet.cuda.testing.schedules import context_for
from hidet.ir.func import Module
from hidet.passes.manager import run_program_passes
from hidet.target import CompileJob


def compiled_entry(given: Module, arch: str, fake: FakeDriver) -> Any:
    """The entry of a module after all program passes; calling it launches kernels with `fake`."""
    ctx = context_for(arch, options=Options(verify=True))
    ctx.target.__dict__["memory"] = fake.memory()
    (binary,) = ctx.target.compile([CompileJob("job", run_program_passes(given, ctx))])
    return ctx.target.load([binary]).function("main", None)

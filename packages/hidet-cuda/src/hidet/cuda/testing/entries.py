"""Host code of a module, compiled and linked to a driver in Python."""

from __future__ import annotations

from typing import Any

from hidet.cache import open_cache
from hidet.context import CompileContext, Options
from hidet.cuda.target import CudaTarget
from hidet.cuda.testing.fake_driver import FakeDriver
from hidet.ir.func import Module
from hidet.passes.manager import run_program_passes
from hidet.plugins.host import load_registry
from hidet.target import CompileJob


def compiled_entry(given: Module, arch: str, fake: FakeDriver) -> Any:
    """The entry of a module after all program passes; calling it launches kernels with `fake`."""
    target = CudaTarget(arch)
    target.__dict__["memory"] = fake.memory()
    ctx = CompileContext(
        target=target, registry=load_registry(), options=Options(verify=True), cache=open_cache(enabled=False)
    )
    (binary,) = target.compile([CompileJob("job", run_program_passes(given, ctx))])
    return target.load([binary]).function("main", None)

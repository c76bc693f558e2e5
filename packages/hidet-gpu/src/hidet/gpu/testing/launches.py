"""Small kernels in text, and scripts, run by the interpreter of launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hidet.ir.func import Module
from hidet.ir.interpret import run_module
from hidet.ir.parser import parse_module
from hidet.ir.verify import verify_module
from hidet.lang.function import ScriptFunction
from hidet.lang.module import module_of
from hidet.plugins.host import load_registry


def kernel_module(
    body: str,
    parameters: str,
    *,
    grid: Sequence[int] = (1,),
    block: Sequence[int] = (32,),
    cluster: Sequence[int] = (),
    shared_bytes: int = 0,
    functions: str = "",
) -> Module:
    """A module whose entry launches a kernel with `body`, in which `t` is the index of the thread along x and `b` that
    of the block, both i64. functions: text of further functions."""
    names = ", ".join(parameter.split(":")[0] for parameter in parameters.split(", ")) if parameters else ""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    shape = f"block={list(block)}" + (f", cluster={list(cluster)}" if cluster else "")
    shape += f", shared_bytes={shared_bytes}" if shared_bytes else ""
    text = (
        f'module(entry="main")\n\n{functions}\n\n@kernel\ndef kernel({parameters}):\n'
        '    t: i64 = cast(call("gpu.thread_idx.x", type=i32), i64)\n'
        '    b: i64 = cast(call("gpu.block_idx.x", type=i32), i64)\n'
        f'{lines}\n\n@host\ndef main({parameters}):\n    launch("kernel", {list(grid)}, [{names}], {shape})\n'
    )
    module = parse_module(text, load_registry().intrinsic_rows())
    verify_module(module)
    return module


def run_kernel(body: str, parameters: str, arguments: Sequence[Any], **launch: Any) -> None:
    """Run what `kernel_module` makes of the body on arguments, which it reads and writes in place."""
    run_module(kernel_module(body, parameters, **launch), arguments)


def script_results(script: ScriptFunction, size: int = 4) -> list[int]:
    """What a script with one parameter, `size` elements of i64, makes of zeros."""
    out = np.zeros(size, np.int64)
    run_module(module_of([script]), [out], entry=script.name)
    found: list[int] = out.tolist()
    return found

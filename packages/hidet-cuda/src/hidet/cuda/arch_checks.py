"""What modules ask of an architecture that it does not have, noticed when they are compiled. (What single operations
need, code generation checks.)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hidet.cuda.arch import FIRST_WITH_CLUSTERS, capability_of, known_shared_memory
from hidet.errors import CodegenError
from hidet.gpu.codegen.function import array_bytes
from hidet.ir.expr import Const
from hidet.ir.stmt import Declare, Launch
from hidet.ir.types import BufferType
from hidet.ir.visit import statements, walk

if TYPE_CHECKING:
    from hidet.ir.func import Module
    from hidet.ir.stmt import Launch
    from hidet.loc import Loc


def launches_of(module: Module) -> Iterator[Launch]:
    """Every launch of host functions."""
    nodes = (node for function in module.functions if function.kind == "host" for node in walk(function.body))
    return (node for node in nodes if isinstance(node, Launch))


def check_clusters(module: Module, architecture: str) -> None:
    """CodegenError for the first launch in clusters of blocks where the architecture has none."""
    if capability_of(architecture) >= FIRST_WITH_CLUSTERS:
        return
    for launch in launches_of(module):
        if launch.cluster:
            raise CodegenError(
                f"kernel {launch.kernel} is launched in clusters of blocks, which need sm_{FIRST_WITH_CLUSTERS}; the "
                f"code is for {architecture}",
                loc=launch.loc,
            )


def check_shared_memory(module: Module, kernel: str, declared: int, architecture: str) -> None:
    """CodegenError where a kernel asks for more shared memory than a block of the architecture can have.

    declared: bytes of the arrays that the kernel declares. What launches ask for besides counts where it is a number.
    Architectures whose limit is not known are left to the device.
    """
    limit = known_shared_memory(capability_of(architecture))
    if limit is None:
        return
    hint = "use smaller tiles or fewer stages"
    if declared > limit:
        raise CodegenError(
            f"kernel {kernel} declares {declared} bytes of shared memory; "
            f"a block of {architecture} has at most {limit}",
            loc=_largest_array(module, kernel),
            hint=hint,
        )
    for launch in launches_of(module):
        asked = _known_bytes(launch) if launch.kernel == kernel else 0
        if declared + asked > limit:
            own = f" and declares {declared} of its own" if declared else ""
            raise CodegenError(
                f"kernel {kernel} is launched with {asked} bytes of dynamic shared memory{own}; a block of "
                f"{architecture} has at most {limit}",
                loc=launch.loc,
                hint=hint,
            )


def _known_bytes(launch: Launch) -> int:
    """Dynamic shared memory of a launch, 0 where only the call tells."""
    asked = launch.shared_bytes
    return int(asked.value) if isinstance(asked, Const) else 0  # type: ignore[arg-type]  # an integer


def _largest_array(module: Module, kernel: str) -> Loc | None:
    """Where the largest array in shared memory is declared."""
    sizes = [
        (array_bytes(node.var.type), node.loc)
        for node in statements(module.function(kernel).body)
        if isinstance(node, Declare) and isinstance(node.var.type, BufferType) and node.var.type.space == "shared"
    ]
    return max(sizes, key=lambda pair: pair[0])[1] if sizes else None

"""Attributes of a script: `attrs.cuda.grid_dim = ...` in its body says how it is launched. Names only; the translator
gives them their meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from hidet.errors import ScriptError, suggestion
from hidet.ir.expr import Expr
from hidet.ir.func import FunctionKind
from hidet.lang import operators

FUNCTION_KINDS: dict[str, FunctionKind] = {
    "public": "host",
    "host": "host",
    "host_kernel": "host",
    "cpu_kernel": "host",
    "cuda_kernel": "kernel",
    "kernel": "kernel",
    "cuda_internal": "device",
    "cpu_internal": "device",
    "device": "device",
}
"""What `attrs.func_kind` may be. A CPU kernel is a function that the host runs."""

MOST_THREADS = 1024
"""Threads of a block, at most (CUDA C++ Programming Guide, Compute Capabilities)."""

_KNOWN = (
    "func_kind",
    "func_name",
    "cuda.grid_dim",
    "cuda.block_dim",
    "cuda.cluster_dim",
    "cuda.dynamic_smem_bytes",
    "cuda.min_blocks",
    "cuda.cooperative",
)
_OTHER_NAMES = {name.replace(".", "_"): name for name in _KNOWN if "." in name}


class AttributePath:
    """`attrs`, or a dotted name below it."""

    __slots__ = ("path",)
    path: str

    def __init__(self, path: str = "") -> None:
        object.__setattr__(self, "path", path)

    def __getattr__(self, name: str) -> AttributePath:
        if name.startswith("__"):
            raise AttributeError(name)
        return AttributePath(f"{self.path}.{name}" if self.path else name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise ScriptError(f"attrs.{name} is set in the body of a function under @hidet.script only")


attrs = AttributePath()
attr = attrs
"""The name of `attrs` in earlier versions."""


def attribute_name(path: str) -> str:
    """The name of the attribute that a script writes as `attrs.<path>`. ScriptError for an unknown one."""
    name = _OTHER_NAMES.get(path, path)
    if name not in _KNOWN:
        raise ScriptError(f"attribute {path!r} is unknown", hint=suggestion(path, [*_KNOWN, *_OTHER_NAMES]))
    return name


@dataclass(frozen=True, slots=True, eq=False)
class LaunchShape:
    """How a kernel is launched; extents are i64 expressions of its parameters, in the order x, y, z.

    min_blocks: blocks that one multiprocessor must be able to hold, None for no demand. is_cooperative: all blocks run
    at the same time and may wait for each other.
    """

    grid: tuple[Expr, ...]
    block: tuple[Expr, ...]
    cluster: tuple[Expr, ...] = ()
    shared_bytes: Expr | None = None
    min_blocks: int | None = None
    is_cooperative: bool = False


@dataclass(slots=True)
class AttributeValues:
    """What a script has set, filled while it is translated."""

    values: dict[str, Any] = field(default_factory=dict)

    def set(self, path: str, value: Any) -> None:
        """Set one. ScriptError for an unknown name, a second value, or a value of the wrong kind."""
        name = attribute_name(path)
        if name in self.values:
            raise ScriptError(f"attribute {name} is set twice")
        if name == "func_kind" and value not in FUNCTION_KINDS:
            raise ScriptError(f"function kind {value!r} is unknown", hint=suggestion(str(value), FUNCTION_KINDS))
        if name == "func_name" and not (isinstance(value, str) and value.isidentifier()):
            raise ScriptError(f"func_name must be an identifier, got {value!r}")
        if name == "cuda.min_blocks" and not (isinstance(value, int) and value >= 1):
            raise ScriptError(f"cuda.min_blocks must be a positive integer, got {value!r}")
        if name == "cuda.cooperative" and not isinstance(value, bool):
            raise ScriptError(f"cuda.cooperative is True or False, got {value!r}")
        if name == "cuda.block_dim":
            _check_threads(value)
        self.values[name] = value

    @property
    def kind(self) -> FunctionKind | None:
        """The kind that was asked for, or follows from launch attributes; None when nothing says."""
        asked = self.values.get("func_kind")
        if asked is not None:
            return FUNCTION_KINDS[asked]
        return "kernel" if any(name.startswith("cuda.") for name in self.values) else None

    def launch_shape(self) -> LaunchShape:
        """How the kernel is launched. ScriptError when the grid or the block is missing."""
        for name in ("cuda.grid_dim", "cuda.block_dim"):
            if name not in self.values:
                raise ScriptError(f"a kernel needs attrs.{name}", hint=f"write attrs.{name} = ... in its body")
        shared = self.values.get("cuda.dynamic_smem_bytes", 0)
        grid, cluster = (_extents(name, self.values) for name in ("cuda.grid_dim", "cuda.cluster_dim"))
        return LaunchShape(
            grid=(*grid, *(operators.index(1) for _ in cluster[len(grid) :])),
            block=_extents("cuda.block_dim", self.values),
            cluster=cluster,
            shared_bytes=None if isinstance(shared, int) and shared == 0 else operators.index(shared),
            min_blocks=self.values.get("cuda.min_blocks"),
            is_cooperative=self.values.get("cuda.cooperative", False),
        )


def _check_threads(block: Any) -> None:
    """ScriptError where a constant number of threads is more than a block has."""
    extents = tuple(block) if isinstance(block, tuple | list) else (block,)
    if all(isinstance(extent, int) for extent in extents) and prod(extents) > MOST_THREADS:
        raise ScriptError(
            f"cuda.block_dim asks for {prod(extents)} threads, a block has at most {MOST_THREADS}",
            hint="launch more blocks, or let each thread do several tasks",
        )


def _extents(name: str, values: Mapping[str, Any]) -> tuple[Expr, ...]:
    given = values.get(name, ())
    listed: Sequence[Any] = given if isinstance(given, tuple | list) else (given,)
    if len(listed) > 3:
        raise ScriptError(f"{name} has {len(listed)} extents, at most 3 are possible: x, y, z")
    for extent in listed:
        if isinstance(extent, int) and (isinstance(extent, bool) or extent < 1):
            raise ScriptError(f"{name} takes positive extents, got {extent!r}")
    return tuple(operators.index(extent) for extent in listed)

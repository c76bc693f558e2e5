"""Attributes of a script: `attrs.cuda.grid_dim = ...` in its body says how it is launched. Names only; the translator
gives them their meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from hidet.dims import DimExpr
from hidet.dtypes import DType
from hidet.errors import ScriptError, suggestion
from hidet.ir.expr import Expr
from hidet.ir.func import FunctionKind
from hidet.lang import operators
from hidet.loc import Loc

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


@dataclass(frozen=True, slots=True)
class _Limit:
    """What extents of a launch are at most (CUDA C++ Programming Guide, Compute Capabilities): along x, y and z, and,
    where there is a limit for all of them together, how many of what."""

    along: tuple[int, int, int]
    together: int | None = None
    unit: str = ""
    whole: str = ""
    hint: str = ""


_LIMITS = {
    "cuda.grid_dim": _Limit((2**31 - 1, 65535, 65535)),
    "cuda.block_dim": _Limit(
        (1024, 1024, 64), 1024, "threads", "block", "launch more blocks, or let each thread do several tasks"
    ),
    # More than 8 are for kernels that say, device by device, that they need no other.
    "cuda.cluster_dim": _Limit((8, 8, 8), 8, "blocks", "cluster", "launch smaller clusters: every device has these"),
}
_SHARED, _MIN_BLOCKS, _COOPERATIVE = "cuda.dynamic_smem_bytes", "cuda.min_blocks", "cuda.cooperative"

_KNOWN = ("func_kind", "func_name", *_LIMITS, _SHARED, _MIN_BLOCKS, _COOPERATIVE)
_NEUTRAL = ("cuda.grid_dim", "cuda.block_dim", _SHARED, _MIN_BLOCKS)
"""What every GPU has: `attrs.gpu.grid_dim` is the same."""
_OTHER_NAMES = {
    **{name.replace(".", "_"): name for name in _KNOWN if "." in name},
    **{name.replace("cuda", "gpu"): name for name in _NEUTRAL},
}


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
    at the same time and may wait for each other. places: where attributes are set, by name.
    """

    grid: tuple[Expr, ...]
    block: tuple[Expr, ...]
    cluster: tuple[Expr, ...] = ()
    shared_bytes: Expr | None = None
    min_blocks: int | None = None
    is_cooperative: bool = False
    places: Mapping[str, Loc] = field(default_factory=dict)

    def computed(self) -> dict[str, tuple[Expr, ...]]:
        """What is computed at each launch, by attribute."""
        shared = () if self.shared_bytes is None else (self.shared_bytes,)
        return {**dict(zip(_LIMITS, (self.grid, self.block, self.cluster), strict=True)), _SHARED: shared}

    @property
    def loc(self) -> Loc | None:
        """Where the script says how it is launched: what devices may refuse comes first."""
        return self.places.get(_SHARED, self.places.get("cuda.grid_dim"))


@dataclass(slots=True)
class AttributeValues:
    """What a script has set and where, filled while it is translated. Extents are tuples of i64 expressions."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Loc] = field(default_factory=dict)

    def set(self, path: str, value: Any, loc: Loc) -> None:
        """Set one. ScriptError for an unknown name, a second value, or a value that it cannot have."""
        name = attribute_name(path)
        if name in self.values:
            raise ScriptError(f"attribute {name} is set twice")
        if name == "func_kind" and value not in FUNCTION_KINDS:
            raise ScriptError(f"function kind {value!r} is unknown", hint=suggestion(str(value), FUNCTION_KINDS))
        if name == "func_name" and not (isinstance(value, str) and value.isidentifier()):
            raise ScriptError(f"func_name must be an identifier, got {value!r}")
        if name == _MIN_BLOCKS and not (type(value) is int and value >= 1):
            raise ScriptError(f"{name} must be a positive integer, got {value!r}")
        if name == _COOPERATIVE and not isinstance(value, bool):
            raise ScriptError(f"{name} is True or False, got {value!r}")
        if name in _LIMITS:
            value = _extents(name, value)
        if name == _SHARED:
            value = _integer(name, value, 0, "an integer from 0 on")
        self.values[name] = value
        self.places[name] = loc

    @property
    def kind(self) -> FunctionKind | None:
        """The kind that was asked for, or follows from launch attributes; None when nothing says."""
        asked = self.values.get("func_kind")
        if asked is not None:
            return FUNCTION_KINDS[asked]
        return "kernel" if any(name.startswith("cuda.") for name in self.values) else None

    def launch_shape(self) -> LaunchShape:
        """How the kernel is launched. ScriptError when the grid or the block is missing, or clusters do not fill the
        grid."""
        for name in ("cuda.grid_dim", "cuda.block_dim"):
            if name not in self.values:
                raise ScriptError(f"a kernel needs attrs.{name}", hint=f"write attrs.{name} = ... in its body")
        shared = self.values.get(_SHARED)
        grid, cluster = self.values["cuda.grid_dim"], self.values.get("cuda.cluster_dim", ())
        grid = (*grid, *(operators.index(1) for _ in cluster[len(grid) :]))
        for axis, blocks, together in zip(_AXES, map(_number, grid), map(_number, cluster), strict=False):
            if blocks is not None and together is not None and blocks % together:
                raise ScriptError(
                    f"cuda.grid_dim has {blocks} blocks along {axis}, no multiple of the {together} of a cluster",
                    loc=self.places["cuda.grid_dim"],
                    hint="round the grid up, and let blocks outside of the task do nothing",
                )
        return LaunchShape(
            grid=grid,
            block=self.values["cuda.block_dim"],
            cluster=cluster,
            shared_bytes=None if shared is None or _number(shared) == 0 else shared,
            min_blocks=self.values.get(_MIN_BLOCKS),
            is_cooperative=self.values.get(_COOPERATIVE, False),
            places=self.places,
        )


_AXES = ("x", "y", "z")


def _extents(name: str, given: Any) -> tuple[Expr, ...]:
    """Extents of a launch, as numbers or expressions. ScriptError for what no launch has."""
    listed: Sequence[Any] = given if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(listed) <= 3:
        raise ScriptError(f"{name} has {len(listed)} extents, expected 1 to 3: x, y, z")
    extents = tuple(_integer(name, extent, 1, "positive integers") for extent in listed)
    numbers, limit = [_number(extent) for extent in extents], _LIMITS[name]
    known = [number for number in numbers if number is not None]
    if limit.together is not None and prod(known) > limit.together:
        raise ScriptError(
            f"{name} asks for {prod(known)} {limit.unit}, a {limit.whole} has at most {limit.together}", hint=limit.hint
        )
    for axis, number, most in zip(_AXES, numbers, limit.along, strict=False):
        if number is not None and number > most:
            raise ScriptError(f"{name} has {number} along {axis}, at most {most} are possible")
    return extents


def _integer(name: str, value: Any, least: int, expected: str) -> Expr:
    """An integer, as an i64 expression. ScriptError for one below `least` that is known, and for other values."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    is_integer = isinstance(value, Expr) and isinstance(value.type, DType) and value.type.is_int
    found = _number(operators.index(value)) if is_number or is_integer or isinstance(value, DimExpr) else least - 1
    if found is not None and found < least:
        shown = value if is_number or isinstance(value, tuple | list) else operators.described(value)
        raise ScriptError(f"{name} takes {expected}, got {shown}")
    return operators.index(value)


def _number(expr: Expr) -> int | None:
    """The value of an expression that is known now; None for others."""
    value = getattr(expr, "value", None)
    return value if isinstance(value, int) else None

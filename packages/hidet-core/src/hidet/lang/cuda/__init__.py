"""Operations of an NVIDIA GPU for scripts: one name for each row of the table `hidet.ir.intrinsics`.

    threadIdx.x, blockIdx.y, blockDim.x, gridDim.z      where a thread stands
    syncthreads(), syncwarp(), shfl_down_sync(...)       waiting and exchanging
    atomic_add(~a[i], value), copy_async_16(...)         memory
    mma.m16n8k16.f32.f16.f16(d, a, b)                    matrix units
    mma_sync(MmaConfig.m16n8k16_f16_f32(), a, b, c)      the same, with mappings that say which thread holds what

`dir(hidet.lang.cuda)` lists all, `doc` of each says what it does. A name means the row "cuda.<name>", or the one in
`OTHER_NAMES`, which has the spellings of CUDA C++.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import DTypeError, ScriptError, suggestion
from hidet.ir.expr import Call, Expr
from hidet.ir.intrinsics import INTRINSICS, PREFIX
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.intrinsics.signature import Immediate, Intrinsic, Memory, Parameter, Value
from hidet.ir.types import element_dtype
from hidet.lang import operators
from hidet.lang.cuda import contexts
from hidet.lang.cuda.contexts import warp_groups
from hidet.lang.cuda.mma_config import MmaConfig
from hidet.lang.values import Operand, Primitive, TensorValue, unwrapped

OTHER_NAMES = {
    "threadIdx": "thread_idx",
    "blockIdx": "block_idx",
    "blockDim": "block_dim",
    "gridDim": "grid_dim",
    "shfl_sync": "shuffle",
    "shfl_up_sync": "shuffle_up",
    "shfl_down_sync": "shuffle_down",
    "shfl_xor_sync": "shuffle_xor",
    "all_sync": "vote_all",
    "any_sync": "vote_any",
    "ballot_sync": "vote_ballot",
    "activemask": "active_mask",
    "atomic_exch": "atomic_exchange",
    "atomic_cas": "atomic_compare_exchange",
    "cp_async_commit_group": "copy_async_commit",
    "cp_async_wait_group": "copy_async_wait",
    "cp_async_wait_all": "copy_async_wait_all",
    "cvta_generic_to_shared": "shared_address",
    "mbarrier_init": "barrier_init",
    "mbarrier_wait": "barrier_wait",
    "mbarrier_arrive": "barrier_arrive_at",
    "mbarrier_arrive_and_expect_tx": "barrier_arrive_expect",
}
"""Names as CUDA C++ and earlier versions spell them, and the rows they mean."""

_PARAMETER_NAMES = {"src_lane": "lane", "var": "value", "addr": "target"}
"""Names of arguments as earlier versions have them, and those of the rows."""

_DEFAULTS: dict[str, dict[str, int]] = {
    "mask": dict.fromkeys(("cuda.syncwarp",), 0xFFFFFFFF),
    "width": dict.fromkeys(("cuda.shuffle", "cuda.shuffle_up", "cuda.shuffle_down", "cuda.shuffle_xor"), 32),
}


@dataclass(frozen=True, slots=True)
class IntrinsicFunction:
    """One row of the table as a function of scripts."""

    row: Intrinsic

    @property
    def doc(self) -> str:
        """What it takes and does, and which instruction of the PTX ISA manual it is."""
        names = ", ".join(parameter.name for parameter in self.row.parameters)
        return f"{self.row.name}({names}): {self.row.doc}. PTX: {self.row.ptx}."

    @property
    def is_register(self) -> bool:
        """Whether its name alone is a value, as `threadIdx.x` is."""
        return self.row.family == "index" and self.row.name.count(".") == 2

    def __call__(self, *arguments: Any, lanes: int = 1, **keywords: Any) -> Any:
        """The call as an expression; `lanes`: of a result whose width the call chooses, as of a vector load.

        Arguments may be named as the row names its parameters. VerifyError or DTypeError when they do not fit.
        """
        given = [_argument(unwrapped(argument)) for argument in (*arguments, *self._named(len(arguments), keywords))]
        for parameter in self.row.parameters[len(given) :]:
            default = _DEFAULTS.get(parameter.name, {}).get(self.row.name)
            if default is None:
                break
            given.append(default)
        dtype = _group_dtype(self.row, given)
        pairs = zip(self.row.parameters, given, strict=False)
        converted = [_converted(self.row, parameter, value, dtype) for parameter, value in pairs]
        return intrinsic_call(self.row.name, *converted, *given[len(converted) :], lanes=lanes)

    def _named(self, position: int, keywords: dict[str, Any]) -> list[Any]:
        """Arguments given by name, in order. DTypeError for names of no further parameter, and gaps between them."""
        names = [parameter.name for parameter in self.row.parameters[position:]]
        by_name = {_PARAMETER_NAMES.get(name, name): value for name, value in keywords.items()}
        unknown = [name for name in by_name if name not in names]
        if unknown:
            raise DTypeError(
                f"{self.row.name} takes no further argument {unknown[0]!r}", hint=suggestion(unknown[0], names)
            )
        given = names[: len(by_name)]
        missing = [name for name in given if name not in by_name]
        if missing:
            raise DTypeError(f"{self.row.name} needs a value for {missing[0]}")
        return [by_name[name] for name in given]


@dataclass(frozen=True, slots=True)
class IntrinsicGroup:
    """Rows whose names share a beginning: attributes lead to them."""

    name: str

    def __getattr__(self, name: str) -> Any:
        return _find(f"{self.name}.{name}")

    def __dir__(self) -> list[str]:
        return [row[len(self.name) + 1 :].split(".")[0] for row in INTRINSICS if row.startswith(f"{self.name}.")]


def _argument(value: Any) -> Any:
    return value.start() if isinstance(value, TensorValue) else value


def _group_dtype(row: Intrinsic, given: list[Any]) -> DType | None:
    """The element type of the arguments that must agree, from the first one that is an expression."""
    for parameter, value in zip(row.parameters, given, strict=False):
        if isinstance(parameter, Memory | Value) and parameter.group and isinstance(value, Expr):
            return element_dtype(value.type)
    return None


def _converted(row: Intrinsic, parameter: Parameter, value: Any, group_dtype: DType | None) -> Any:
    """Numbers get the type that the parameter asks for; integers convert to the only one it takes."""
    if isinstance(parameter, Immediate | Memory):
        if isinstance(parameter, Immediate) and not isinstance(value, Expr | int):
            raise DTypeError(f"{parameter.name} of {row.name} is {value!r}, expected a constant")
        return value
    what = f"{parameter.name} of {row.name}"
    target = group_dtype if parameter.group else parameter.dtypes[0] if len(parameter.dtypes) == 1 else None
    if target is None:
        return operators.as_expr(value)
    if target is dtypes.boolean:
        return operators.condition(value)
    if not isinstance(value, Expr) or (value.lanes == 1 and value.type != target):
        return operators.convert(value, target, what)
    return value


def _find(name: str) -> Any:
    row = INTRINSICS.get(name)
    if row is not None:
        function = IntrinsicFunction(row)
        return Call(row.name, (), row.result) if function.is_register else function  # type: ignore[arg-type]  # i32
    if any(known.startswith(f"{name}.") for known in INTRINSICS):
        return IntrinsicGroup(name)
    plain = name.removeprefix(PREFIX)
    raise AttributeError(f"hidet.lang.cuda has no {plain!r}; {suggestion(plain, __dir__())}")


_CACHE_LEVELS = ("always", "global")
_EVICTION = ("evict_normal", "evict_first")


def cp_async(
    dst: Any,
    src: Any,
    cp_size: int,
    src_size: Any = None,
    cache_level: str = "always",
    prefetch_bytes: int = 0,
    evict_policy: str = "evict_normal",
) -> Any:
    """Copy `cp_size` (4, 8 or 16) bytes from global to shared memory without waiting; see `copy_async_wait`.

    src_size: bytes that are read, the others become zero; None for all. cache_level, prefetch_bytes, evict_policy:
    advice of earlier versions, which is checked and not needed: copies of 16 bytes pass by the first-level cache.
    ScriptError for other values.
    """
    known = cache_level in _CACHE_LEVELS and prefetch_bytes in (0, 64, 128, 256) and evict_policy in _EVICTION
    if cp_size not in (4, 8, 16) or not known:
        given = f"{cp_size} bytes, {cache_level!r}, {prefetch_bytes}, {evict_policy!r}"
        raise ScriptError(
            f"cp_async got {given}",
            hint="it copies 4, 8 or 16 bytes; cache_level is 'always' or 'global', prefetch_bytes 0, 64, 128 or 256, "
            "evict_policy 'evict_normal' or 'evict_first'",
        )
    copy: IntrinsicFunction = _find(f"{PREFIX}copy_async_{cp_size}")
    return copy(dst, src, cp_size if src_size is None else src_size)


def mma_sync(config: MmaConfig, reg_a: Any, reg_b: Any, reg_c: Any) -> Any:
    """The product of a warp, reg_c += reg_a reg_b; the arguments are what each thread holds, as `config` has it."""
    product: IntrinsicFunction = _find(config.intrinsic)
    return product(reg_c, reg_a, reg_b)


dynamic_shared_memory = Primitive("dynamic_shared_memory")
ldmatrix = Primitive("ldmatrix")
register_tensor = Primitive("register_tensor")
shared_tensor = Primitive("shared_tensor")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _find(PREFIX + OTHER_NAMES.get(name, name))


def __dir__() -> list[str]:
    rows = {name.removeprefix(PREFIX).split(".")[0] for name in INTRINSICS}
    return sorted({*rows, *OTHER_NAMES, *__all__})


__all__ = [
    "OTHER_NAMES",
    "IntrinsicFunction",
    "IntrinsicGroup",
    "MmaConfig",
    "Operand",
    "contexts",
    "cp_async",
    "dynamic_shared_memory",
    "ldmatrix",
    "mma_sync",
    "register_tensor",
    "shared_tensor",
    "warp_groups",
]

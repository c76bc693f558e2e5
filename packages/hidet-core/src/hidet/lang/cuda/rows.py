"""Rows of the table `hidet.ir.intrinsics` as functions of scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import DTypeError, suggestion
from hidet.ir.expr import Call, Expr
from hidet.ir.intrinsics import INTRINSICS, PREFIX
from hidet.ir.intrinsics.call import intrinsic_call
from hidet.ir.intrinsics.signature import Immediate, Intrinsic, Memory, Parameter, Value
from hidet.ir.types import element_dtype
from hidet.lang import operators
from hidet.lang.operand import unwrapped
from hidet.lang.values import TensorValue

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
    "bar_sync": "barrier_sync",
    "fence": "threadfence",
    "nano_sleep": "nanosleep",
    "prmt": "byte_permute",
    "wgmma_commit_group": "wgmma_commit",
    "wgmma_wait_group": "wgmma_wait",
    "atomic_cas": "atomic_compare_exchange",
    "cp_async_commit_group": "copy_async_commit",
    "cp_async_wait_group": "copy_async_wait",
    "cp_async_wait_all": "copy_async_wait_all",
    "cvta_generic_to_shared": "shared_address",
    "mbarrier_init": "barrier_init",
    "mbarrier_wait": "barrier_wait",
    "mbarrier_arrive": "barrier_arrive_at",
    "mbarrier_arrive_and_expect_tx": "barrier_arrive_expect",
    "mbarrier_try_wait": "barrier_try_wait",
    "mbarrier_test_wait": "barrier_try_wait",
    "mbarrier_expect_transaction": "barrier_expect",
    "mbarrier_complete_transaction": "barrier_complete",
    "mbarrier_invalidate": "barrier_invalidate",
    "cp_async_barrier_arrive": "copy_async_arrive",
    "fence_view_async_shared": "fence_async_shared",
    "ldg": "load_constant",
}
"""Names as CUDA C++ and earlier versions spell them, and the rows they mean."""

_PARAMETER_NAMES = {"src_lane": ("lane",), "var": ("value",), "addr": ("place", "target", "source")}
"""Names of arguments as earlier versions have them, and what rows call them."""

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
        by_name = {
            next((own for own in _PARAMETER_NAMES.get(name, ()) if own in names), name): value
            for name, value in keywords.items()
        }
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

    @property
    def doc(self) -> str:
        """What each row takes and does, a line a row."""
        rows = [row for name, row in INTRINSICS.items() if name.startswith(f"{self.name}.")]
        return "\n".join(IntrinsicFunction(row).doc for row in rows)

    def __getattr__(self, name: str) -> Any:
        return find_row(f"{self.name}.{name}")

    def __call__(self, *arguments: Any) -> Any:
        """The call of the row for as many coordinates as are given, `tensor_load.2d` for two. DTypeError where rows are
        not told apart by that."""
        ranks = [row for rank in range(1, 6) if (row := INTRINSICS.get(f"{self.name}.{rank}d")) is not None]
        if not ranks:
            raise DTypeError(f"{self.name} is several operations", hint=suggestion("", dir(self)))
        found = [row for row in ranks if len(row.parameters) == len(arguments)]
        if not found:
            names = ", ".join(parameter.name for parameter in ranks[0].parameters)
            least, most = (len(row.parameters) for row in (ranks[0], ranks[-1]))
            raise DTypeError(f"{self.name} got {len(arguments)} arguments, expected {least} ({names}) to {most}")
        return IntrinsicFunction(found[0])(*arguments)

    def __dir__(self) -> list[str]:
        rows = [row[len(self.name) + 1 :] for row in INTRINSICS if row.startswith(f"{self.name}.")]
        return sorted({row.split(".")[0] for row in rows})


def _argument(value: Any) -> Any:
    if isinstance(value, TensorValue):
        return value.start()
    return operators.as_expr(value) if isinstance(value, Expr) else value


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


def find_row(name: str) -> Any:
    """The row called `name`, or the rows that begin with it. AttributeError where there is none."""
    row = INTRINSICS.get(name)
    if row is not None:
        function = IntrinsicFunction(row)
        return Call(row.name, (), row.result) if function.is_register else function  # type: ignore[arg-type]  # i32
    if any(known.startswith(f"{name}.") for known in INTRINSICS):
        return IntrinsicGroup(name)
    plain = name.removeprefix(PREFIX)
    raise AttributeError(f"hidet.lang.cuda has no {plain!r}; {suggestion(plain, row_names())}")


def row_names() -> set[str]:
    """What `hidet.lang.cuda` has from the table, with the spellings of CUDA C++."""
    return {*(name.removeprefix(PREFIX).split(".")[0] for name in INTRINSICS), *OTHER_NAMES}

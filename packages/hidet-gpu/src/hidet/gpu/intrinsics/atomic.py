"""Operations that read and write memory in one step, and accesses that other threads wait for."""

from __future__ import annotations

from hidet.dtypes import DType, bf16, f16, f32, f64, i32, i64, u32, u64
from hidet.gpu.intrinsics.family import GPU
from hidet.ir.intrinsic import ElementsOf, Intrinsic, Memory, SameAs, Value, table
from hidet.ir.types import MemorySpace

_SPACES: tuple[MemorySpace, ...] = ("global", "shared")

_OPERATIONS: tuple[tuple[str, str, tuple[DType, ...]], ...] = (
    ("add", "old + value", (i32, u32, u64, i64, f16, bf16, f32, f64)),
    ("min", "the smaller of old and value", (i32, u32, i64, u64)),
    ("max", "the larger of old and value", (i32, u32, i64, u64)),
    ("and", "old & value", (i32, u32, i64, u64)),
    ("or", "old | value", (i32, u32, i64, u64)),
    ("xor", "old ^ value", (i32, u32, i64, u64)),
    ("exchange", "value", (i32, u32, i64, u64, f32)),
    ("increment", "0 where old >= value, else old + 1", (u32,)),
    ("decrement", "value where old is 0 or > value, else old - 1", (u32,)),
)
_WITHOUT_RESULT = ("add", "min", "max", "and", "or", "xor")
_COUNTERS = (i32, u32, i64, u64)


def _place(dtypes: tuple[DType, ...]) -> Memory:
    return Memory("place", _SPACES, dtypes, group="value")


ATOMIC = table(
    *(
        Intrinsic(
            name=f"gpu.atomic_{name}",
            family=GPU,
            group="atomic",
            doc=f"replace old = *place by {doc}, unordered with other accesses, and give old",
            ptx="atom",
            parameters=(_place(dtypes), Value("value", dtypes, group="value")),
            result=SameAs("value"),
            effect="writes",
        )
        for name, doc, dtypes in _OPERATIONS
    ),
    *(
        Intrinsic(
            name=f"gpu.reduce_{name}_at",
            family=GPU,
            group="atomic",
            doc=f"replace old = *place by {doc}, unordered with other accesses",
            ptx="red",
            parameters=(_place(dtypes), Value("value", dtypes, group="value")),
            effect="writes",
        )
        for name, doc, dtypes in _OPERATIONS
        if name in _WITHOUT_RESULT
    ),
    Intrinsic(
        name="gpu.atomic_compare_exchange",
        family=GPU,
        group="atomic",
        doc="replace old = *place by value where it equals expected, and give old",
        ptx="atom",
        parameters=(
            _place(_COUNTERS),
            Value("expected", _COUNTERS, group="value"),
            Value("value", _COUNTERS, group="value"),
        ),
        result=SameAs("value"),
        effect="writes",
    ),
    Intrinsic(
        name="gpu.atomic_add_release",
        family=GPU,
        group="atomic",
        doc="as gpu.atomic_add; earlier accesses of this thread are visible to who acquires the result",
        ptx="atom",
        parameters=(_place(_COUNTERS), Value("value", _COUNTERS, group="value")),
        result=SameAs("value"),
        effect="waits",
    ),
    Intrinsic(
        name="gpu.load_acquire",
        family=GPU,
        group="atomic",
        doc="*place; later accesses of this thread see what was released before the value was written",
        ptx="ld",
        parameters=(Memory("place", ("global",), _COUNTERS),),
        result=ElementsOf("place", 8),
        effect="waits",
    ),
    Intrinsic(
        name="gpu.store_release",
        family=GPU,
        group="atomic",
        doc="write value; earlier accesses of this thread are visible to who acquires it",
        ptx="st",
        parameters=(Memory("place", ("global",), _COUNTERS, group="value"), Value("value", _COUNTERS, group="value")),
        effect="waits",
    ),
)

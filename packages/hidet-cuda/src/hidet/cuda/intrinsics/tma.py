"""Copies by the asynchronous engine: boxes of tensors that a tensor map describes, and plain runs of bytes.

A tensor map is 16 words of u64 made by the host, a kernel parameter in constant space. Coordinates count elements, the
fastest axis first, and may lie outside the tensor: reads give zero there and writes do nothing.
"""

from __future__ import annotations

from hidet.cuda.intrinsic_families import CUDA
from hidet.dtypes import bf16, f16, f32, i32, u16, u32, u64
from hidet.ir.intrinsic import Effect, Immediate, Intrinsic, Memory, Parameter, Value, table

_MAP = Memory("map", ("constant", "global"), (u64,), align=64, nbytes=128)
_TARGET = Memory("target", ("shared",), align=128)
_SOURCE = Memory("source", ("shared",), align=128)
_BARRIER = Memory("barrier", ("shared",), (u64,), nbytes=8)
_MASK = Value("blocks", (u16,))
_POLICY = Value("policy", (u64,))
_BYTES = Value("bytes", (i32,))
_FILTERS = ("x", "y", "z")


def _coordinates(rank: int) -> tuple[Parameter, ...]:
    return tuple(Value(f"coordinate_{axis}", (i32,)) for axis in range(rank))


def _tma(
    name: str, doc: str, ptx: str, *parameters: Parameter, effect: Effect = "writes", arch_specific: bool = False
) -> Intrinsic:
    return Intrinsic(
        name=f"cuda.{name}",
        family=CUDA,
        group="tma",
        doc=doc,
        ptx=ptx,
        parameters=parameters,
        effect=effect,
        arch=90,
        is_arch_specific=arch_specific,
    )


_TENSOR = "cp.async.bulk.tensor"

# (suffix, what it adds, parameters after the coordinates)
_LOAD_FORMS: tuple[tuple[str, str, tuple[Parameter, ...]], ...] = (
    ("", "", ()),
    ("_hint", ", under a cache policy", (_POLICY,)),
    ("_multicast", ", to the same place in every block of the cluster whose bit is set", (_MASK,)),
    ("_multicast_hint", ", to every block whose bit is set, under a cache policy", (_MASK, _POLICY)),
)

TMA = table(
    *(
        _tma(
            f"tensor_load{suffix}.{rank}d",
            f"start copying a box to shared memory{doc}; its bytes are counted at the barrier",
            _TENSOR,
            _TARGET,
            _MAP,
            _BARRIER,
            *_coordinates(rank),
            *extra,
        )
        for suffix, doc, extra in _LOAD_FORMS
        for rank in range(1, 6)
    ),
    *(
        _tma(
            f"tensor_load_im2col{suffix}.{rank}d",
            f"start copying columns of pixels, shifted by the filter's offsets{doc}; bytes are counted at the barrier",
            _TENSOR,
            _TARGET,
            _MAP,
            _BARRIER,
            *_coordinates(rank),
            *(Value(f"offset_{_FILTERS[axis]}", (u16,)) for axis in range(rank - 2)),
            *extra,
        )
        for suffix, doc, extra in _LOAD_FORMS
        for rank in range(3, 6)
    ),
    *(
        _tma(
            f"tensor_store.{rank}d",
            "start copying a box from shared memory; belongs to the next bulk group",
            _TENSOR,
            _MAP,
            _SOURCE,
            *_coordinates(rank),
        )
        for rank in range(1, 6)
    ),
    *(
        _tma(
            f"tensor_reduce_add.{rank}d",
            "start adding a box of shared memory to the tensor; belongs to the next bulk group",
            "cp.reduce.async.bulk.tensor",
            _MAP,
            _SOURCE,
            *_coordinates(rank),
        )
        for rank in range(1, 6)
    ),
    *(
        _tma(
            f"tensor_prefetch.{rank}d",
            "bring a box into the second-level cache",
            "cp.async.bulk.prefetch.tensor",
            _MAP,
            *_coordinates(rank),
        )
        for rank in range(1, 6)
    ),
    _tma("prefetch_tensor_map", "bring a tensor map into its cache", "prefetch", _MAP),
    _tma(
        "bulk_prefetch",
        "bring bytes, a multiple of 16, into the cache that all blocks share",
        "cp.async.bulk.prefetch",
        Memory("source", ("global",), align=16),
        _BYTES,
    ),
    _tma(
        "bulk_load",
        "start copying bytes, a multiple of 16, to shared memory; they are counted at the barrier",
        "cp.async.bulk",
        Memory("target", ("shared",), align=16),
        Memory("source", ("global",), align=16),
        _BYTES,
        _BARRIER,
    ),
    _tma(
        "bulk_load_hint",
        "as cuda.bulk_load, under a cache policy",
        "cp.async.bulk",
        Memory("target", ("shared",), align=16),
        Memory("source", ("global",), align=16),
        _BYTES,
        _BARRIER,
        _POLICY,
    ),
    _tma(
        "bulk_store",
        "start copying bytes, a multiple of 16, from shared memory; belongs to the next bulk group",
        "cp.async.bulk",
        Memory("target", ("global",), align=16),
        Memory("source", ("shared",), align=16),
        _BYTES,
    ),
    *(
        _tma(
            f"bulk_reduce_add.{dtype.short}",
            f"start adding {dtype} elements of shared memory, a multiple of 16 bytes; belongs to the next bulk group",
            "cp.reduce.async.bulk",
            Memory("target", ("global",), (dtype,), align=16),
            Memory("source", ("shared",), (dtype,), align=16),
            _BYTES,
        )
        for dtype in (f32, f16, bf16, i32, u32)
    ),
    _tma(
        "bulk_commit",
        "the bulk copies from shared memory that this thread has started become a group",
        "cp.async.bulk.commit_group",
    ),
    _tma(
        "bulk_wait",
        "wait until at most `groups` of this thread's latest groups are unfinished",
        "cp.async.bulk.wait_group",
        Immediate("groups", 0, 63),
        effect="waits",
    ),
    _tma(
        "bulk_wait_read",
        "wait until all but `groups` of this thread's latest groups have read their source",
        "cp.async.bulk.wait_group",
        Immediate("groups", 0, 63),
        effect="waits",
    ),
)

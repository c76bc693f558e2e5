"""PTX of the intrinsics that are one instruction, or a few, by name (PTX ISA; the row's `ptx` is the manual's page)."""

from __future__ import annotations

from hidet import dtypes
from hidet.cuda.codegen.hardware.assembly import Assembly
from hidet.cuda.intrinsics import PLAIN
from hidet.dtypes import DType
from hidet.ir.intrinsic import Immediate, Intrinsic, MatrixShape

_PTX_TYPES: dict[DType, str] = {
    dtypes.f16: "f16",
    dtypes.bf16: "bf16",
    dtypes.tf32: "tf32",
    dtypes.f32: "f32",
    dtypes.f64: "f64",
    dtypes.i8: "s8",
    dtypes.u8: "u8",
    dtypes.i32: "s32",
    dtypes.u32: "u32",
    dtypes.f8e4m3: "e4m3",
    dtypes.f8e5m2: "e5m2",
}


def _mma(row: Intrinsic, m: MatrixShape) -> Assembly:
    types = ".".join(_PTX_TYPES[t] for t in (m.accumulator, m.a, m.b, m.accumulator))
    head = f"mma.sync.aligned.m{m.m}n{m.n}k{m.k}.row.col.{types}"
    return Assembly(f"{head} {{d}}, {{a}}, {{b}}, {{d}};", updates=("d",))


def _wgmma(row: Intrinsic, m: MatrixShape) -> Assembly:
    """Whether d is added is a predicate; integers have no signs, and only 2-byte operands have an order."""
    head = f"wgmma.mma_async.sync.aligned.m64n{m.n}k{m.k}.{'.'.join(_PTX_TYPES[t] for t in (m.accumulator, m.a, m.b))}"
    first = "{a}" if row.name.startswith("cuda.wgmma_registers") else "{descriptor_a}"
    signs = "" if m.accumulator is dtypes.i32 else ", 1, 1"
    orders = "".join(f", {{{p.name}}}" for p in row.parameters if isinstance(p, Immediate))
    predicate = ".reg .pred p; setp.ne.b32 p, {accumulate}, 0; "
    return Assembly(f"{{ {predicate}{head} {{d}}, {first}, {{descriptor_b}}, p{signs}{orders}; }}", updates=("d",))


def _coordinates(row: Intrinsic) -> str:
    names = [p.name for p in row.parameters if p.name.startswith("coordinate_")]
    return f"{{{', '.join(f'{{{name}}}' for name in names)}}}"


def _tensor_load(row: Intrinsic) -> Assembly:
    rank = row.name[-2]
    names = {p.name for p in row.parameters}
    is_im2col = "im2col" in row.name
    offsets = [p.name for p in row.parameters if p.name.startswith("offset_")]
    ptx = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{'im2col' if is_im2col else 'tile'}"
    ptx += ".mbarrier::complete_tx::bytes"
    ptx += ".multicast::cluster" if "blocks" in names else ""
    ptx += ".L2::cache_hint" if "policy" in names else ""
    ptx += f" [{{target}}], [{{map}}, {_coordinates(row)}], [{{barrier}}]"
    ptx += f", {{{', '.join(f'{{{name}}}' for name in offsets)}}}" if offsets else ""
    ptx += ", {blocks}" if "blocks" in names else ""
    ptx += ", {policy}" if "policy" in names else ""
    return Assembly(ptx + ";")


def _tensor_other(row: Intrinsic) -> Assembly:
    rank, place = row.name[-2], f"[{{map}}, {_coordinates(row)}]"
    if row.name.startswith("cuda.tensor_store"):
        return Assembly(f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group {place}, [{{source}}];")
    if row.name.startswith("cuda.tensor_reduce_add"):
        head = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.tile.bulk_group"
        return Assembly(f"{head} {place}, [{{source}}];")
    return Assembly(f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile {place};")


_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_BULK_ADD = {
    "f32": "add.f32",
    "f16": "add.noftz.f16",
    "bf16": "add.noftz.bf16",
    "i32": "add.s32",
    "u32": "add.u32",
}
_PAIR_SUFFIX = {"add": "", "sub": "", "mul": "", "fma": ".rn", "min": ".NaN", "max": ".NaN"}
_TEST = "{ .reg .pred p; %s; selp.u32 {result}, 1, 0, p; }"

_PLAIN: dict[str, str | Assembly] = {
    "lane_idx": "mov.u32 {result}, %%laneid;",
    "sm_idx": "mov.u32 {result}, %%smid;",
    "clock": "mov.u64 {result}, %%clock64;",
    "global_timer": "mov.u64 {result}, %%globaltimer;",
    "block_rank_in_cluster": "mov.u32 {result}, %%cluster_ctarank;",
    "cluster_size": "mov.u32 {result}, %%cluster_nctarank;",
    "barrier_sync": "barrier.cta.sync.aligned {barrier}, {threads};",
    "barrier_arrive": "barrier.cta.arrive.aligned {barrier}, {threads};",
    "cluster_arrive": "barrier.cluster.arrive.release.aligned;",
    "cluster_arrive_relaxed": "barrier.cluster.arrive.relaxed.aligned;",
    "cluster_wait": "barrier.cluster.wait.acquire.aligned;",
    "fence_async_shared": "fence.proxy.async.shared::cta;",
    "fence_async": "fence.proxy.async;",
    "fence_barrier_init": "fence.mbarrier_init.release.cluster;",
    "grid_dependency_wait": "griddepcontrol.wait;",
    "grid_dependency_launch": "griddepcontrol.launch_dependents;",
    "grid_dependency_end": "",  # its pass has put something in its place, or there is nothing to wait for
    "register_increase": "setmaxnreg.inc.sync.aligned.u32 {registers};",
    "register_decrease": "setmaxnreg.dec.sync.aligned.u32 {registers};",
    "trap": "trap;",
    "nanosleep": "nanosleep.u32 {nanoseconds};",
    "elect": "{ .reg .pred p; elect.sync _|p, {mask}; selp.u32 {result}, 1, 0, p; }",
    "active_mask": "activemask.b32 {result};",
    "copy_async": "cp.async.cg.shared.global.L2::128B [{target}], [{source}], 16;",
    "copy_async_finish": "cp.async.wait_all;",
    "copy_async_4": "cp.async.ca.shared.global [{target}], [{source}], 4, {valid};",
    "copy_async_8": "cp.async.ca.shared.global [{target}], [{source}], 8, {valid};",
    "copy_async_16": "cp.async.cg.shared.global.L2::128B [{target}], [{source}], 16, {valid};",
    "copy_async_commit": "cp.async.commit_group;",
    "copy_async_wait": "cp.async.wait_group {groups};",
    "copy_async_wait_all": "cp.async.wait_all;",
    "copy_async_arrive": "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{barrier}];",
    "prefetch_l2": "prefetch.global.L2 [{source}];",
    "cache_policy_evict_first": "createpolicy.fractional.L2::evict_first.b64 {result}, 1.0;",
    "cache_policy_evict_last": "createpolicy.fractional.L2::evict_last.b64 {result}, 1.0;",
    "barrier_init": "mbarrier.init.shared::cta.b64 [{barrier}], {count};",
    "barrier_invalidate": "mbarrier.inval.shared::cta.b64 [{barrier}];",
    "barrier_arrive_at": "{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [{barrier}]; }",
    "barrier_arrive_expect": "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {bytes};",
    "barrier_expect": "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{barrier}], {bytes};",
    "barrier_complete": "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [{barrier}], {bytes};",
    "barrier_try_wait": _TEST % "mbarrier.try_wait.parity.shared::cta.b64 p, [{barrier}], {parity}",
    # Labels need names of their own where the function is inlined twice. With a limit of time (ns) a warp sleeps until
    # the phase is over; without one it asks again every 20 cycles, which takes power.
    "barrier_wait": "{ .reg .pred p; wait_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [{barrier}], {parity}, "
    "10000000; @!p bra wait_%=; }",
    "barrier_arrive_remote": "{ .reg .b32 place; mapa.shared::cluster.u32 place, {barrier}, {rank}; "
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [place]; }",
    # A release would fence the device.
    "barrier_arrive_remote_relaxed": "{ .reg .b32 place; mapa.shared::cluster.u32 place, {barrier}, {rank}; "
    "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [place]; }",
    "prefetch_tensor_map": "prefetch.tensormap [{map}];",
    "bulk_prefetch": "cp.async.bulk.prefetch.L2.global [{source}], {bytes};",
    "bulk_load": f"{_BULK} [{{target}}], [{{source}}], {{bytes}}, [{{barrier}}];",
    "bulk_load_hint": f"{_BULK}.L2::cache_hint [{{target}}], [{{source}}], {{bytes}}, [{{barrier}}], {{policy}};",
    "bulk_store": "cp.async.bulk.global.shared::cta.bulk_group [{target}], [{source}], {bytes};",
    "bulk_commit": "cp.async.bulk.commit_group;",
    "bulk_wait": "cp.async.bulk.wait_group {groups};",
    "bulk_wait_read": "cp.async.bulk.wait_group.read {groups};",
    "wgmma_fence": "wgmma.fence.sync.aligned;",
    "wgmma_commit": "wgmma.commit_group.sync.aligned;",
    "wgmma_wait": "wgmma.wait_group.sync.aligned {groups};",
    # The first operand of a packing conversion becomes the upper half.
    "pack_f16": "cvt.rn.f16x2.f32 {result}, {high}, {low};",
    "pack_bf16": "cvt.rn.bf16x2.f32 {result}, {high}, {low};",
    "round_tf32": "cvt.rna.tf32.f32 {result}, {a};",
    "pack_f8e4m3": "cvt.rn.satfinite.e4m3x2.f32 {result}, {high}, {low};",
    "pack_f8e5m2": "cvt.rn.satfinite.e5m2x2.f32 {result}, {high}, {low};",
    "unpack_f8e4m3": "cvt.rn.f16x2.e4m3x2 {result}, {a};",
    "unpack_f8e5m2": "cvt.rn.f16x2.e5m2x2 {result}, {a};",
    "exp2_approx": "ex2.approx.ftz.f32 {result}, {a};",
    "log2_approx": "lg2.approx.f32 {result}, {a};",
    "reciprocal_approx": "rcp.approx.ftz.f32 {result}, {a};",
    "rsqrt_approx": "rsqrt.approx.f32 {result}, {a};",
    "sqrt_approx": "sqrt.approx.f32 {result}, {a};",
    "sin_approx": "sin.approx.f32 {result}, {a};",
    "cos_approx": "cos.approx.f32 {result}, {a};",
    "tanh_approx": "tanh.approx.f32 {result}, {a};",
    "dot_4": "dp4a.s32.s32 {result}, {a}, {b}, {c};",
    "dot_4_unsigned": "dp4a.u32.u32 {result}, {a}, {b}, {c};",
    "lop3": "lop3.b32 {result}, {a}, {b}, {c}, {lut};",
    "byte_permute": "prmt.b32 {result}, {a}, {b}, {selector};",
    "insert_bits": "bfi.b32 {result}, {a}, {b}, {position}, {length};",
    "funnel_shift_left": "shf.l.wrap.b32 {result}, {low}, {high}, {shift};",
    "funnel_shift_right": "shf.r.wrap.b32 {result}, {low}, {high}, {shift};",
    "reduce_add_x2_at": "red.global.add.v2.f32 [{place}], {value};",
    "reduce_add_x4_at": "red.global.add.v4.f32 [{place}], {value};",
    **{
        f"{op}_{short}x2": f"{op}{_PAIR_SUFFIX[op]}.{short}x2 {{result}}, {', '.join(words)};"
        for op, words in {
            **dict.fromkeys(("add", "sub", "mul", "min", "max"), ("{a}", "{b}")),
            "fma": ("{a}", "{b}", "{c}"),
        }.items()
        for short in ("f16", "bf16")
    },
    # Before sm_90 bf16 pairs have fma alone: a + b = a * 1 + b and a * b = a * b + -0 round the same.
    "add_bf16x2": "{ .reg .b32 one; mov.b32 one, 0x3f803f80; fma.rn.bf16x2 {result}, {a}, one, {b}; }",
    "sub_bf16x2": "{ .reg .b32 one; mov.b32 one, 0xbf80bf80; fma.rn.bf16x2 {result}, {b}, one, {a}; }",
    "mul_bf16x2": "{ .reg .b32 zero; mov.b32 zero, 0x80008000; fma.rn.bf16x2 {result}, {a}, {b}, zero; }",
    **{
        f"bulk_reduce_add.{short}": "cp.reduce.async.bulk.global.shared::cta.bulk_group."
        f"{operation} [{{target}}], [{{source}}], {{bytes}};"
        for short, operation in _BULK_ADD.items()
    },
    **{
        f"load_matrix_x{count}{suffix}": Assembly(
            f"ldmatrix.sync.aligned.m8n8.x{count}{ptx}.shared.b16 {{target}}, [{{row}}];", writes=("target",)
        )
        for count in (1, 2, 4)
        for suffix, ptx in (("", ""), ("_transposed", ".trans"))
    },
    **{
        f"store_matrix_x{count}{suffix}": f"stmatrix.sync.aligned.m8n8.x{count}{ptx}.shared.b16 [{{row}}], {{source}};"
        for count in (1, 2, 4)
        for suffix, ptx in (("", ""), ("_transposed", ".trans"))
    },
}

_REGISTERS = {
    "block_idx_in_cluster": "cluster_ctaid",
    "cluster_dim": "cluster_nctaid",
    "cluster_idx": "clusterid",
    "cluster_grid_dim": "nclusterid",
}


def assembly_of(row: Intrinsic) -> Assembly | None:
    """The PTX of an intrinsic; None for those that are spelled otherwise, and those of other wheels."""
    if PLAIN.get(row.name.partition(".")[2]) is not row:
        return None
    if row.matrix is not None:
        return (_mma if row.group == "mma" else _wgmma)(row, row.matrix)
    if row.name.startswith("cuda.wgmma_results"):
        return Assembly("", updates=("d",))
    if row.name.startswith("cuda.tensor_load"):
        return _tensor_load(row)
    if row.name.startswith("cuda.tensor_"):
        return _tensor_other(row)
    plain = row.name.partition(".")[2]
    base, _, axis = plain.rpartition(".")
    if base in _REGISTERS:
        return Assembly(f"mov.u32 {{result}}, %%{_REGISTERS[base]}.{axis};")
    found = _PLAIN.get(plain)
    return Assembly(found) if isinstance(found, str) else found


def unknown_names() -> list[str]:
    """Names of the table that no intrinsic has."""
    return [name for name in _PLAIN if name not in PLAIN]

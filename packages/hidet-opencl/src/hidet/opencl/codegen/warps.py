"""How the 32 lanes of a warp exchange values, in what each device's compiler takes for it.

Sub-groups that a kernel may ask to have 32 lanes (cl_intel_required_subgroup_size with cl_khr_subgroup_shuffle and
cl_khr_subgroup_ballot) are warps. NVIDIA's OpenCL has no sub-groups; its compiler takes PTX, whose warps have 32 lanes
always (PTX ISA, "Parallel Synchronization and Communication Instructions").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hidet.opencl.codegen.pieces import INLINE

LANES = 32


@dataclass(frozen=True, slots=True)
class Warps:
    """attribute: what stands in front of a kernel. text: `warp_lane`, `warp_active`, `warp_ballot`, `warp_barrier` and
    `warp_shuffle` of every type of numbers, each with the mask of the lanes that take part. block: `block_count`,
    `block_all` and `block_any`, which all items of a block call."""

    attribute: str
    text: str
    block: str


_SIGNED = ("char", "short", "int")
_UNSIGNED = ("uchar", "ushort", "uint")

_FENCES = "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE"

_GROUP = f"""{INLINE} int block_count(int p) {{ return work_group_reduce_add((int)(p != 0)); }}
{INLINE} bool block_all(int p) {{ return work_group_all(p) != 0; }}
{INLINE} bool block_any(int p) {{ return work_group_any(p) != 0; }}
"""

SUB_GROUPS = Warps(
    attribute=f"__attribute__((intel_reqd_sub_group_size({LANES}))) ",
    text=f"""{INLINE} int warp_lane(void) {{ return (int)get_sub_group_local_id(); }}
{INLINE} uint warp_active(void) {{ return sub_group_ballot(1).x; }}
{INLINE} uint warp_ballot(uint mask, int p) {{ return sub_group_ballot(p).x & mask; }}
#define warp_barrier(mask) sub_group_barrier({_FENCES})
#define warp_shuffle(mask, a, from) sub_group_shuffle(a, (uint)(from))
""",
    block=_GROUP,
)


def _nvidia_shuffles() -> Iterator[str]:
    word = 'asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, %3;" : "=r"(r) : "r"(a), "r"(from), "r"(mask));'
    yield f"{INLINE} uint warp_shuffle(uint mask, uint a, int from) {{ uint r; {word} return r; }}"
    for name in (*_SIGNED, *_UNSIGNED[:2]):
        moved = "warp_shuffle(mask, (uint)a, from)"
        yield f"{INLINE} {name} warp_shuffle(uint mask, {name} a, int from) {{ return ({name}){moved}; }}"
    low, high = "warp_shuffle(mask, (uint)a, from)", "warp_shuffle(mask, (uint)(a >> 32), from)"
    yield f"{INLINE} ulong warp_shuffle(uint mask, ulong a, int from) {{ return {low} | (ulong){high} << 32; }}"
    for name, bits in (("long", "ulong"), ("float", "uint"), ("double", "ulong")):
        moved = f"as_{name}(warp_shuffle(mask, as_{bits}(a), from))"
        text = f"{INLINE} {name} warp_shuffle(uint mask, {name} a, int from) {{ return {moved}; }}"
        yield f"#ifdef WITH_DOUBLES\n{text}\n#endif" if name == "double" else text


def _vote(name: str, instruction: str) -> str:
    given = f"{{.reg .pred p, q; setp.ne.s32 p, %1, 0; {instruction} q, 0, p; selp.s32 %0, 1, 0, q;}}"
    body = f'int r; asm volatile("{given}" : "=r"(r) : "r"(p) : "memory"); return r != 0;'
    return f"{INLINE} bool {name}(int p) {{ {body} }}"


_BALLOT = "{.reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, %2;}"
_COUNT = "{.reg .pred p; setp.ne.s32 p, %1, 0; bar.red.popc.u32 %0, 0, p;}"

NVIDIA = Warps(
    attribute="",
    text="\n".join(
        [
            f'{INLINE} int warp_lane(void) {{ int r; asm("mov.u32 %0, %%laneid;" : "=r"(r)); return r; }}',
            f'{INLINE} uint warp_active(void) {{ uint r; asm volatile("activemask.b32 %0;" : "=r"(r)); return r; }}',
            f"{INLINE} uint warp_ballot(uint mask, int p) {{",
            f'  uint r; asm volatile("{_BALLOT}" : "=r"(r) : "r"(p), "r"(mask)); return r;',
            "}",
            f"{INLINE} void warp_barrier(uint mask) {{",
            '  asm volatile("bar.warp.sync %0;" : : "r"(mask) : "memory");',
            "}",
            *_nvidia_shuffles(),
            "",
        ]
    ),
    block="\n".join(
        [
            f"{INLINE} int block_count(int p) {{",
            f'  int r; asm volatile("{_COUNT}" : "=r"(r) : "r"(p) : "memory"); return r;',
            "}",
            _vote("block_all", "bar.red.and.pred"),
            _vote("block_any", "bar.red.or.pred"),
            "",
        ]
    ),
)

NONE = Warps("", "", _GROUP)
"""A device without warps: rules that need them leave it alone."""

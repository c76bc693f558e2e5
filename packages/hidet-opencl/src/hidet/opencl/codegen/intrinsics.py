"""Operations of a GPU in OpenCL C.

What a device lacks is replaced: atomic operations of floats by a loop that compares and exchanges words. What lanes of
a warp do together is spelled by functions that `hidet.opencl.codegen.warps` has for each kind of device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hidet import dtypes
from hidet.errors import CodegenError
from hidet.gpu.codegen.prelude import Piece
from hidet.gpu.codegen.text import Text, call
from hidet.ir.types import BufferType, PointerType, element_dtype
from hidet.opencl.codegen.pieces import INLINE
from hidet.opencl.codegen.spelling import SPELLING, WORD_STRUCTS

if TYPE_CHECKING:
    from hidet.dtypes import DType
    from hidet.gpu.codegen.expression import ExpressionEmitter
    from hidet.ir.expr import Expr
    from hidet.ir.intrinsic import Intrinsic
    from hidet.ir.types import Type

Spell = Callable[["ExpressionEmitter", "list[Expr]", "list[Text]"], Text]

_FENCES = "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE"
_WORDS = {4: "uint", 8: "ulong"}

_LANES = {
    "shuffle": "(lane & ~(width - 1)) | (other & (width - 1))",
    "shuffle_up": "(lane & (width - 1)) < other ? lane : lane - other",
    "shuffle_down": "(lane & (width - 1)) + other >= width ? lane : lane + other",
    "shuffle_xor": "(lane & (width - 1) ^ other) >= width ? lane : lane ^ other",
}
"""The lane whose value is taken, of the lane's own number, what is given, and the width of a part."""

_UPDATES = {
    "add": "old + value",
    "min": "value < old ? value : old",
    "max": "value > old ? value : old",
    "and": "old & value",
    "or": "old | value",
    "xor": "old ^ value",
    "exchange": "value",
    "increment": "old >= value ? 0 : old + 1",
    "decrement": "old == 0 || old > value ? value : old - 1",
}
_NATIVE = {"add": "add", "min": "min", "max": "max", "and": "and", "or": "or", "xor": "xor", "exchange": "xchg"}


def spell_intrinsic(emitter: ExpressionEmitter, row: Intrinsic, arguments: list[Expr], type_: Type) -> Text:
    """A call of `row`. CodegenError where OpenCL has no spelling of it."""
    spell = _SPELLINGS.get(row.name)
    if spell is not None:
        return spell(emitter, arguments, [emitter.value(a) for a in arguments])
    given = row.family.spelling("opencl", row.name)
    if not isinstance(given, str):
        raise CodegenError(f"intrinsic {row.name} of {row.family.name} has no OpenCL spelling")
    return Text(f"({given.format(*[emitter.value(a).text for a in arguments])})")


def _plain(text: str) -> Spell:
    return lambda emitter, nodes, texts: Text(text.format(*(t.text for t in texts)))


def _shuffle(name: str) -> Spell:
    def spell(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text]) -> Text:
        mask, value, other, width = texts
        dtype = nodes[1].dtype
        type_, helper = SPELLING.scalar_type(dtype), f"{name}_{dtype.short}"
        moved = "warp_shuffle(mask, a{}, from)"
        body = (
            f"a.bits = {moved.format('.bits')}; return a;" if dtype in WORD_STRUCTS else f"return {moved.format('')};"
        )
        lines = f"int lane = warp_lane(), from = {_LANES[name]}; {body}"
        needs = (dtype.short,) if dtype in WORD_STRUCTS else ()
        text = f"{INLINE} {type_} {helper}(uint mask, {type_} a, int other, int width) {{ {lines} }}"
        emitter.prelude.add(Piece(helper, text, needs))
        return call(helper, mask, value, other, width)

    return spell


def _space(node: Expr) -> str:
    type_ = node.type
    assert isinstance(type_, PointerType | BufferType)
    if type_.space == "generic":
        raise CodegenError(
            "an atomic operation has a place of which the kernel does not say whether it is global or shared",
            hint="take the address of an array",
        )
    return "__local" if type_.space == "shared" else "__global"


def _atomic(name: str) -> Spell:
    def spell(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text]) -> Text:
        dtype, space = element_dtype(nodes[0].type), _space(nodes[0])
        native = _NATIVE.get(name) if dtype.is_int or (name, dtype) == ("exchange", dtypes.f32) else None
        if native is not None:
            pointer = f"(volatile {space} {SPELLING.scalar_type(dtype)}*)"
            prefix = "atom" if dtype.nbytes == 8 else "atomic"
            return call(f"{prefix}_{native}", Text(f"{pointer}{texts[0].inside(14)}"), texts[1])
        piece = _narrow_loop(name, dtype, space) if dtype.nbytes == 2 else _loop(name, dtype, space)
        emitter.prelude.add(piece)
        return call(piece.name, *texts)

    return spell


def _loop(name: str, dtype: DType, space: str) -> Piece:
    """An operation by comparing and exchanging words."""
    type_, word = SPELLING.scalar_type(dtype), _WORDS[dtype.nbytes]
    exchange = "atom_cmpxchg" if dtype.nbytes == 8 else "atomic_cmpxchg"
    helper = f"atomic_{name}_{type_}_{space.strip('_')}"
    text = f"""{INLINE} {type_} {helper}({space} {type_}* place, {type_} value) {{
  volatile {space} {word}* words = (volatile {space} {word}*)place;
  {word} seen, was = *words;
  {type_} old;
  do {{
    seen = was;
    old = as_{type_}(seen);
    was = {exchange}(words, seen, as_{word}(({type_})({_UPDATES[name]})));
  }} while (was != seen);
  return old;
}}"""
    return Piece(helper, text)


def _narrow_loop(name: str, dtype: DType, space: str) -> Piece:
    """An addition of two bytes: the word around them is compared and exchanged."""
    short, helper = dtype.short, f"atomic_{name}_{dtype.short}_{space.strip('_')}"
    text = f"""{INLINE} {short} {helper}({space} {short}* place, {short} value) {{
  volatile {space} uint* word = (volatile {space} uint*)((size_t)place & ~(size_t)3);
  int shift = (size_t)place & 2 ? 16 : 0;
  uint seen, was = *word;
  {short} old;
  do {{
    seen = was;
    old.bits = (ushort)(seen >> shift);
    uint sum = to_{short}(to_f32(old) + to_f32(value)).bits;
    was = atomic_cmpxchg(word, seen, (seen & ~(0xffffu << shift)) | sum << shift);
  }} while (was != seen);
  return old;
}}"""
    return Piece(helper, text, (short,))


def _compare_exchange(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text]) -> Text:
    dtype = element_dtype(nodes[0].type)
    pointer = f"(volatile {_space(nodes[0])} {SPELLING.scalar_type(dtype)}*){texts[0].inside(14)}"
    return call("atom_cmpxchg" if dtype.nbytes == 8 else "atomic_cmpxchg", Text(pointer), *texts[1:])


def _released_add(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text]) -> Text:
    emitter.line(f"mem_fence({_FENCES});")
    return _atomic("add")(emitter, nodes, texts)


def _acquired_load(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text]) -> Text:
    dtype, space = element_dtype(nodes[0].type), _space(nodes[0])
    type_, add = SPELLING.scalar_type(dtype), "atom_add" if dtype.nbytes == 8 else "atomic_add"
    helper = f"load_acquire_{type_}"
    body = f"{type_} r = {add}((volatile {space} {type_}*)place, ({type_})0); mem_fence({_FENCES}); return r;"
    emitter.prelude.add(Piece(helper, f"{INLINE} {type_} {helper}({space} {type_}* place) {{ {body} }}"))
    return call(helper, texts[0])


def _released_store(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text]) -> Text:
    emitter.line(f"mem_fence({_FENCES});")
    return _atomic("exchange")(emitter, nodes, texts)


_EXTRACT = """INLINE TYPE extract_bits(TYPE a, uint position, uint length) {
  if (length == 0 || position > 31) return IS_SIGNED && position > 31 && length ? a >> 31 : 0;
  if (position + length > 32) length = 32 - position;
  return (TYPE)((uint)a << (32 - position - length)) >> (32 - length);
}"""
_INSERT = """INLINE uint insert_bits(uint a, uint b, uint position, uint length) {
  if (length == 0 || position > 31) return b;
  uint mask = (length > 31 ? 0xffffffffu : (1u << length) - 1u) << position;
  return (b & ~mask) | (a << position & mask);
}"""
_REVERSE = """INLINE TYPE reverse_bits(TYPE a) {
  TYPE r = 0;
  for (int n = 0; n < (int)sizeof(TYPE) * 8; ++n) r = r << 1 | (a >> n & 1);
  return r;
}"""


def _helper(name: str, text: str, *types: str) -> Spell:
    both = "\n".join(text.replace("TYPE", t).replace("IS_SIGNED", "0" if t[0] == "u" else "1") for t in types)
    piece = Piece(name, both.replace("INLINE", INLINE))

    def spell(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text]) -> Text:
        emitter.prelude.add(piece)
        return call(name, *texts)

    return spell


def _fma(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text]) -> Text:
    return emitter.fma(nodes[0].dtype, *texts)


_AXES = {"x": 0, "y": 1, "z": 2}

_SPELLINGS: dict[str, Spell] = {
    "prefetch": _plain("(void)0"),
    "poll": _plain("(void)0"),
    **{f"gpu.thread_idx.{a}": _plain(f"(int)get_local_id({n})") for a, n in _AXES.items()},
    **{f"gpu.block_dim.{a}": _plain(f"(int)get_local_size({n})") for a, n in _AXES.items()},
    **{f"gpu.block_idx.{a}": _plain(f"(int)get_group_id({n})") for a, n in _AXES.items()},
    **{f"gpu.grid_dim.{a}": _plain(f"(int)get_num_groups({n})") for a, n in _AXES.items()},
    "gpu.lane_idx": _plain("warp_lane()"),
    "gpu.syncthreads": _plain(f"barrier({_FENCES})"),
    "gpu.syncthreads_count": _plain("block_count({0})"),
    "gpu.syncthreads_and": _plain("block_all({0})"),
    "gpu.syncthreads_or": _plain("block_any({0})"),
    "gpu.syncwarp": _plain("warp_barrier({0})"),
    "gpu.threadfence_block": _plain(f"mem_fence({_FENCES})"),
    "gpu.threadfence": _plain(f"mem_fence({_FENCES})"),
    "gpu.threadfence_system": _plain(f"mem_fence({_FENCES})"),
    **{f"gpu.{name}": _shuffle(name) for name in _LANES},
    "gpu.vote_all": _plain("(warp_ballot({0}, {1}) == {0})"),
    "gpu.vote_any": _plain("(warp_ballot({0}, {1}) != 0)"),
    "gpu.vote_ballot": _plain("warp_ballot({0}, {1})"),
    "gpu.vote_uniform": _plain("(warp_ballot({0}, {1}) == {0} || warp_ballot({0}, {1}) == 0)"),
    "gpu.active_mask": _plain("warp_active()"),
    **{f"gpu.atomic_{name}": _atomic(name) for name in _UPDATES},
    **{f"gpu.reduce_{name}_at": _atomic(name) for name in ("add", "min", "max", "and", "or", "xor")},
    "gpu.atomic_compare_exchange": _compare_exchange,
    "gpu.atomic_add_release": _released_add,
    "gpu.load_acquire": _acquired_load,
    "gpu.store_release": _released_store,
    "gpu.dynamic_shared_memory": _plain("(shared_memory + ({0}))"),
    "gpu.copy_async": _plain("(void)(*(__local uint4*)({0}) = *(const __global uint4*)({1}))"),
    "gpu.copy_async_finish": _plain("(void)0"),
    "gpu.fma": _fma,
    "gpu.exp2_approx": _plain("exp2({0})"),
    "gpu.log2_approx": _plain("log2({0})"),
    "gpu.reciprocal_approx": _plain("(1.0f / ({0}))"),
    "gpu.rsqrt_approx": _plain("rsqrt({0})"),
    "gpu.sqrt_approx": _plain("sqrt({0})"),
    "gpu.sin_approx": _plain("sin({0})"),
    "gpu.cos_approx": _plain("cos({0})"),
    "gpu.tanh_approx": _plain("tanh({0})"),
    "gpu.population_count": _plain("(int)popcount({0})"),
    "gpu.leading_zeros": _plain("(int)clz({0})"),
    "gpu.reverse_bits": _helper("reverse_bits", _REVERSE, "uint", "ulong"),
    "gpu.find_first_set": _plain("(({0}) ? (int)popcount((({0}) & -({0})) - 1) + 1 : 0)"),
    "gpu.extract_bits": _helper("extract_bits", _EXTRACT, "int", "uint"),
    "gpu.insert_bits": _helper("insert_bits", _INSERT, "uint"),
    "gpu.multiply_high": _plain("mul_hi({0}, {1})"),
}
"""By the name of the row."""

NEEDS_WARPS = frozenset(
    {"gpu.lane_idx", "gpu.syncwarp", "gpu.active_mask", *(f"gpu.{name}" for name in _LANES)}
    | {name for name in _SPELLINGS if name.startswith("gpu.vote_")}
)
"""Rows that use a warp's lanes."""
NEEDS_BLOCKS = frozenset(f"gpu.syncthreads_{name}" for name in ("count", "and", "or"))
"""Rows that ask all threads of a block."""

"""Intrinsics that CUDA C++ has as builtin functions or variables, and those whose form depends on their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hidet import dtypes
from hidet.cuda.codegen.pieces import inline
from hidet.cuda.codegen.spelling import SPELLING, WORD_STRUCTS
from hidet.errors import CodegenError
from hidet.gpu.codegen.prelude import Piece
from hidet.gpu.codegen.text import Text, call, cast
from hidet.ir.types import Type, element_dtype, lanes_of

if TYPE_CHECKING:
    from hidet.gpu.codegen.expression import ExpressionEmitter
    from hidet.ir.expr import Expr

Spell = Callable[["ExpressionEmitter", "list[Expr]", "list[Text]", Type], Text]

_WORDS = {
    1: ("unsigned char", "u8", "r"),
    2: ("unsigned short", "u16", "h"),
    4: ("unsigned", "u32", "r"),
    8: ("unsigned long long", "u64", "l"),
}


def _plain(text: str) -> Spell:
    """An expression without arguments."""
    return lambda emitter, nodes, texts, type_: Text(text)


def _function(name: str) -> Spell:
    """A builtin function of the same arguments."""
    return lambda emitter, nodes, texts, type_: call(name, *texts)


def _shuffle(name: str) -> Spell:
    def spell(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
        mask, value, lane, width = texts
        if nodes[1].dtype not in WORD_STRUCTS:
            return call(name, mask, value, lane, width)
        helper = name.strip("_") + "_bits"
        body = f"a.bits = (unsigned short){name}(mask, (unsigned)a.bits, lane, width); return a;"
        text = f"template <class T> {inline(f'T {helper}(unsigned mask, T a, int lane, int width)', body)}"
        emitter.prelude.add(Piece(helper, text))
        return call(helper, mask, value, lane, width)

    return spell


def _atomic(name: str) -> Spell:
    """Builtins take unsigned 64-bit integers; two's complement makes signed ones the same, but for their order."""

    def spell(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
        dtype = element_dtype(nodes[0].type)
        if dtype in WORD_STRUCTS:
            return _narrow_add(emitter, dtype.short, texts)
        ordered = name in ("atomicMin", "atomicMax")
        if dtype is dtypes.i64 and not ordered:
            place, *values = texts
            unsigned = "unsigned long long"
            return cast("long long", call(name, cast(f"{unsigned}*", place), *(cast(unsigned, v) for v in values)))
        return call(name, *texts)

    return spell


def _narrow_add(emitter: ExpressionEmitter, short: str, texts: list[Text]) -> Text:
    helper = f"atomic_add_{short}"
    # 16-bit bf16 atomics are sm_90; a compare-and-swap of the word around it works everywhere.
    emitter.prelude.use(short)
    body = f"""
  unsigned long long address = (unsigned long long)place;
  unsigned* word = (unsigned*)(address & ~3ull);
  int shift = address & 2 ? 16 : 0;
  unsigned old = *(volatile unsigned*)word, seen;
  do {{
    seen = old;
    {short} current = {{(unsigned short)(seen >> shift)}};
    {short} sum = to_{short}(to_f32(current) + to_f32(value));
    old = atomicCAS(word, seen, (seen & ~(0xffffu << shift)) | ((unsigned)sum.bits << shift));
  }} while (old != seen);
  return {{(unsigned short)(old >> shift)}};
"""
    emitter.prelude.add(Piece(helper, f"__device__ inline {short} {helper}({short}* place, {short} value) {{{body}}}"))
    return call(helper, *texts)


def _load(name: str, space: str, modifiers: str) -> Spell:
    """A read of 1 to 16 bytes with a cache operator."""

    def spell(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
        nbytes = lanes_of(type_) * element_dtype(type_).nbytes
        emitter.prelude.use("bits_as")
        helper = f"{name}_{nbytes}"
        emitter.prelude.add(_load_piece(helper, space, modifiers, nbytes))
        return call(f"bits_as<{emitter.type(type_)}>", call(helper, texts[0]))

    return spell


def _load_piece(helper: str, space: str, modifiers: str, nbytes: int) -> Piece:
    address, needs = _address(space, "p")
    if nbytes == 16:
        cells = ", ".join(f'"=r"(r.lane[{n}])' for n in range(4))
        body = f'asm volatile("ld{modifiers}.v4.u32 {{%0, %1, %2, %3}}, [%4];" : {cells} : {address} : "memory");'
        text = inline(f"Lanes<unsigned, 4> {helper}(const void* p)", f"Lanes<unsigned, 4> r; {body} return r;")
        return Piece(helper, text, ("lanes", *needs))
    type_, ptx, constraint = _word(nbytes, helper)
    register = "unsigned" if nbytes == 1 else type_
    body = f'{register} r; asm volatile("ld{modifiers}.{ptx} %0, [%1];" : "={constraint}"(r) : {address} : "memory");'
    return Piece(helper, inline(f"{type_} {helper}(const void* p)", f"{body} return ({type_})r;"), needs)


def _store(name: str, space: str, modifiers: str) -> Spell:
    """A write of 1 to 16 bytes with a cache operator."""

    def spell(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
        value_type = nodes[1].type
        nbytes = lanes_of(value_type) * element_dtype(value_type).nbytes
        emitter.prelude.use("bits_as", "lanes")
        helper = f"{name}_{nbytes}"
        emitter.prelude.add(_store_piece(helper, space, modifiers, nbytes))
        word = "Lanes<unsigned, 4>" if nbytes == 16 else _word(nbytes, helper)[0]
        return call(helper, texts[0], call(f"bits_as<{word}>", texts[1]))

    return spell


def _store_piece(helper: str, space: str, modifiers: str, nbytes: int) -> Piece:
    address, needs = _address(space, "p")
    if nbytes == 16:
        cells = ", ".join(f'"r"(a.lane[{n}])' for n in range(4))
        body = f'asm volatile("st{modifiers}.v4.u32 [%0], {{%1, %2, %3, %4}};" :: {address}, {cells} : "memory");'
        return Piece(helper, inline(f"void {helper}(void* p, Lanes<unsigned, 4> a)", body), ("lanes", *needs))
    type_, ptx, constraint = _word(nbytes, helper)
    value = "(unsigned)a" if nbytes == 1 else "a"
    body = f'asm volatile("st{modifiers}.{ptx} [%0], %1;" :: {address}, "{constraint}"({value}) : "memory");'
    return Piece(helper, inline(f"void {helper}(void* p, {type_} a)", body), needs)


def _word(nbytes: int, helper: str) -> tuple[str, str, str]:
    if nbytes not in _WORDS:
        raise CodegenError(f"{helper}: {nbytes} bytes are no size of one access, expected 1, 2, 4, 8 or 16")
    return _WORDS[nbytes]


def _address(space: str, name: str) -> tuple[str, tuple[str, ...]]:
    """The asm operand of an address, and the pieces it needs."""
    if space == "shared":
        return f'"r"(shared_address({name}))', ("shared_address",)
    return f'"l"(__cvta_generic_to_global({name}))', ()


def _map_to_block(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
    """A generic address, from which the window's 32-bit address is made again where it is used."""
    body = 'const void* r; asm("mapa.u64 %0, %1, %2;" : "=l"(r) : "l"(p), "r"(rank)); return r;'
    emitter.prelude.add(Piece("map_to_block", inline("const void* map_to_block(const void* p, int rank)", body)))
    return cast(SPELLING.type_name(type_), call("map_to_block", *texts))


def _cluster_access(name: str) -> Spell:
    """Shared memory of another block, through its generic address."""

    def load(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
        return Text(f"*(volatile {emitter.type(type_)}*){texts[0].inside(15)}", 14)

    def wide_load(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
        if lanes_of(type_) == 1 and element_dtype(type_) not in WORD_STRUCTS:
            return load(emitter, nodes, texts, type_)
        return Text(f"*({emitter.type(type_)}*){texts[0].inside(15)}", 14)

    def store(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
        target = f"*({emitter.type(nodes[1].type)}*){texts[0].inside(15)}"
        return Text(f"{target} = {texts[1].text}", 1)

    return wide_load if name == "load" else store


def _dynamic_memory(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
    base = emitter.dynamic_base
    start = f"shared_memory + {base}" if base else "shared_memory"
    return Text(f"({start} + {texts[0].inside(12)})")


def _fma(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
    return emitter.fma(element_dtype(type_), *texts)


def _by_width(name: str) -> Spell:
    """Builtins of 32-bit words whose 64-bit form ends in ll."""

    def spell(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
        return call(f"{name}{'ll' if nodes[0].dtype.bits == 64 else ''}", *texts)

    return spell


def _multiply_high(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
    names = {dtypes.i32: "__mulhi", dtypes.u32: "__umulhi", dtypes.i64: "__mul64hi", dtypes.u64: "__umul64hi"}
    return call(names[nodes[0].dtype], *texts)


def _extract_bits(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
    dtype = nodes[0].dtype
    ptx = "s32" if dtype is dtypes.i32 else "u32"
    c_type = SPELLING.scalar_type(dtype)
    body = f'{c_type} r; asm("bfe.{ptx} %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(position), "r"(length)); return r;'
    signature = f"{c_type} extract_bits({c_type} a, unsigned position, unsigned length)"
    emitter.prelude.add(Piece(f"extract_bits_{ptx}", inline(signature, body)))
    return call("extract_bits", *texts)


def _redux(name: str) -> Spell:
    def spell(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
        return call(f"__reduce_{name}_sync", *texts)

    return spell


# Low nibbles of bytes 0 and 2 go to the lower halves of words; 0x6400 is 1024 in f16, whose last bit counts 1.
# bf16 has 7 bits: 0x4300 is 128.
_NIBBLES = {"f16": ("0x64006400u", "0x64006400u", "0x64086408u"), "bf16": ("0x43004300u", "0x43004300u", "0x43084308u")}


def _unpack_nibbles(short: str, to: str) -> Spell:
    """Put each pair of nibbles under the exponent of a float whose last bit counts 1, then subtract that float."""

    def spell(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
        helper = f"unpack_{short}_{to}"
        exponent, zero, eight = _NIBBLES[to]
        offset = eight if short == "i4" else zero
        # Adding 8 to signed nibbles, by flipping their upper bit, makes them unsigned.
        flip = "0x00080008u" if short == "i4" else "0u"
        if to == "f16":
            subtract = 'asm("sub.f16x2 %0, %1, %2;" : "=r"(words[n]) : "r"(word), "r"(offset));'
        else:
            subtract = (
                'asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(words[n]) : "r"(offset), "r"(0xbf80bf80u), "r"(word));'
            )
        text = f"""__device__ __forceinline__ void {helper}(void* target, unsigned a) {{
  unsigned* words = (unsigned*)target;
  const unsigned offset = {offset};
#pragma unroll
  for (int n = 0; n < 4; ++n) {{
    unsigned low = (a >> (8 * n)) & 0xfu, high = (a >> (8 * n + 4)) & 0xfu;
    unsigned word = ((low | high << 16) ^ {flip}) | {exponent};
    {subtract}
  }}
}}"""
        emitter.prelude.add(Piece(helper, text))
        return call(helper, *texts)

    return spell


_GLOBAL_LOADS = {
    "load_constant": ".global.nc",
    "load_streaming": ".global.cs",
    "load_l2": ".global.cg",
    "load_constant_streaming": ".global.nc.L1::no_allocate",
    "load_acquire": ".acquire.gpu.global",
}
_GLOBAL_STORES = {
    "store_streaming": ".global.cs",
    "store_l2": ".global.cg",
    "store_release": ".release.gpu.global",
}
_ATOMICS = {
    "add": "atomicAdd",
    "min": "atomicMin",
    "max": "atomicMax",
    "and": "atomicAnd",
    "or": "atomicOr",
    "xor": "atomicXor",
    "exchange": "atomicExch",
    "increment": "atomicInc",
    "decrement": "atomicDec",
    "compare_exchange": "atomicCAS",
}


def _release_add(emitter: ExpressionEmitter, nodes: list[Expr], texts: list[Text], type_: Type) -> Text:
    emitter.line("__threadfence();")
    return _atomic("atomicAdd")(emitter, nodes, texts, type_)


BUILTINS: dict[str, Spell] = {
    **{f"thread_idx.{a}": _plain(f"(int)threadIdx.{a}") for a in "xyz"},
    **{f"block_idx.{a}": _plain(f"(int)blockIdx.{a}") for a in "xyz"},
    **{f"block_dim.{a}": _plain(f"(int)blockDim.{a}") for a in "xyz"},
    **{f"grid_dim.{a}": _plain(f"(int)gridDim.{a}") for a in "xyz"},
    "syncthreads": _function("__syncthreads"),
    "syncthreads_count": _function("__syncthreads_count"),
    "syncthreads_and": _function("__syncthreads_and"),
    "syncthreads_or": _function("__syncthreads_or"),
    "syncwarp": _function("__syncwarp"),
    "threadfence_block": _function("__threadfence_block"),
    "threadfence": _function("__threadfence"),
    "threadfence_system": _function("__threadfence_system"),
    "shuffle": _shuffle("__shfl_sync"),
    "shuffle_up": _shuffle("__shfl_up_sync"),
    "shuffle_down": _shuffle("__shfl_down_sync"),
    "shuffle_xor": _shuffle("__shfl_xor_sync"),
    "vote_all": _function("__all_sync"),
    "vote_any": _function("__any_sync"),
    "vote_uniform": _function("__uni_sync"),
    "vote_ballot": _function("__ballot_sync"),
    "match_any": _function("__match_any_sync"),
    **{f"reduce_{name}": _redux(name) for name in ("add", "min", "max", "and", "or", "xor")},
    **{f"atomic_{name}": _atomic(function) for name, function in _ATOMICS.items()},
    **{f"reduce_{name}_at": _atomic(_ATOMICS[name]) for name in ("add", "min", "max", "and", "or", "xor")},
    "atomic_add_release": _release_add,
    **{name: _load(name, "global", modifiers) for name, modifiers in _GLOBAL_LOADS.items()},
    **{name: _store(name, "global", modifiers) for name, modifiers in _GLOBAL_STORES.items()},
    "load_cluster": _cluster_access("load"),
    "store_cluster": _cluster_access("store"),
    "map_to_block": _map_to_block,
    "dynamic_shared_memory": _dynamic_memory,
    "shared_address": lambda emitter, nodes, texts, type_: _use(emitter, "shared_address", texts),
    "fma": _fma,
    "population_count": _by_width("__popc"),
    "leading_zeros": _by_width("__clz"),
    "reverse_bits": _by_width("__brev"),
    "find_first_set": _by_width("__ffs"),
    "extract_bits": _extract_bits,
    "multiply_high": _multiply_high,
    **{f"unpack_{short}_{to}": _unpack_nibbles(short, to) for short in ("i4", "u4") for to in ("f16", "bf16")},
}


def _use(emitter: ExpressionEmitter, piece: str, texts: list[Text]) -> Text:
    emitter.prelude.use(piece)
    return call(piece, *texts)

"""The kernels and device functions of a module as one CUDA C++ source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from hidet.cuda.codegen.function import (
    STATIC_SHARED_BYTES,
    FunctionEmitter,
    array_align,
    array_bytes,
    shared_arrays,
)
from hidet.cuda.codegen.names import CNames, function_names
from hidet.cuda.codegen.prelude import Piece, Prelude
from hidet.cuda.codegen.scalar import use_type
from hidet.cuda.codegen.spelling import literal, scalar_type, type_name
from hidet.errors import CodegenError
from hidet.ir import stmt as s
from hidet.ir.expr import Call, Const, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.types import BufferType, PointerType, VectorType, element_dtype
from hidet.ir.visit import located_calls, walk
from hidet.loc import Loc

MIN_BLOCKS = "min_blocks"
"""Attribute of a kernel: blocks that shall fit into a multiprocessor at once, which bounds its registers."""

_DIMENSIONS = "xyz"


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What launching a kernel needs to know. symbol: its name in machine code, the same unless CUDA has one like it.
    shared_bytes: memory it uses beyond what it declares statically."""

    name: str
    symbol: str
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CudaSource:
    """CUDA C++ text, its kernels, and places in the user's script by line of the text, from 1."""

    text: str
    kernels: tuple[KernelFacts, ...]
    locs: Mapping[int, Loc] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Emitted:
    """One function: its lines, places in the user's script by line from 0, and bytes of dynamic shared memory."""

    lines: list[str]
    locs: dict[int, Loc]
    shared_bytes: int = 0


def emit_module(module: Module, arch: int) -> CudaSource:
    """The device code of `module` for compute capability `arch` / 10; host functions are left out.

    CodegenError names what the architecture or CUDA cannot express.
    """
    symbols = function_names(module.functions)
    # By their names in the module; what they are called in the text is their own.
    functions = {f.name: replace(f, name=symbols[f.name]) for f in module.functions}
    blocks = _block_threads(module)
    prelude = Prelude()
    emitted: list[_Emitted] = []
    facts: list[KernelFacts] = []
    for original in _in_call_order(module.functions):
        if original.kind == "device":
            check_architecture(original, arch)
            emitted.append(_device(functions[original.name], prelude, functions))
    for name, function in functions.items():
        if function.kind == "kernel":
            check_architecture(module.function(name), arch)
            emitted.append(_kernel(function, prelude, functions, blocks.get(name)))
            facts.append(KernelFacts(name, function.name, emitted[-1].shared_bytes))
    text_lines: list[str] = []
    for piece in prelude.texts():
        text_lines += [*piece.split("\n"), ""]
    locs_of_text: dict[int, Loc] = {}
    for text in emitted:
        locs_of_text.update({len(text_lines) + number + 1: loc for number, loc in text.locs.items()})
        text_lines += [*text.lines, ""]
    return CudaSource("\n".join(text_lines), tuple(facts), locs_of_text)


def check_architecture(function: Function, arch: int) -> None:
    """CodegenError for the first intrinsic of `function` that the architecture does not have."""
    for call, loc in located_calls(function.body):
        row = call.intrinsic
        if row is None:
            continue
        if row.arch > arch or (row.is_arch_specific and arch // 10 != row.arch // 10):
            suffix = "a" if row.is_arch_specific else ""
            raise CodegenError(
                f"{function.name} uses {row.name}, which needs sm_{row.arch}{suffix}; this device is sm_{arch}",
                loc=loc,
            )


def _block_threads(module: Module) -> dict[str, int | None]:
    """Threads of a block of each kernel where all launches agree on a constant; None where they do not."""
    found: dict[str, int | None] = {}
    for function in module.functions:
        if function.kind != "host":
            continue
        for node in walk(function.body):
            if isinstance(node, s.Launch):
                threads = constant_product(node.block)
                known = found.setdefault(node.kernel, threads)
                found[node.kernel] = threads if known == threads else None
    return found


def constant_product(extents: Iterable[Expr]) -> int | None:
    """The product of constant extents; None when one is not constant."""
    total = 1
    for extent in extents:
        if not isinstance(extent, Const) or isinstance(extent.value, complex):
            return None
        total *= int(extent.value)
    return total


def _in_call_order(functions: Iterable[Function]) -> list[Function]:
    """Functions so that each stands after those it calls."""
    by_name = {f.name: f for f in functions}
    done: dict[str, Function] = {}
    active: set[str] = set()

    def visit(function: Function) -> None:
        if function.name in done:
            return
        if function.name in active:
            raise CodegenError(f"device function {function.name} calls itself; CUDA kernels have no recursion here")
        active.add(function.name)
        for node in walk(function.body):
            if isinstance(node, Call) and node.callee in by_name:
                visit(by_name[node.callee])
        done[function.name] = function

    for function in by_name.values():
        visit(function)
    return list(done.values())


def _parameters(function: Function, names: CNames, prelude: Prelude, *, is_kernel: bool) -> str:
    listed = []
    for var in function.params:
        name = names(var, var.name)
        type_ = var.type
        use_type(prelude, element_dtype(type_))
        if isinstance(type_, VectorType):
            prelude.use("lanes")
        if isinstance(type_, BufferType) and type_.space == "constant" and is_kernel:
            # Passed by value: the tensor maps of TMA, 128 bytes each.
            count = constant_product(type_.shape)
            struct = f"{name}_t"
            prelude_text = f"struct __align__(64) {struct} {{ {scalar_type(type_.dtype)} words[{count}]; }};"
            listed.append((prelude_text, f"const __grid_constant__ {struct} {name}_value", struct))
            continue
        listed.append(("", f"{type_name(type_)} {name}", ""))
    for text, _, struct in listed:
        if text:
            prelude.add(Piece(struct, text))
    return ", ".join(part for _, part, _ in listed)


def _device(function: Function, prelude: Prelude, functions: dict[str, Function]) -> _Emitted:
    return _with_free_names(function.name, lambda names: _device_lines(function, names, prelude, functions))


def _device_lines(function: Function, names: CNames, prelude: Prelude, functions: dict[str, Function]) -> _Emitted:
    attributes = dict(function.attributes)
    parameters = _parameters(function, names, prelude, is_kernel=False)
    if function.result is not None:
        use_type(prelude, element_dtype(function.result))
    head = "__device__ __noinline__" if attributes.get("inline") is False else "__device__ __forceinline__"
    signature = f"{head} {type_name(function.result)} {function.name}({parameters}) {{"
    table = attributes.get("table")
    if isinstance(table, tuple):
        return _Emitted(_table(function, signature, names, table), {})
    emitter = FunctionEmitter(function, names, prelude, functions, {})
    emitter.stmt(function.body)
    return _Emitted([signature, *emitter.lines, "}"], {line + 1: loc for line, loc in emitter.locs.items()})


def _with_free_names(own: str, emit: Callable[[CNames], _Emitted]) -> _Emitted:
    """What `emit` writes with names for variables, none of which hides a function that the text calls."""
    taken: frozenset[str] = frozenset({own, "shared_memory"})
    while True:
        names = CNames(taken)
        emitted = emit(names)
        hidden = names.hidden(emitted.lines)
        if not hidden:
            return emitted
        taken |= hidden


def _table(function: Function, signature: str, names: CNames, values: tuple[object, ...]) -> list[str]:
    """A function of an index that returns entries of a constant array."""
    assert function.result is not None
    dtype = element_dtype(function.result)
    listed = ", ".join(literal(value, dtype) for value in values)  # type: ignore[arg-type]  # numbers
    index = names(function.params[0], function.params[0].name)
    array = f"  static const {scalar_type(dtype)} values[{len(values)}] = {{{listed}}};"
    return [signature, array, f"  return values[{index}];", "}"]


def _kernel(function: Function, prelude: Prelude, functions: dict[str, Function], threads: int | None) -> _Emitted:
    return _with_free_names(function.name, lambda names: _kernel_lines(function, names, prelude, functions, threads))


def _kernel_lines(
    function: Function, names: CNames, prelude: Prelude, functions: dict[str, Function], threads: int | None
) -> _Emitted:
    arrays = shared_arrays(function.body)
    places, shared = _shared_places(arrays)
    bounds = ""
    if threads is not None:
        least = dict(function.attributes).get(MIN_BLOCKS)
        bounds = f" __launch_bounds__({threads}{f', {least}' if least else ''})"
    parameters = _parameters(function, names, prelude, is_kernel=True)
    lines = [f'extern "C" __global__ void{bounds} {function.name}({parameters}) {{']
    lines += [
        f"  const {type_name(PointerType(var.type.dtype))} {names(var, var.name)} = {names(var, var.name)}_value.words;"
        for var in function.params
        if isinstance(var.type, BufferType) and var.type.space == "constant"
    ]
    if places or _uses_dynamic_memory(function):
        lines.append("  extern __shared__ __align__(1024) unsigned char shared_memory[];")
    if len(function.grid_vars) > len(_DIMENSIONS):
        raise CodegenError(f"{function.name} has {len(function.grid_vars)} grid indices; a GPU has at most three")
    for var, axis in zip(function.grid_vars, _DIMENSIONS, strict=False):
        lines.append(f"  const long long {names(var, var.name)} = blockIdx.{axis};")
    emitter = FunctionEmitter(function, names, prelude, functions, places)
    emitter.dynamic_base = shared
    emitter.stmt(function.body)
    return _Emitted(
        [*lines, *emitter.lines, "}"], {line + len(lines): loc for line, loc in emitter.locs.items()}, shared
    )


def _shared_places(arrays: list[Var]) -> tuple[dict[Var, int], int]:
    """Where arrays lie in dynamic memory, and its size; nothing when they fit into what may be declared."""
    types = [var.type for var in arrays if isinstance(var.type, BufferType)]
    if sum(array_bytes(type_) + array_align(type_) for type_ in types) <= STATIC_SHARED_BYTES:
        return {}, 0
    places: dict[Var, int] = {}
    end = 0
    for var, type_ in zip(arrays, types, strict=True):
        align = array_align(type_)
        places[var] = -(-end // align) * align
        end = places[var] + array_bytes(type_)
    # What the launch asks for besides begins where swizzled patterns may.
    return places, -(-end // 1024) * 1024


def _uses_dynamic_memory(function: Function) -> bool:
    return any(isinstance(n, Call) and n.callee == "gpu.dynamic_shared_memory" for n in walk(function.body))

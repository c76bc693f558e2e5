"""The kernels and device functions of a module as one source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from hidet import dtypes
from hidet.errors import CodegenError
from hidet.gpu.codegen.dialect import ByValue, Dialect, SharedMemory
from hidet.gpu.codegen.function import FunctionEmitter, array_bytes, shared_arrays
from hidet.gpu.codegen.names import CNames, function_names
from hidet.gpu.codegen.prelude import Prelude
from hidet.ir import stmt as s
from hidet.ir.expr import Call, Const, Expr, Var
from hidet.ir.func import Function, Module
from hidet.ir.types import BufferType, VectorType, element_dtype
from hidet.ir.visit import walk
from hidet.loc import Loc

_DIMENSIONS = "xyz"


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What launching a kernel needs to know. symbol: its name in machine code, the same unless that is not free.
    shared_bytes: memory it uses beyond what it declares statically."""

    name: str
    symbol: str
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Text, its kernels, places in the user's script by line of the text, from 1, and options of the compiler."""

    text: str
    kernels: tuple[KernelFacts, ...]
    locs: Mapping[int, Loc] = field(default_factory=dict)
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Emitted:
    """One function: its lines, places in the user's script by line from 0, and bytes of dynamic shared memory."""

    lines: list[str]
    locs: dict[int, Loc]
    shared_bytes: int = 0


def emit_source(module: Module, dialect: Dialect) -> KernelSource:
    """The device code of `module`; host functions are left out. CodegenError names what the language cannot express."""
    symbols = function_names(module.functions, dialect.reserved)
    # By their names in the module; what they are called in the text is their own.
    functions = {f.name: replace(f, name=symbols[f.name]) for f in module.functions}
    blocks = _block_threads(module)
    prelude = Prelude(dialect)
    emitted: list[_Emitted] = []
    facts: list[KernelFacts] = []
    for original in _in_call_order(module.functions):
        if original.kind == "device":
            emitted.append(_device(functions[original.name], prelude, functions))
    for name, function in functions.items():
        if function.kind == "kernel":
            emitted.append(_kernel(function, prelude, functions, blocks.get(name)))
            facts.append(KernelFacts(name, function.name, emitted[-1].shared_bytes))
    text_lines: list[str] = []
    for piece in prelude.texts():
        text_lines += [*piece.split("\n"), ""]
    locs_of_text: dict[int, Loc] = {}
    for text in emitted:
        locs_of_text.update({len(text_lines) + number + 1: loc for number, loc in text.locs.items()})
        text_lines += [*text.lines, ""]
    return KernelSource("\n".join(text_lines), tuple(facts), locs_of_text)


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
            raise CodegenError(f"device function {function.name} calls itself; kernels have no recursion")
        active.add(function.name)
        for node in walk(function.body):
            if isinstance(node, Call) and node.callee in by_name:
                visit(by_name[node.callee])
        done[function.name] = function

    for function in by_name.values():
        visit(function)
    return list(done.values())


def _parameters(function: Function, names: CNames, prelude: Prelude, *, is_kernel: bool) -> tuple[str, list[str]]:
    """The parameters of a function, and the lines of its body that name the words of those passed by value."""
    listed: list[str] = []
    by_value: list[ByValue] = []
    for var in function.params:
        name = names(var, var.name)
        type_ = var.type
        prelude.use_type(element_dtype(type_))
        if isinstance(type_, VectorType):
            prelude.declare(type_)
        if isinstance(type_, BufferType) and type_.space == "constant" and is_kernel:
            count = constant_product(type_.shape)
            if count is None:
                raise CodegenError(f"{function.name}: parameter {var.name} is passed by value; its shape is constant")
            by_value.append(prelude.dialect.by_value(name, prelude.spelling.scalar_type(type_.dtype), count))
            listed.append(by_value[-1].parameter)
            continue
        listed.append(f"{prelude.spelling.type_name(type_)} {name}")
    for struct in by_value:
        prelude.add(struct.piece)
    return ", ".join(listed), [struct.line for struct in by_value]


def _device(function: Function, prelude: Prelude, functions: dict[str, Function]) -> _Emitted:
    return _with_free_names(function.name, prelude, lambda names: _device_lines(function, names, prelude, functions))


def _device_lines(function: Function, names: CNames, prelude: Prelude, functions: dict[str, Function]) -> _Emitted:
    attributes = dict(function.attributes)
    parameters, _ = _parameters(function, names, prelude, is_kernel=False)
    if function.result is not None:
        prelude.use_type(element_dtype(function.result))
    dialect = prelude.dialect
    head = dialect.device_call if attributes.get("inline") is False else dialect.device
    signature = f"{head} {prelude.spelling.type_name(function.result)} {function.name}({parameters}) {{"
    table = attributes.get("table")
    if isinstance(table, tuple):
        return _Emitted(_table(function, signature, names, table, dialect), {})
    emitter = FunctionEmitter(function, names, prelude, functions, {})
    emitter.stmt(function.body)
    return _Emitted([signature, *emitter.values.lines, "}"], {line + 1: loc for line, loc in emitter.locs.items()})


def _with_free_names(own: str, prelude: Prelude, emit: Callable[[CNames], _Emitted]) -> _Emitted:
    """What `emit` writes with names for variables, none of which hides a function that the text calls."""
    taken: frozenset[str] = frozenset({own, "shared_memory"})
    while True:
        names = CNames(prelude.dialect.reserved, taken)
        emitted = emit(names)
        hidden = names.hidden(emitted.lines)
        if not hidden:
            return emitted
        taken |= hidden


def _table(
    function: Function, signature: str, names: CNames, values: tuple[object, ...], dialect: Dialect
) -> list[str]:
    """A function of an index that returns entries of a constant array."""
    assert function.result is not None
    dtype = element_dtype(function.result)
    listed = ", ".join(dialect.spelling.literal(value, dtype) for value in values)  # type: ignore[arg-type]  # numbers
    index = names(function.params[0], function.params[0].name)
    array = f"  {dialect.table} {dialect.spelling.scalar_type(dtype)} values[{len(values)}] = {{{listed}}};"
    return [signature, array, f"  return values[{index}];", "}"]


def _kernel(function: Function, prelude: Prelude, functions: dict[str, Function], threads: int | None) -> _Emitted:
    def emit(names: CNames) -> _Emitted:
        return _kernel_lines(function, names, prelude, functions, threads)

    return _with_free_names(function.name, prelude, emit)


def _kernel_lines(
    function: Function, names: CNames, prelude: Prelude, functions: dict[str, Function], threads: int | None
) -> _Emitted:
    dialect = prelude.dialect
    places, shared = _shared_places(shared_arrays(function.body), dialect.shared)
    parameters, by_value = _parameters(function, names, prelude, is_kernel=True)
    lines = [f"{dialect.kernel(function, parameters, threads)} {{", *(f"  {line}" for line in by_value)]
    if places or _uses_dynamic_memory(function):
        lines.append(f"  {dialect.shared.dynamic}")
    if len(function.grid_vars) > len(_DIMENSIONS):
        raise CodegenError(f"{function.name} has {len(function.grid_vars)} grid indices; a GPU has at most three")
    for number, var in enumerate(function.grid_vars):
        index = dialect.block_index.format(axis=_DIMENSIONS[number], number=number)
        lines.append(f"  const {prelude.spelling.types[dtypes.i64]} {names(var, var.name)} = {index};")
    emitter = FunctionEmitter(function, names, prelude, functions, places)
    emitter.values.dynamic_base = shared
    emitter.declare_shared()
    emitter.stmt(function.body)
    return _Emitted(
        [*lines, *emitter.values.lines, "}"], {line + len(lines): loc for line, loc in emitter.locs.items()}, shared
    )


def _shared_places(arrays: list[Var], memory: SharedMemory) -> tuple[dict[Var, int], int]:
    """Where arrays lie in dynamic memory, and its size; nothing when they fit into what may be declared."""
    sizes = [array_bytes(var.type) for var in arrays if isinstance(var.type, BufferType)]
    if sum(nbytes + memory.align(nbytes) for nbytes in sizes) <= memory.static_bytes:
        return {}, 0
    places: dict[Var, int] = {}
    end = 0
    for var, nbytes in zip(arrays, sizes, strict=True):
        align = memory.align(nbytes)
        places[var] = -(-end // align) * align
        end = places[var] + nbytes
    return places, -(-end // memory.dynamic_align) * memory.dynamic_align


def _uses_dynamic_memory(function: Function) -> bool:
    return any(isinstance(n, Call) and n.callee == "gpu.dynamic_shared_memory" for n in walk(function.body))

"""Emitting a thread-IR module as one LLVM module.

A kernel becomes `void name(ptr arguments, i64 begin, i64 end)`: it unpacks its arguments (one 8-byte cell each,
followed by the grid extents) and runs a no-inline body whose pointers are noalias, for every index of its range.
A host function becomes `void name(ptr pool, ...)`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hidet.cpu.codegen.failing import FAILURE, checked_name, poll_function, reporting_function
from hidet.cpu.codegen.function import FunctionEmitter
from hidet.cpu.codegen.spelling import literal, register_type
from hidet.cpu.codegen.state import ModuleState
from hidet.cpu.failures import NOTE_FAILURE, NOTE_VALUES
from hidet.ir.expr import Number, Var
from hidet.ir.func import COMPACT, EXPORTED, FINISHES
from hidet.ir.types import BufferType, PointerType, element_dtype, lanes_of

if TYPE_CHECKING:
    from hidet.cpu.arch import CpuArch
    from hidet.ir.func import Function, Module


def emit_module(module: Module, arch: CpuArch) -> str:
    """LLVM IR text of `module` for `arch`. CodegenError names what the target cannot express."""
    state = ModuleState(arch, {f.name: f for f in module.functions})
    texts = [_EMITTERS[f.kind](f, state, f.name == module.entry or EXPORTED in f.attributes) for f in module.functions]
    polls = [poll_function(state)] if state.polls_signals else []
    header = f'target triple = "{arch.triple}"\n'
    text = "\n\n".join([header, *texts, *polls, state.tail()]) + "\n"
    return text if text.isascii() else _UNUSUAL_NAME.sub(r'\1"\2"', text)


# Names are all that is not ASCII in such a text; LLVM takes any letter in quotes.
_UNUSUAL_NAME = re.compile(r"([@%])([\w.$-]*[^\W\x00-\x7F][\w.$-]*)")


def _assemble(signature: str, emitter: FunctionEmitter) -> str:
    return "\n".join([f"{signature} {{", "entry:", *emitter.entry, *emitter.out.lines, "}"])


def _emit_body(function: Function, state: ModuleState, names: dict[Var, str], wraps: bool = False) -> FunctionEmitter:
    emitter = FunctionEmitter(names, state, function, wraps)
    if FINISHES in function.attributes:
        emitter.out.failed_text = None
    elif function.result is not None:
        emitter.out.failed_text = f"ret {register_type(function.result)} zeroinitializer"
    emitter.out.line("br label %start")
    emitter.out.block("start")
    emitter.stmt(function.body)
    emitter.out.line("unreachable" if function.result is not None else "ret void")
    return emitter


def _unique(params: tuple[Var, ...]) -> dict[Var, str]:
    return {var: f"%arg.{var.name}.{number}" for number, var in enumerate(params)}


def _listed(function: Function, names: dict[Var, str]) -> list[str]:
    listed = []
    for var in function.params:
        pointer = isinstance(var.type, PointerType | BufferType)
        listed.append(f"{'ptr noalias' if pointer else register_type(var.type)} {names[var]}")
    return listed


def _emit_kernel(function: Function, state: ModuleState, is_visible: bool) -> str:
    names = _unique(function.params)
    grid = {var: f"%grid.{number}" for number, var in enumerate(function.grid_vars)}
    body = _emit_body(function, state, {**names, **grid})
    is_failing = function.name in state.failing
    more = [*(f"i64 {name}" for name in grid.values()), *([FAILURE] * is_failing)]
    parameters = ", ".join([*_listed(function, names), *more])
    size = " optsize" if COMPACT in function.attributes else ""
    signature = f"define internal void @{function.name}.body({parameters}) noinline nounwind{size}"
    return _assemble(signature, body) + "\n\n" + _kernel_entry(function, list(grid.values()), is_failing)


def _kernel_entry(function: Function, grid: list[str], is_failing: bool) -> str:
    """The range function the pool calls: unpack, then one body call per index, multi-dimensional ones decoded.

    is_failing: indices after one that fails, in any thread, are left out.
    """
    lines = [f"define void @{function.name}(ptr %cells, i64 %begin, i64 %end) nounwind {{", "entry:"]
    arguments = []
    for position, var in enumerate(function.params):
        type_ = register_type(var.type)
        lines.append(f"  %cell.{position} = getelementptr i64, ptr %cells, i64 {position}")
        lines.append(f"  %a.{position} = load {type_}, ptr %cell.{position}, align 8")
        arguments.append(f"{type_} %a.{position}")
    for number in range(1, len(grid)):
        position = len(function.params) + number
        lines.append(f"  %cell.{position} = getelementptr i64, ptr %cells, i64 {position}")
        lines.append(f"  %extent.{number} = load i64, ptr %cell.{position}, align 8")
    if is_failing:
        position = len(function.params) + len(grid)
        lines.append(f"  %cell.failure = getelementptr i64, ptr %cells, i64 {position}")
        lines.append("  %failure = load ptr, ptr %cell.failure, align 8")
    lines += [
        "  br label %head",
        "head:",
        "  %i = phi i64 [ %begin, %entry ], [ %next, %body ]",
        "  %more = icmp slt i64 %i, %end",
        f"  br i1 %more, label %{'look' if is_failing else 'body'}, label %done",
    ]
    if is_failing:
        lines += [
            "look:",
            "  %noted = load atomic ptr, ptr %failure monotonic, align 8",
            "  %failed = icmp ne ptr %noted, null",
            "  br i1 %failed, label %done, label %body",
        ]
    lines.append("body:")
    rest = "%i"
    decoded = []
    for number in range(len(grid) - 1, 0, -1):
        lines.append(f"  %g.{number} = urem i64 {rest}, %extent.{number}")
        lines.append(f"  %rest.{number} = udiv i64 {rest}, %extent.{number}")
        decoded.append(f"i64 %g.{number}")
        rest = f"%rest.{number}"
    if grid:
        decoded.append(f"i64 {rest}")
    lines.append(
        f"  call void @{function.name}.body({', '.join([*arguments, *reversed(decoded), *([FAILURE] * is_failing)])})"
    )
    lines += ["  %next = add nsw i64 %i, 1", "  br label %head", "done:", "  ret void", "}"]
    return "\n".join(lines)


def _emit_host(function: Function, state: ModuleState, is_visible: bool) -> str:
    names = _unique(function.params)
    body = _emit_body(function, state, names)
    parameters = ["ptr %pool", *(p.replace("noalias ", "") for p in _listed(function, names))]
    return _define(function, state, is_visible, "void", parameters, [*_inlining(function), "nounwind"], body)


def _inlining(function: Function) -> list[str]:
    """What LLVM is told of attribute "inline": whether the function must be inlined, or must not be."""
    attributes = dict(function.attributes)
    return ["alwaysinline" if attributes["inline"] else "noinline"] if "inline" in attributes else []


def _define(
    function: Function,
    state: ModuleState,
    is_visible: bool,
    result: str,
    parameters: list[str],
    words: list[str],
    body: FunctionEmitter,
) -> str:
    """A function and, where an assertion in it may fail, the one around it that is called from outside."""
    listed, attributes = ", ".join(parameters), " ".join(words)
    linkage = "" if is_visible else "internal "
    if function.name not in state.failing:
        return _assemble(f"define {linkage}{result} @{function.name}({listed}) {attributes}", body)
    name = checked_name(function.name)
    checked = _assemble(f"define internal {result} @{name}({', '.join([*parameters, FAILURE])}) {attributes}", body)
    if not is_visible:
        return checked
    state.declare(NOTE_FAILURE, "void", ("ptr", "ptr"))
    if state.has_asserted_values:
        state.declare(NOTE_VALUES, "void", ("ptr",))
    around = reporting_function(
        function.name, result, parameters, "nounwind", state.has_asserted_values, state.polls_signals
    )
    return f"{checked}\n\n{around}"


def _emit_device(function: Function, state: ModuleState, is_visible: bool) -> str:
    """An internal function; "pure" ones read no memory, "inline" says whether it must be, "table" ones are arrays."""
    attributes = dict(function.attributes)
    names = _unique(function.params)
    result = "void" if function.result is None else register_type(function.result)
    parameters = [p.replace("noalias ", "") for p in _listed(function, names)]
    words = _inlining(function)
    words += ["nounwind", "willreturn memory(none)"] if attributes.get("pure") else ["nounwind"]
    table = attributes.get("table")
    if isinstance(table, tuple):
        linkage = "" if is_visible else "internal "
        signature = f"define {linkage}{result} @{function.name}({', '.join(parameters)}) {' '.join(words)}"
        return _emit_table(function, signature, names[function.params[0]], table)
    # Arguments of device functions are data: their i64 arithmetic may overflow.
    body = _emit_body(function, state, names, wraps=True)
    return _define(function, state, is_visible, result, parameters, words, body)


def _emit_table(function: Function, signature: str, index: str, values: tuple[Number, ...]) -> str:
    """A function of an index (or a vector of them) that returns entries of a constant array."""
    assert function.result is not None
    dtype, lanes = element_dtype(function.result), lanes_of(function.result)
    scalar, array = register_type(dtype), f"@{function.name}.values"
    listed = ", ".join(f"{scalar} {literal(value, dtype)}" for value in values)
    lines = [
        f"{array} = private unnamed_addr constant [{len(values)} x {scalar}] [{listed}], align 64",
        f"{signature} {{",
    ]

    def read(position: str, suffix: str) -> list[str]:
        return [
            f"  %p{suffix} = getelementptr inbounds {scalar}, ptr {array}, i64 {position}",
            f"  %v{suffix} = load {scalar}, ptr %p{suffix}, align {dtype.nbytes}",
        ]

    if lanes == 1:
        return "\n".join([*lines, *read(index, ""), f"  ret {scalar} %v", "}"])
    vector = register_type(function.result)
    for lane in range(lanes):
        before = "poison" if lane == 0 else f"%r{lane - 1}"
        lines.append(f"  %i{lane} = extractelement <{lanes} x i64> {index}, i64 {lane}")
        lines += read(f"%i{lane}", str(lane))
        lines.append(f"  %r{lane} = insertelement {vector} {before}, {scalar} %v{lane}, i64 {lane}")
    return "\n".join([*lines, f"  ret {vector} %r{lanes - 1}", "}"])


_EMITTERS = {"kernel": _emit_kernel, "host": _emit_host, "device": _emit_device}

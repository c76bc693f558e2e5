"""Host programs as text, for dumps and debugging.

    program: 5 slots
      input 0 x: slot 0, f32[n, 64]
      input 1 w: slot 1, f32[64, 32], a parameter
      n = extent 0 of input 0
      slot 3 = n
      buffer in slot 4: 128*n bytes, live 0 to 1
      step 0: segment main_segment0
      output 0: slot 2, f32[n, 32], 128*n fresh bytes

Slots are numbers in the table of addresses and sizes that compiled code reads. Buffers live from one task to another.
Strides are shown where they are not row-major ones. A program that a step may run, and the one that prepares constants,
stand indented.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hidet.dims import Dim, evaluate, symbols
from hidet.graph.types import contiguous_strides
from hidet.runtime.plan import plan_memory
from hidet.runtime.program import (
    Branch,
    ForeignCall,
    HostProgram,
    InputSlot,
    Loop,
    ObjectSlot,
    OutputSlot,
    Place,
    PositionCheck,
    ReadSizes,
    Segment,
    Step,
    SubProgram,
    SymbolSource,
    TensorSlot,
    programs_of,
)
from hidet.runtime.stages import split_stages


def print_program(program: HostProgram) -> str:
    """The text of a program, ending in a line break."""
    return "\n".join(_program(program, "program")) + "\n"


def print_plans(program: HostProgram) -> str:
    """Where buffers lie in the arenas of a program, of those inside of it and of its prepare program.

    For example sizes, those that symbols hint at or else their least ones: plans of a call are made when it is known.
    """
    prepare = () if program.prepare is None else tuple(programs_of(program.prepare))
    titled = [*((f"program {n}", p) for n, p in enumerate(programs_of(program))), *(("prepare", p) for p in prepare)]
    return "\n".join(line for title, each in titled for line in _plans(each, title)) + "\n"


def _plans(program: HostProgram, title: str) -> Iterator[str]:
    for number, stage in enumerate(split_stages(program)):
        names = {symbol for buffer in stage.buffers for symbol in symbols(buffer.nbytes)}
        values = {symbol.name: symbol.lower if symbol.hint is None else symbol.hint for symbol in names}
        sizes = [max(evaluate(buffer.nbytes, values), 0) for buffer in stage.buffers]
        plan = plan_memory([(buffer.first, buffer.last) for buffer in stage.buffers], sizes)
        given = ", ".join(f"{name} = {value}" for name, value in sorted(values.items()))
        yield f"{title}, stage {number}: an arena of {plan.nbytes} bytes" + (f" for {given}" if given else "")
        for buffer, offset, size in zip(stage.buffers, plan.offsets, sizes, strict=True):
            yield f"  slot {buffer.slot}: bytes {offset} to {offset + size}, live {buffer.first} to {buffer.last}"


def _program(program: HostProgram, title: str) -> Iterator[str]:
    facts = ", may be done again" if program.is_repeatable else ""
    facts += f", asserts of inputs {', '.join(map(str, program.asserted))}" if program.asserted else ""
    facts += f", inputs {', '.join(map(str, program.aligned))} aligned" if program.aligned else ""
    yield f"{title}: {program.slots} slots{facts}"
    yield from (f"  input {number} {_input(slot)}" for number, slot in enumerate(program.inputs))
    stored = dict(program.stored)
    for constant in program.constants:
        yield f"  constant {constant.index}: slot {constant.slot}, {stored[constant.slot]} bytes"
    for number, slot in enumerate(program.prepared):
        yield f"  prepared {number}: slot {slot}, {stored[slot]} bytes"
    yield from (f"  {_source(source, f'input {source.input}')}" for source in program.symbols)
    yield from (f"  slot {slot} = {dim}" for slot, dim in program.sizes)
    for buffer in program.buffers:
        yield f"  buffer in slot {buffer.slot}: {buffer.nbytes} bytes, live {buffer.first} to {buffer.last}"
    for check in program.size_checks:
        sign = "==" if check.is_equality else "<="
        yield f"  check {check.left} {sign} {check.right} for {check.what}{_at(check.place)}"
    for number_check in program.number_checks:
        yield f"  check {number_check.value} fits {number_check.dtype} for {number_check.what}{_at(number_check.place)}"
    for number, step in enumerate(program.steps):
        case = _STEPS[type(step)]
        first, *rest = case(step)
        yield f"  step {number}: {first}"
        yield from (f"    {line}" for line in rest)
    yield from (f"  output {number}: {_output(slot)}" for number, slot in enumerate(program.outputs))
    if program.prepare is not None:
        yield from (f"  {line}" for line in _program(program.prepare, "prepare"))


def _at(place: str) -> str:
    return f" at {place}" if place else ""


def _tensor(slot: TensorSlot) -> str:
    text = f"slot {slot.slot}, {slot.dtype.short}{_list(slot.shape)}"
    text += "" if slot.strides == contiguous_strides(slot.shape) else f" strides {_list(slot.strides)}"
    return text if slot.offset == 0 else f"{text} at element {slot.offset}"


def _list(sizes: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _object(slot: ObjectSlot) -> str:
    return f"object {slot.slot}" + ("" if slot.shape is None else f", str{_list(slot.shape)}")


def _place(place: Place | None) -> str:
    if isinstance(place, TensorSlot):
        return _tensor(place)
    if isinstance(place, ObjectSlot):
        return _object(place)
    return "none" if place is None else f"size {place}"


def _places(places: Sequence[Place | None]) -> str:
    return "; ".join(map(_place, places)) or "nothing"


def _input(slot: InputSlot) -> str:
    text = f"{slot.name}: {_place(slot.tensor or slot.host or slot.size)}"
    text += ", a parameter" if slot.is_parameter else ""
    return text if slot.is_used else f"{text}, unused"


def _output(slot: OutputSlot) -> str:
    text = _place(slot.tensor or slot.host or slot.size)
    if slot.storage is not None:
        text += f", {slot.storage} fresh bytes"
    if slot.same_as is not None:
        text += f", in the memory of output {slot.same_as}"
    if slot.mutates is not None:
        text += f", written to input {slot.mutates}"
    return f"{text}, made by a step" if slot.is_made else text


def _source(source: SymbolSource, of: str) -> str:
    value = of if source.axis is None else f"extent {source.axis} of {of}"
    if source.is_plain:
        return f"{source.name} = {value}"
    return f"{source.name} = ({value} - {source.offset}) * {source.multiplier} / {source.divisor}"


def _defines(sources: Sequence[SymbolSource]) -> list[str]:
    return [_source(source, f"result {source.input}") for source in sources]


def _call(step: ForeignCall) -> Iterator[str]:
    by = "numpy" if step.is_host else "the frontend"
    attrs = "".join(f", {name}={value!r}" for name, value in (step.attrs or {}).items())
    yield f"call {step.name} by {by}{attrs}"
    yield f"takes {_places(step.arguments)}"
    yield f"{'makes' if step.is_made else 'gives'} {_places(step.results)}"
    yield from _defines(step.defines)


def _positions(step: PositionCheck) -> Iterator[str]:
    wraps = ", negative ones count from the end" if step.wraps else ""
    yield f"check {step.count} positions below {step.extent}{wraps}, for {step.what}{_at(step.place)}"
    yield f"takes {_tensor(step.worst)}"


def _read(step: ReadSizes) -> Iterator[str]:
    yield f"read {', '.join(symbol.name for symbol in step.symbols)} from {_tensor(step.source)}"


def _inner(title: str, inner: SubProgram) -> Iterator[str]:
    yield from _program(inner.program, f"{title} on {_places(inner.arguments)}")


def _branch(step: Branch) -> Iterator[str]:
    yield f"{step.name} on {_tensor(step.condition)}"
    yield f"makes {_places(step.results)}"
    yield from _defines(step.defines)
    yield from _inner("then", step.then)
    yield from _inner("otherwise", step.otherwise)


def _loop(step: Loop) -> Iterator[str]:
    limit = "" if step.limit is None else f", at most {_place(step.limit)} times"
    condition = "" if step.condition is None else f", if {_tensor(step.condition)}"
    tests = ", while its first result says so" if step.tests else ""
    yield f"loop {step.name}{limit}{condition}{tests}, {step.carried} carried"
    yield f"makes {_places(step.results)}"
    yield from _defines(step.defines)
    yield from _inner("body", step.body)


_STEPS: dict[type[Step], Callable[[Any], Iterator[str]]] = {
    Segment: lambda step: iter((f"segment {step.symbol}",)),
    ForeignCall: _call,
    PositionCheck: _positions,
    ReadSizes: _read,
    Branch: _branch,
    Loop: _loop,
}

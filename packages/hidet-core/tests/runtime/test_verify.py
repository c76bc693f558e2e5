"""Programs that cannot be run are refused before they are: each breaks one rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.errors import VerifyError
from hidet.runtime.program import (
    ArenaBuffer,
    Branch,
    ConstantSlot,
    ForeignCall,
    HostProgram,
    InputSlot,
    Loop,
    NumberCheck,
    ObjectSlot,
    OutputSlot,
    PositionCheck,
    ReadSizes,
    Segment,
    SizeCheck,
    SubProgram,
    SymbolSource,
    TensorSlot,
)
from hidet.runtime.signature import (
    Entries,
    Fixed,
    Form,
    GraphInput,
    GraphOutput,
    Items,
    Parameter,
    Signature,
    signature_of_inputs,
)
from hidet.runtime.verify import MAX_SLOTS, verify_program, verify_signature

N = dims.symbol("n", 1, 64)
M = dims.symbol("m", 0, 9)
K = dims.symbol("k", 0, 9)
X, BUFFER, RESULT, SIZE, WEIGHT, FLAG, MADE, PREPARED, W = range(9)


def vector(slot: int, extent: Any = N, dtype: Any = dtypes.f32, stride: Any = 1, offset: Any = 0) -> TensorSlot:
    return TensorSlot(slot, dtype, (extent,), (stride,), offset)


def scalar(slot: int, dtype: Any = dtypes.boolean) -> TensorSlot:
    return TensorSlot(slot, dtype, (), ())


INNER = HostProgram(
    slots=2,
    inputs=(InputSlot(vector(0)),),
    outputs=(OutputSlot(vector(1), storage=4 * N),),
    steps=(Segment("inner"),),
    symbols=(SymbolSource("n", 0, 0),),
)
BODY = HostProgram(
    slots=4,
    inputs=(InputSlot(scalar(0, dtypes.i64)), InputSlot(vector(1))),
    outputs=(OutputSlot(scalar(2), storage=1), OutputSlot(vector(3), storage=4 * N)),
    steps=(Segment("body"),),
    symbols=(SymbolSource("n", 1, 0),),
)
SUB = SubProgram(INNER, (vector(X),))
BRANCH = Branch("if", scalar(FLAG), SUB, SUB, (vector(MADE),))
LOOP = Loop("while", SubProgram(BODY, (0, vector(X))), 5, scalar(FLAG), True, 1, (vector(MADE),))
PREPARE = HostProgram(
    slots=2,
    inputs=(),
    outputs=(OutputSlot(vector(1, 3), storage=12),),
    steps=(Segment("prepare"),),
)
PROGRAM = HostProgram(
    slots=9,
    inputs=(InputSlot(vector(X), name="x"), InputSlot(vector(W, 3), is_parameter=True, is_used=False)),
    outputs=(
        OutputSlot(vector(RESULT), storage=4 * N),
        OutputSlot(vector(MADE), is_made=True),
        OutputSlot(None, size=N),
    ),
    steps=(Segment("run"), BRANCH),
    buffers=(ArenaBuffer(BUFFER, 4 * N, 0, 1), ArenaBuffer(FLAG, 1, 0, 1)),
    sizes=((SIZE, N),),
    constants=(ConstantSlot(WEIGHT, 0),),
    stored=((WEIGHT, 8), (PREPARED, 12)),
    symbols=(SymbolSource("n", 0, 0),),
    prepare=PREPARE,
    prepared=(PREPARED,),
    size_checks=(SizeCheck(N, 64, False, "x"),),
    number_checks=(NumberCheck(N, dtypes.i32, "x"),),
)
CONSTANTS = (np.zeros(2, np.float32),)


def changed(**changes: Any) -> HostProgram:
    return replace(PROGRAM, **changes)


def steps(*made: Any) -> HostProgram:
    return changed(steps=(Segment("run"), *made, BRANCH))


def branch(**changes: Any) -> HostProgram:
    return changed(steps=(Segment("run"), replace(BRANCH, **changes)))


def inner(**changes: Any) -> HostProgram:
    return branch(then=SubProgram(replace(INNER, **changes), (vector(X),)))


def loop(**changes: Any) -> HostProgram:
    return changed(steps=(Segment("run"), replace(LOOP, **changes)))


def body(**changes: Any) -> HostProgram:
    return loop(body=SubProgram(replace(BODY, **changes), (0, vector(X))))


def result(**changes: Any) -> HostProgram:
    return changed(outputs=(replace(PROGRAM.outputs[0], **changes), *PROGRAM.outputs[1:]))


def call(*places: Any, results: Any = (), is_made: bool = False, **others: Any) -> HostProgram:
    return steps(ForeignCall("host", print, places, results, {}, is_made, **others))


def test_programs_that_can_be_run_are_accepted() -> None:
    verify_program(PROGRAM, CONSTANTS)
    verify_program(loop(), CONSTANTS)
    verify_program(call(vector(BUFFER), None, N, results=(vector(BUFFER),)), CONSTANTS)
    made = call(vector(X), results=(vector(3, M),), is_made=True, defines=(SymbolSource("m", 0, 0),))
    verify_program(replace(made, sizes=()), CONSTANTS)
    verify_program(steps(PositionCheck(scalar(BUFFER, dtypes.i64), N, N, True, "x")), CONSTANTS)


BROKEN: dict[str, tuple[HostProgram, str]] = {
    # the table
    "a table that is too long": (changed(slots=MAX_SLOTS + 1), "expected at most"),
    "slots that are no number": (changed(slots=True), "expected an integer"),
    "a table that is too short": (changed(slots=3), "slot of .* expected 0 to 2"),
    "a negative slot": (changed(sizes=((-1, N),)), "slot of a size is -1"),
    "a slot with two owners": (changed(sizes=((X, N),)), "slot 0 is filled twice"),
    "a buffer where a constant is": (changed(buffers=(ArenaBuffer(WEIGHT, 4, 0, 1),)), "filled twice"),
    "two buffers in one slot": (changed(buffers=(*PROGRAM.buffers, PROGRAM.buffers[0])), "filled twice"),
    "a buffer that ends before it begins": (changed(buffers=(ArenaBuffer(BUFFER, 4, 2, 1),)), "from step 2 to step 1"),
    "a buffer from a step that is no number": (changed(buffers=(ArenaBuffer(BUFFER, 4, 0.5, 1),)), "a step is 0.5"),
    "a buffer too small for what reads it": (
        changed(buffers=(PROGRAM.buffers[0], ArenaBuffer(FLAG, 0, 0, 1))),
        "of slot 5, which has 0 bytes",
    ),
    "a size beyond 64 bits": (changed(sizes=((SIZE, 1 << 70),)), "71 bits"),
    # constants and what is prepared
    "a constant that is not there": (changed(constants=(ConstantSlot(WEIGHT, 1),)), "number of a constant is 1"),
    "a constant that is too small": (changed(stored=((WEIGHT, 12), (PREPARED, 12))), "has 8 bytes, expected 12"),
    "a constant of unknown size": (changed(stored=((PREPARED, 12),)), "has 8 bytes, expected None"),
    "no prepare program": (changed(prepare=None), "there is no prepare program"),
    "prepared from inputs": (
        changed(prepare=replace(PREPARE, inputs=(InputSlot(vector(0, 4)),))),
        "takes 1 inputs, expected none",
    ),
    "too little is prepared": (changed(stored=((WEIGHT, 8), (PREPARED, 16))), "has 12 bytes, expected 16"),
    "prepared memory of unknown size": (changed(stored=((WEIGHT, 8),)), "nothing tells how large"),
    "a prepare program with another": (changed(prepare=replace(PREPARE, prepare=PREPARE)), "has a prepare program"),
    "more results than slots": (changed(prepared=(PREPARED, PREPARED)), "filled twice"),
    # inputs and symbols
    "an aligned input that is not there": (changed(aligned=(2,)), "number of an aligned input is 2"),
    "an aligned input that is overwritten": (
        changed(aligned=(0,), outputs=(*PROGRAM.outputs, OutputSlot(vector(X), mutates=0))),
        "input 0 may be copied before a call",
    ),
    "an input of two kinds": (changed(inputs=(replace(PROGRAM.inputs[0], size=3), PROGRAM.inputs[1])), "not one of"),
    "an input with an offset": (changed(inputs=(InputSlot(vector(X, offset=1)), PROGRAM.inputs[1])), "has an offset"),
    "an input that reaches before its start": (
        changed(inputs=(InputSlot(vector(X, stride=-1)), PROGRAM.inputs[1])),
        "negative extent, stride or offset",
    ),
    "strides of another rank": (
        changed(inputs=(InputSlot(TensorSlot(X, dtypes.f32, (N,), ())), PROGRAM.inputs[1])),
        "1 extents and 0 strides",
    ),
    "strings in a slot": (changed(inputs=(InputSlot(vector(X, dtype=dtypes.string)), PROGRAM.inputs[1])), "string"),
    "an input that is read, but not filled": (
        changed(inputs=(replace(PROGRAM.inputs[0], is_used=False), PROGRAM.inputs[1])),
        "reads slot 0, where no tensor is",
    ),
    "a parameter that is no tensor": (
        changed(inputs=(PROGRAM.inputs[0], InputSlot(None, True, size=3))),
        "is a parameter, but no tensor",
    ),
    "a symbol from no input": (changed(symbols=(SymbolSource("n", 9, 0),)), "tells n is 9"),
    "a symbol from no axis": (changed(symbols=(SymbolSource("n", 0, 1),)), "axis that tells n is 1"),
    "a symbol from a tensor itself": (changed(symbols=(SymbolSource("n", 0, None),)), "input 0 does not tell n"),
    "a symbol divided by nothing": (changed(symbols=(SymbolSource("n", 0, 0, 0, 1, 0),)), "divisor of n is 0"),
    "a symbol told twice": (changed(symbols=PROGRAM.symbols * 2), "told twice"),
    "a symbol that nobody tells": (changed(symbols=()), "tells size n"),
    "another unknown symbol": (changed(sizes=((SIZE, M),)), "tells size m"),
    "a symbol told that inputs do not have": (
        changed(symbols=(*PROGRAM.symbols, SymbolSource("q", 0, 0))),
        "do not tell size q",
    ),
    "a check of numbers as floats": (changed(number_checks=(NumberCheck(N, dtypes.f32, "x"),)), "an integer type"),
    # steps
    "a host value that is not there": (call(ObjectSlot(3)), "reads host value 3"),
    "a tensor that is not there": (call(vector(SIZE)), "reads slot 3, where no tensor is"),
    "a result that is not made yet": (call(vector(MADE)), "reads slot 6, where no tensor is"),
    "more than a buffer has": (call(vector(BUFFER, N + 1)), "of slot 1, which has 4\\*n bytes"),
    "beyond the end by an offset": (call(vector(BUFFER, offset=1)), "of slot 1, which has"),
    "beyond the end by a stride": (call(vector(WEIGHT, 2, stride=2)), "of slot 4, which has 8 bytes"),
    "beyond the end by a type": (call(vector(WEIGHT, 2, dtypes.f64)), "of slot 4, which has 8 bytes"),
    "a result beyond the end": (call(results=(vector(WEIGHT, 3),)), "of slot 4, which has 8 bytes"),
    "a host value in memory": (call(results=(ObjectSlot(3),)), "has no place in memory"),
    "made twice": (call(results=(vector(MADE),), is_made=True), "filled twice"),
    "made with an offset": (call(results=(vector(8, offset=3),), is_made=True), "has an offset"),
    "told by no result": (
        call(results=(vector(8, M),), is_made=True, defines=(SymbolSource("m", 1, 0),)),
        "tells m is 1",
    ),
    "positions of another type": (
        steps(PositionCheck(vector(X), N, N, True, "x")),
        "read from a tensor of type float32",
    ),
    "sizes read from floats": (steps(ReadSizes(vector(X), ())), "read from a tensor of type float32"),
    "more sizes read than there are": (
        steps(ReadSizes(scalar(FLAG), tuple(dims.symbols(M + K)))),
        "slot 5, which has 1 bytes",
    ),
    "a condition that is no bool": (branch(condition=vector(X)), "read from a tensor of type float32"),
    "a branch with too few arguments": (branch(then=SubProgram(INNER, ())), "takes 1 arguments, got 0"),
    "an argument of another type": (
        branch(then=SubProgram(INNER, (vector(BUFFER, dtype=dtypes.i32),))),
        "argument 0 of if is not what",
    ),
    "an argument of another layout": (
        branch(then=SubProgram(INNER, (vector(X, stride=2),))),
        "argument 0 of if is not what|of slot 0",
    ),
    "an argument of another kind": (branch(otherwise=SubProgram(INNER, (N,))), "argument 0 of if is not what"),
    "a branch without results": (inner(outputs=()), "has 1 results, its program 0"),
    "a result of another type": (
        inner(outputs=(OutputSlot(vector(1, dtype=dtypes.i32), storage=4 * N),)),
        "another type than that of its program",
    ),
    "a result of another kind": (inner(outputs=(OutputSlot(None, size=N),)), "another type than that of its program"),
    "parameters inside": (
        inner(inputs=(InputSlot(vector(0), is_parameter=True),)),
        "the program of if has parameters",
    ),
    "a broken program inside": (inner(slots=1), "slot of .* expected 0 to 0"),
    "a loop that counts in floats": (
        body(inputs=(InputSlot(scalar(0, dtypes.f64)), InputSlot(vector(1)))),
        "first argument of while is no i64",
    ),
    "a loop that ends by a float": (
        body(outputs=(OutputSlot(scalar(2, dtypes.f32), storage=4), BODY.outputs[1])),
        "no bool that ends it",
    ),
    "a loop that carries more than it has": (loop(carried=2), "what a loop carries is 2"),
    "a loop that stacks nothing": (loop(carried=0), "stacks results of another rank"),
    "a limit that is no integer": (loop(limit=vector(X)), "read from a tensor of type float32"),
    # results
    "a result without memory": (result(storage=None), "memory of 0 kinds"),
    "a result with two memories": (result(mutates=0), "memory of 2 kinds"),
    "a result of two kinds": (result(size=N), "not one of"),
    "a result that is too small": (result(storage=4 * N - 4), "of slot 2, which has"),
    "a result with too large a stride": (result(tensor=vector(RESULT, 64, stride=2)), "of slot 2, which has"),
    "a result in another's memory": (
        result(storage=None, same_as=0, tensor=vector(X)),
        "in whose memory result 0 lies is 0",
    ),
    "a result over another input": (
        result(storage=None, mutates=0),
        "overwrites input 0, which lies elsewhere|no tensor",
    ),
    "a result over no input": (result(storage=None, mutates=9, tensor=vector(X)), "that result 0 overwrites is 9"),
    "a result that no step makes": (
        result(storage=None, is_made=True, tensor=vector(X)),
        "is made by no step",
    ),
    "a result that nothing writes": (changed(steps=(BRANCH,)), "no step writes result 0"),
    "a host value as result that is not there": (result(tensor=None, storage=None, host=ObjectSlot(1)), "host value 1"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_program_that_cannot_be_run_is_refused(case: str) -> None:
    """red-team.md finding 4."""
    program, message = BROKEN[case]
    with pytest.raises(VerifyError, match=message):
        verify_program(program, CONSTANTS)


def test_a_size_is_used_only_after_the_step_that_defines_it() -> None:
    reads = ReadSizes(scalar(BUFFER, dtypes.i64), tuple(dims.symbols(M)))
    late = (Segment("run"), reads, ForeignCall("host", print, (vector(BUFFER, M, stride=0),), (), {}), BRANCH)
    verify_program(changed(steps=late), CONSTANTS)
    with pytest.raises(VerifyError, match="tells size m"):
        verify_program(changed(steps=(late[0], late[2], late[1], late[3])), CONSTANTS)


SIGNATURES: dict[str, tuple[tuple[Parameter, ...], int, str]] = {
    "an input that no parameter tells": ((Parameter("x", GraphInput(0)),), 1, r"tell inputs \[0\] of 2"),
    "an input that is not there": ((Parameter("x", Items((GraphInput(0), GraphInput(2)))),), 1, r"inputs \[0, 2\]"),
    "two parameters of one name": ((Parameter("x", GraphInput(0)), Parameter("x", GraphInput(1))), 2, "one name"),
    "more by position than there are": ((Parameter("x", Fixed(1)),), 2, "parameters by position is 2"),
    "left out, but read": ((Parameter("x", GraphInput(0), is_optional=True),), 1, "may be left out"),
    "fixed to a list": ((Parameter("x", Fixed([])),), 1, "is no number"),  # type: ignore[arg-type]
    "a key that is a list": ((Parameter("x", Entries((([], Fixed(1)),))),), 1, "key of a mapping"),  # type: ignore
}


@pytest.mark.parametrize("case", SIGNATURES)
def test_a_signature_that_does_not_fit_the_program_is_refused(case: str) -> None:
    """red-team.md finding 4."""
    parameters, positional, message = SIGNATURES[case]
    with pytest.raises(VerifyError, match=message):
        verify_signature(Signature(parameters, positional), PROGRAM)


def test_a_signature_that_fits_is_accepted() -> None:
    whole = Parameter("given", Entries((("a", GraphInput(1)), (2, Items((GraphInput(0), Fixed(None)))))))
    verify_signature(Signature((whole, Parameter("mode", Fixed("fast"), is_optional=True)), 1), PROGRAM)
    verify_signature(None, PROGRAM)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (GraphOutput(99), "the number of a result"),
        (Items((GraphOutput(-1),)), "the number of a result"),
        (GraphOutput(None), "the number of an input or result"),  # type: ignore[arg-type]  # no file holds a number there
        (Entries((("made", GraphInput(0)),)), "stands where a GraphOutput is expected"),
    ],
)
def test_results_that_the_program_does_not_have_are_refused(results: Form, message: str) -> None:
    names = [f"i{number}" for number in range(len(PROGRAM.inputs))]
    with pytest.raises(VerifyError, match=message):
        verify_signature(replace(signature_of_inputs(names), results=results), PROGRAM)

"""Functions in which an assertion may fail, and how they tell.

They take one parameter more, `%failure`: cells of a call, all zero until an assertion fails. Then they hold the address
of its text, that of the name of the kernel that it failed in, and the values that it tells. Whoever fails first writes
there and returns; whoever calls what may fail looks there and returns as well. A kernel finds the address behind its
arguments and the extents of its grid. What is called from outside of the module is a function of the usual parameters
around one that fails: it owns the cells, and hands what they tell to `NOTE_VALUES` and `NOTE_FAILURE`. Modules without
assertions have nothing of this. A poll that ends the call is told in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hidet.cpu.failures import INTERRUPTED, NOTE_FAILURE, NOTE_VALUES, RAISED
from hidet.ir import stmt as s
from hidet.ir.common_intrinsics import POLL
from hidet.ir.expr import Call
from hidet.ir.func import Function
from hidet.ir.node import IRNode
from hidet.ir.visit import has_statement, statements, walk

if TYPE_CHECKING:
    from hidet.cpu.codegen.state import ModuleState

FAILURE = "ptr %failure"
"""The parameter of functions that may fail."""

KERNEL_CELL, VALUE_CELLS = 1, 2
"""Cells behind that of the text: the kernel, and the first value."""
_THREAD_CELL = VALUE_CELLS + s.ASSERTED_VALUES
_TIME_CELL = _THREAD_CELL + 1
_CELLS = _TIME_CELL + 1

POLL_FUNCTION = "hidet.poll"
"""`i1 hidet.poll(ptr %failure)`: whether the call is to end, because another thread failed or a signal's handler raised
an exception. It looks at the clock, and ten times a second at signals."""

_POLL_NANOSECONDS = 100_000_000

THREAD = ".thread"
"""Ends the name of what one thread of a kernel does."""


def failing_functions(functions: Sequence[Function]) -> frozenset[str]:
    """The names of functions that have an assertion or a poll, or call or launch one that has."""
    found = {f.name for f in functions if has_statement(f.body, s.Assert) or _polls(f.body)}
    if not found:
        return frozenset()
    callees = {f.name: {name for node in walk(f.body) if (name := _callee(node)) is not None} for f in functions}
    while True:
        more = {name for name, called in callees.items() if name not in found and not found.isdisjoint(called)}
        if not more:
            return frozenset(found)
        found |= more


def checked_name(name: str) -> str:
    """The function that takes `FAILURE`, of one whose name may be called from outside."""
    return f"{name}.checked"


def has_asserted_values(functions: Sequence[Function]) -> bool:
    """Whether an assertion of these functions has values in its message."""
    return any(isinstance(n, s.Assert) and n.values for function in functions for n in statements(function.body))


def assertion_text(function: str, node: s.Assert) -> str:
    """What the failed assertion `node` reports: JSON of function, message, place and, if it has any, number of
    values."""
    loc = node.loc
    place = [None] * 3 if loc is None else [loc.file, loc.line, loc.column]
    count = [len(node.values)] if node.values else []
    return json.dumps([function.removesuffix(THREAD), node.message, *place, *count], ensure_ascii=False)


_owned = f"""  %thread = call ptr @llvm.thread.pointer()
  %owner = getelementptr ptr, ptr %failure, i64 {_THREAD_CELL}
  store ptr %thread, ptr %owner, align 8
"""


def poll_function(state: ModuleState) -> str:
    """LLVM text of `POLL_FUNCTION`.

    Python's handlers of signals run in its main thread, and only when Python runs or asks for them: what they raise is
    kept in `RAISED` until the call has ended. Threads of the pool, which Python does not know, look for failures alone.
    """
    declared = {
        "llvm.thread.pointer": ("ptr", ()),
        "clock_gettime": ("i32", ("i32", "ptr")),
        "PyGILState_Ensure": ("i32", ()),
        "PyGILState_Release": ("void", ("i32",)),
        "PyErr_CheckSignals": ("i32", ()),
        "PyErr_Fetch": ("void", ("ptr", "ptr", "ptr")),
    }
    for name, (result, arguments) in declared.items():
        state.declare(name, result, arguments)
    state.declarations[RAISED] = f"@{RAISED} = external global [3 x ptr]"
    return f"""define internal i1 @{POLL_FUNCTION}(ptr %failure) noinline cold nounwind {{
  %time = alloca [2 x i64], align 8
  %noted = load atomic ptr, ptr %failure monotonic, align 8
  %failed = icmp ne ptr %noted, null
  br i1 %failed, label %stop, label %who
who:
  %owner.cell = getelementptr ptr, ptr %failure, i64 {_THREAD_CELL}
  %owner = load ptr, ptr %owner.cell, align 8
  %thread = call ptr @llvm.thread.pointer()
  %own = icmp eq ptr %owner, %thread
  br i1 %own, label %when, label %go
when:
  %clock = call i32 @clock_gettime(i32 0, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.cell = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.cell, align 8
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %last.cell = getelementptr ptr, ptr %failure, i64 {_TIME_CELL}
  %last = load i64, ptr %last.cell, align 8
  %passed = sub i64 %now, %last
  %is.due = icmp ugt i64 %passed, {_POLL_NANOSECONDS}
  br i1 %is.due, label %keep.time, label %go
keep.time:
  store i64 %now, ptr %last.cell, align 8
  %is.first = icmp eq i64 %last, 0
  br i1 %is.first, label %go, label %ask
ask:
  %gil = call i32 @PyGILState_Ensure()
  %found = call i32 @PyErr_CheckSignals()
  %raised = icmp ne i32 %found, 0
  br i1 %raised, label %keep, label %release
release:
  call void @PyGILState_Release(i32 %gil)
  br label %go
keep:
  %value = getelementptr ptr, ptr @{RAISED}, i64 1
  %traceback = getelementptr ptr, ptr @{RAISED}, i64 2
  call void @PyErr_Fetch(ptr @{RAISED}, ptr %value, ptr %traceback)
  call void @PyGILState_Release(i32 %gil)
  store atomic ptr {state.text(INTERRUPTED)}, ptr %failure monotonic, align 8
  br label %stop
go:
  ret i1 false
stop:
  ret i1 true
}}"""


def reporting_function(
    name: str, result: str, parameters: Sequence[str], words: str, with_values: bool, with_polls: bool
) -> str:
    """LLVM text of the function that is called from outside, around the one that fails.

    result: its LLVM type. parameters: with their types. words: attributes. with_values: as of `has_asserted_values`.
    with_polls: whether the module has polls.
    """
    listed = ", ".join(parameters)
    given = ", ".join([*parameters, FAILURE])
    value = "" if result == "void" else "%value = "
    told = f"""  %values = getelementptr ptr, ptr %failure, i64 {VALUE_CELLS}
  call void @{NOTE_VALUES}(ptr %values)
"""
    return f"""define {result} @{name}({listed}) {words} {{
  %failure = alloca [{_CELLS} x ptr], align 8
  store [{_CELLS} x ptr] zeroinitializer, ptr %failure, align 8
{_owned if with_polls else ""}  {value}call {result} @{checked_name(name)}({given})
  %text = load ptr, ptr %failure, align 8
  %failed = icmp ne ptr %text, null
  br i1 %failed, label %report, label %done
report:
{told if with_values else ""}  %second = getelementptr ptr, ptr %failure, i64 {KERNEL_CELL}
  %kernel = load ptr, ptr %second, align 8
  call void @{NOTE_FAILURE}(ptr %text, ptr %kernel)
  br label %done
done:
  ret {"void" if result == "void" else f"{result} %value"}
}}"""


def polls_signals(functions: Sequence[Function]) -> bool:
    """Whether one of these functions polls."""
    return any(_polls(function.body) for function in functions)


def _polls(body: s.Stmt) -> bool:
    """Whether there is a poll; they are statements of their own."""
    return any(
        isinstance(n, s.Evaluate) and isinstance(n.expr, Call) and n.expr.intrinsic is POLL for n in statements(body)
    )


def _callee(node: IRNode) -> str | None:
    if isinstance(node, Call):
        return node.callee
    if isinstance(node, s.Launch):
        return node.kernel
    return node.function if isinstance(node, s.Invoke) else None

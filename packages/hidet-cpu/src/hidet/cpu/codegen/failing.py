"""Functions in which an assertion may fail, and how they tell.

They take one parameter more, `%failure`: cells of a call, all zero until an assertion fails. Then they hold the address
of its text, that of the name of the kernel that it failed in, and the values that it tells. Whoever fails first writes
there and returns; whoever calls what may fail looks there and returns as well. A kernel finds the address behind its arguments and the extents of its grid. What is called from
outside of the module is a function of the usual parameters around one that fails: it owns the cells, and hands what
they tell to `NOTE_VALUES` and `NOTE_FAILURE`. Modules without assertions have nothing of this.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from hidet.cpu.failures import NOTE_FAILURE, NOTE_VALUES
from hidet.ir import stmt as s
from hidet.ir.expr import Call
from hidet.ir.func import Function
from hidet.ir.node import IRNode
from hidet.ir.visit import has_statement, statements, walk

FAILURE = "ptr %failure"
"""The parameter of functions that may fail."""

KERNEL_CELL, VALUE_CELLS = 1, 2
"""Cells behind that of the text: the kernel, and the first value."""
_CELLS = VALUE_CELLS + s.ASSERTED_VALUES

THREAD = ".thread"
"""Ends the name of what one thread of a kernel does."""


def failing_functions(functions: Sequence[Function]) -> frozenset[str]:
    """The names of functions that have an assertion, or call or launch one that has."""
    found = {f.name for f in functions if has_statement(f.body, s.Assert)}
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


def tells_values(functions: Sequence[Function]) -> bool:
    """Whether an assertion of these functions tells values."""
    return any(isinstance(n, s.Assert) and n.values for function in functions for n in statements(function.body))


def assertion_text(function: str, node: s.Assert) -> str:
    """What the failed assertion `node` tells: JSON of function, message, place and, if it has any, number of values."""
    loc = node.loc
    place = [None] * 3 if loc is None else [loc.file, loc.line, loc.column]
    count = [len(node.values)] if node.values else []
    return json.dumps([function.removesuffix(THREAD), node.message, *place, *count], ensure_ascii=False)


def reporting_function(name: str, result: str, parameters: Sequence[str], words: str, with_values: bool) -> str:
    """LLVM text of the function that is called from outside, around the one that fails.

    result: its LLVM type. parameters: with their types. words: attributes. with_values: as of `tells_values`.
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
  {value}call {result} @{checked_name(name)}({given})
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


def _callee(node: IRNode) -> str | None:
    if isinstance(node, Call):
        return node.callee
    if isinstance(node, s.Launch):
        return node.kernel
    return node.function if isinstance(node, s.Invoke) else None

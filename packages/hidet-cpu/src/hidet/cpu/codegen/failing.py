"""Functions in which an assertion may fail, and how they tell.

They take one parameter more, `%failure`: two pointers, null until an assertion of the call fails, then its text and the
name of the kernel that it failed in. Whoever fails writes the text and returns; whoever calls what may fail looks there
and returns as well. A kernel finds the address behind its arguments and the extents of its grid. What is called from
outside of the module is a function of the usual parameters around one that fails: it owns the two pointers, and hands
what they tell to `NOTE_FAILURE`. Modules without assertions have nothing of this.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from hidet.cpu.failures import NOTE_FAILURE
from hidet.ir import stmt as s
from hidet.ir.expr import Call
from hidet.ir.func import Function
from hidet.ir.node import IRNode
from hidet.ir.visit import has_statement, walk

FAILURE = "ptr %failure"
"""The parameter of functions that may fail."""

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


def assertion_text(function: str, node: s.Assert) -> str:
    """What the failed assertion `node` tells: JSON of function, message and place."""
    loc = node.loc
    place = [None] * 3 if loc is None else [loc.file, loc.line, loc.column]
    return json.dumps([function.removesuffix(THREAD), node.message, *place], ensure_ascii=False)


def reporting_function(name: str, result: str, parameters: Sequence[str], words: str) -> str:
    """LLVM text of the function that is called from outside, around the one that fails.

    result: its LLVM type. parameters: with their types. words: attributes.
    """
    listed = ", ".join(parameters)
    given = ", ".join([*parameters, FAILURE])
    value = "" if result == "void" else "%value = "
    return f"""define {result} @{name}({listed}) {words} {{
  %failure = alloca [2 x ptr], align 8
  store [2 x ptr] zeroinitializer, ptr %failure, align 8
  {value}call {result} @{checked_name(name)}({given})
  %text = load ptr, ptr %failure, align 8
  %failed = icmp ne ptr %text, null
  br i1 %failed, label %report, label %done
report:
  %second = getelementptr ptr, ptr %failure, i64 1
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

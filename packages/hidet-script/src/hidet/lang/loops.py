"""The loops of scripts: over ranges and grids, over the tasks of a worker, and over what Python knows now."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.errors import ScriptError
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Const, Expr, Var
from hidet.ir.stmt import LoopKind
from hidet.ir.visit import walk
from hidet.lang import operators
from hidet.lang.assignments import change, known_as
from hidet.lang.mapping import Assignment, loop_styles
from hidet.lang.operand import unwrapped
from hidet.lang.values import Primitive, is_runtime

if TYPE_CHECKING:
    from hidet.lang.translator import Translator

LARGEST_UNROLL = 4096
"""Turns of a loop that is written out, at most: more would take minutes to compile."""
UNROLLED_TASKS = 64
"""Loops over tasks are unrolled when a worker has at most as many: indices into registers become constants."""

_KINDS: dict[str, LoopKind] = {"auto": "serial", "serial": "serial", "unroll": "unroll", "parallel": "serial"}


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops inside of each other, and what their counters mean.

    extents: of the loops, outermost first, i64. kinds: how each is made. values: what the loop's target stands for,
    from the counters. is_tuple: a single name as target stands for all values. parallel: which loops' turns may run at
    the same time, () for none.
    """

    extents: tuple[Expr, ...]
    kinds: tuple[LoopKind, ...]
    values: Callable[[Sequence[Expr]], tuple[Expr, ...]]
    is_tuple: bool
    parallel: tuple[bool, ...] = ()


def translate_for(translator: Translator, node: ast.For) -> None:
    """Add the loop to the translator's block."""
    if node.orelse:
        translator.fail(node.orelse[0], "a loop of a script has no else")
    nest = _iterated(translator, node)
    if not isinstance(nest, Nest):
        _repeat_now(translator, node, nest)
        return
    jumps = _jumps(node.body)
    if ast.Break in jumps and len(nest.extents) != 1:
        translator.fail(node, "break leaves one loop, but this one stands for several", "use loops over range")
    kinds = tuple("serial" if jumps else kind for kind in nest.kinds)
    names = [name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)]
    counters = tuple(
        Var(names[i] if len(names) == len(nest.extents) else f"{names[0] if names else 'i'}_{i}", dtypes.i64)
        for i in range(len(nest.extents))
    )
    extents = tuple(_lasting(translator, extent) for extent in nest.extents)
    for counter, extent in zip(counters, extents, strict=True):
        if isinstance(extent, Const) and isinstance(extent.value, int):
            translator.facts.extents[counter] = extent.value
    with translator.collecting() as body, translator.names.block(is_branch=True):
        with translator.at(node.target):
            values = nest.values(counters)
            _bind_target(translator, node, values, nest.is_tuple)
        translator.statements(node.body, loop="runtime")
    inner = build.seq(body)
    loc = translator.place(node)
    parallel = nest.parallel or (False,) * len(extents)
    if any(parallel) and ast.Break in jumps:
        translator.fail(
            jumps[ast.Break],
            "break stands in a parallel loop, whose turns run at the same time",
            "continue ends a turn; loop over range(...) to end them all",
        )
    for var, extent, kind, is_parallel in reversed(list(zip(counters, extents, kinds, parallel, strict=True))):
        inner = s.For(var, build.index(0), extent, inner, 1, _possible(kind, extent), loc)
        if is_parallel:
            translator.parallel_loops.append(inner)
    translator.stmts.append(inner)


def _possible(kind: LoopKind, extent: Expr) -> LoopKind:
    """What a loop can be: one that is written out has a number of turns that is known and not too large."""
    turns = getattr(extent, "value", None)
    is_written_out = isinstance(turns, int) and turns <= LARGEST_UNROLL
    return "serial" if kind == "unroll" and not is_written_out else kind


def _lasting(translator: Translator, extent: Expr) -> Expr:
    """An extent as it is when the loop begins: a new variable where the body may change what it is made of."""
    changes = any(isinstance(node, Var) and translator.may_change(node) for node in walk(extent))
    return translator.declare("extent", extent) if changes else extent


def _bind_target(translator: Translator, node: ast.For, values: tuple[Expr, ...], is_tuple: bool) -> None:
    target = node.target
    if isinstance(target, ast.Name):
        if is_tuple:
            held = tuple(_held(translator, f"{target.id}_{i}", value, node) for i, value in enumerate(values))
            translator.names.bind(target.id, held)
            return
        _bind_index(translator, target.id, values[0], node)
        return
    if not isinstance(target, ast.Tuple | ast.List) or not all(isinstance(e, ast.Name) for e in target.elts):
        translator.fail(target, f"expected names, found {ast.unparse(target)}")
    if len(target.elts) != len(values):
        translator.fail(target, f"{len(target.elts)} names for tasks of {len(values)} dims")
    for element, value in zip(target.elts, values, strict=True):
        assert isinstance(element, ast.Name)
        _bind_index(translator, element.id, value, node)


def _bind_index(translator: Translator, name: str, value: Expr, node: ast.For) -> None:
    known = known_as(translator, name)
    if known is not None:
        # As in Python the loop changes a variable that is there already.
        _require_variable(translator, name, known, node)
        change(translator, known, value, node)
        return
    if translator.bindings.is_assigned(name):
        # The body changes it, which a loop counter does not allow: a copy.
        copy = Var(name, value.type)
        translator.stmts.append(s.Declare(copy, value, translator.place(node)))
        translator.names.bind(name, copy)
        return
    translator.names.bind(name, _held(translator, name, value, node))


def _require_variable(translator: Translator, name: str, known: Any, node: ast.For) -> None:
    if not translator.is_variable(known):
        translator.fail(node.target, f"{name} has another meaning around the loop", "use another name for the loop")


def _held(translator: Translator, name: str, value: Expr, node: ast.For) -> Expr:
    """An index made of what does not change: itself when it is a variable or constant, else a new variable."""
    if isinstance(value, Var | Const):
        return value
    variable = Var(name, value.type)
    translator.facts.values[variable] = value
    translator.stmts.append(s.Declare(variable, value, translator.place(node)))
    return variable


def _fixed(translator: Translator, name: str, value: Expr) -> Expr:
    """The present value of an expression that a loop may change; what never changes is itself."""
    if isinstance(value, Const) or (isinstance(value, Var) and not translator.may_change(value)):
        return value
    return translator.declare(name, value)


def _iterated(translator: Translator, node: ast.For) -> Nest | tuple[Any, ...]:
    """The loops that run in the program, or the items that are known now."""
    iterated = node.iter
    if isinstance(iterated, ast.Call):
        function = translator.value(iterated.func)
        name = "range" if function is range else function.name if isinstance(function, Primitive) else ""
        make = _ITERATORS.get(name)
        if make is not None:
            arguments = translator.elements(iterated.args)
            keywords = {str(k.arg): translator.value(k.value) for k in iterated.keywords}
            with translator.at(iterated):
                return make(translator, *arguments, **keywords)
    value = translator.value(iterated)
    if isinstance(value, Assignment):
        with translator.at(iterated):
            return _tasks(translator, value)
    if is_runtime(value) and not isinstance(value, tuple | list):
        translator.fail(iterated, f"{ast.unparse(iterated)} cannot be iterated over: it is known at run time only")
    with translator.at(iterated):
        return tuple(map(unwrapped, value))


def _range(kind: LoopKind) -> Callable[..., Nest]:
    def make(translator: Translator, *bounds: Any, start: Any = None, stop: Any = None, step: Any = None) -> Nest:
        if not 1 <= len(bounds) + (stop is not None) <= 3:
            raise ScriptError("expected range(stop), range(start, stop) or range(start, stop, step)")
        given = list(bounds) if stop is None else [*bounds, stop]
        first, last, stride = (0, given[0], 1) if len(given) == 1 else (*given, 1)[:3]
        first, stride = first if start is None else start, stride if step is None else step
        if not isinstance(stride, int) or stride == 0:
            raise ScriptError("the step of a range must be an integer known at build time, and not 0")
        begin, end = operators.index(first), operators.index(last)
        distance = end - begin if stride > 0 else begin - end
        size = abs(stride)
        extent = distance if size == 1 else (distance + (size - 1)) // size
        begin = _fixed(translator, "start", begin)
        return Nest((extent,), (kind,), lambda counters: (begin + counters[0] * stride,), is_tuple=False)

    return make


def _grid(translator: Translator, *extents: Any, attrs: str | None = None, bind_tuple: bool = False) -> Nest:
    if extents and isinstance(extents[-1], str):
        *extents, attrs = extents  # type: ignore[assignment]  # a list of what is left
    is_listed = len(extents) == 1 and isinstance(extents[0], tuple | list)
    listed = extents[0] if is_listed else extents
    if not listed:
        raise ScriptError("grid needs at least one extent")
    styles = loop_styles(attrs, len(listed))
    kinds = tuple(_KINDS[style] for style in styles)
    parallel = tuple(style == "parallel" for style in styles)
    return Nest(tuple(map(operators.index, listed)), kinds, tuple, bind_tuple or is_listed or len(listed) > 1, parallel)


def _tasks(translator: Translator, assignment: Assignment) -> Nest:
    """The loops of a worker over its tasks. A single task is a loop of one turn."""
    mapping = assignment.mapping
    worker = _fixed(translator, "worker", operators.index(assignment.worker))
    loops = mapping.loops()
    is_small = mapping.tasks_per_worker <= UNROLLED_TASKS
    kinds = tuple("unroll" if loop.style == "auto" and is_small else _KINDS[loop.style] for loop in loops)

    def values(counters: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(map(build.index, mapping.task(worker, counters if loops else ())))

    extents = tuple(build.index(loop.extent) for loop in loops)
    is_tuple = assignment.bind_tuple or mapping.rank > 1
    return Nest(extents, kinds, values, is_tuple, tuple(loop.style == "parallel" for loop in loops))


_ITERATORS: dict[str, Callable[..., Nest]] = {
    "range": _range("serial"),
    "unroll": _range("unroll"),
    "vectorize": _range("vectorize"),
    "grid": _grid,
}


def _repeat_now(translator: Translator, node: ast.For, items: Sequence[Any]) -> None:
    """The body once for each item of a Python sequence."""
    if len(items) > LARGEST_UNROLL:
        translator.fail(
            node, f"a loop over {len(items)} items known at build time is too long to write out", "loop over range(...)"
        )
    for name in (part for part in ast.walk(node.target) if isinstance(part, ast.Name)):
        if known_as(translator, name.id) is not None:
            translator.fail(node.target, f"{name.id} has another meaning around the loop", "use another name for it")
    for item in translator.held(items, node):
        with translator.names.block(is_branch=False):
            translator.bind_parts(node.target, item)
            translator.statements(node.body, loop="now")


def _jumps(body: Sequence[ast.stmt]) -> dict[type[ast.stmt], ast.stmt]:
    """Which of break and continue leave the loop that has this body, and where."""
    found: dict[type[ast.stmt], ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.Break | ast.Continue):
            found.setdefault(type(node), node)
        elif isinstance(node, ast.If):
            found = {**_jumps([*node.body, *node.orelse]), **found}
    return found

"""Checks of every index of an array, for debugging where nothing else has such checks.

Code of the host asserts its indices (`hidet.passes.program.assert_bounds`). This is about kernels on a device.

An access outside its array is neither made nor ends the kernel: a read gives element 0, a write is left out, and the
first thread that meets one notes it in `FAULT_WORDS` words of memory, which the caller reads after the launch. So the
device stays usable. Arrays have a shape; what is reached through pointers and addresses is not checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hidet import dtypes
from hidet.errors import LaunchError, ScheduleError
from hidet.gpu.intrinsics import intrinsic_call
from hidet.ir import build
from hidet.ir import expr as e
from hidet.ir import stmt as s
from hidet.ir.bounds import Guards, IndexBound, bounds_of, guarded_loads, is_inside
from hidet.ir.func import Function, Module
from hidet.ir.node import IRNode
from hidet.ir.types import PointerType
from hidet.ir.visit import rewrite, walk
from hidet.loc import Loc
from hidet.target import CheckedModule

FAULT_WORDS = 11
"""i32 words, all zero, that a launch with checks is given: number of the failed check from 1, then x, y and z of block
and thread, then the low and the high half of the index, and of the extent that it is outside of."""

_NOTE = "hidet_note_fault"
_AXES = ("x", "y", "z")


@dataclass(frozen=True, slots=True)
class Check:
    """One index of an access: in which function, what to tell of it (with `{}` for index and extent), and where it is
    in the user's script (None where unknown)."""

    function: str
    message: str
    loc: Loc | None


def check_bounds(module: Module) -> CheckedModule:
    """`module` with checks in its kernels that are launched with blocks of threads, and in what they call.

    ScheduleError for a module that calls kernels or host functions of other modules: their checks would go nowhere.
    """
    if module.externals:
        raise ScheduleError(
            f"module {module.entry} is linked to {', '.join(module.externals)}, whose accesses would not be checked",
            hint="check modules before they are linked",
        )
    kept = _without_threads(module)
    checks: list[Check] = []
    functions = [
        function if function.name in kept else _Checker(function, module, kept, checks).run()
        for function in module.functions
    ]
    return CheckedModule(
        replace(module, functions=(_note_function(), *functions)), FAULT_WORDS, partial(fault_error, tuple(checks))
    )


def fault_error(checks: Sequence[Check], words: Sequence[int]) -> LaunchError | None:
    """The error that the words of a finished launch tell of; None when all accesses were inside their arrays."""
    number, *rest = (int(word) for word in words)
    if number == 0:
        return None
    check = checks[number - 1]
    block, thread = (", ".join(map(str, part)) for part in (rest[:3], rest[3:6]))
    index, extent = (high << 32 | low & 0xFFFFFFFF for low, high in (rest[6:8], rest[8:10]))
    return LaunchError(
        f"in {check.function}, block ({block}), thread ({thread}): {s.fill_in(check.message, (index, extent))}",
        loc=check.loc,
        hint="results of this launch are wrong; the device is still usable",
    )


def _without_threads(module: Module) -> frozenset[str]:
    """Functions without checks: kernels of the CPU, and device functions that only those or nobody calls."""
    threaded = {
        node.kernel
        for function in module.functions
        for node in walk(function.body)
        if isinstance(node, s.Launch) and node.block
    }
    callees: Mapping[str, set[str]] = {
        function.name: {node.callee for node in walk(function.body) if isinstance(node, e.Call)}
        for function in module.functions
    }
    pending = list(threaded)
    while pending:
        more = {name for name in callees.get(pending.pop(), set()) if name in callees} - threaded
        threaded |= more
        pending.extend(more)
    names = {function.name for function in module.functions if function.kind != "host"}
    return frozenset(names - threaded)


def _note_function() -> Function:
    """Notes a fault unless one is noted already."""
    faults, number = e.Var("faults", PointerType(dtypes.i32)), e.Var("number", dtypes.i32)
    told = tuple(e.Var(name, dtypes.i64) for name in ("index", "extent"))
    before = intrinsic_call("gpu.atomic_compare_exchange", faults, e.Const(0, dtypes.i32), number)
    places = [f"{what}.{axis}" for what in ("block_idx", "thread_idx") for axis in _AXES]
    halves = [build.cast(half, dtypes.i32) for value in told for half in (value, build.binary("shr", value, 32))]
    found = [*(intrinsic_call(f"gpu.{place}") for place in places), *halves]
    notes = [s.Store(faults, (build.index(1 + word),), value) for word, value in enumerate(found)]
    first = e.Binary("eq", before, e.Const(0, dtypes.i32), dtypes.boolean)
    return Function(_NOTE, (faults, number, *told), s.If(first, build.seq(notes)), "device")


class _Checker:
    """One function. `kept`: functions that take no words for faults. Found checks go to `checks`."""

    def __init__(self, function: Function, module: Module, kept: frozenset[str], checks: list[Check]) -> None:
        self.function = function
        self.kept = kept
        self.checks = checks
        self.faults = e.Var("faults", PointerType(dtypes.i32))
        self._own = {other.name for other in module.functions} - kept

    def run(self) -> Function:
        """The function with checks, and with the words as last parameter."""
        body = self.stmt(self.function.body)
        return replace(self.function, params=(*self.function.params, self.faults), body=body)

    def stmt(self, node: s.Stmt) -> s.Stmt:
        """A statement with the checks of its expressions before it."""
        if isinstance(node, s.Seq):
            return build.seq(self.stmt(child) for child in node.stmts)
        if isinstance(node, s.Launch | s.Invoke):
            name = node.kernel if isinstance(node, s.Launch) else node.function
            return replace(node, arguments=(*node.arguments, self.faults)) if name in self._own else node
        if self.function.kind == "host":
            return node.rebuild(lambda child: self.stmt(child) if isinstance(child, s.Stmt) else child)  # type: ignore[no-any-return]
        if isinstance(node, s.While):
            leave = s.If(build.unary("lnot", self.safe(node.condition)), s.Break())
            before = self.notes([node.condition], node.loc)
            body = build.seq([*before, leave, self.stmt(node.body)])
            return s.While(e.Const(True, dtypes.boolean), body, node.loc)
        roots = [child for child in node.children() if isinstance(child, e.Expr)]
        before = self.notes(roots, getattr(node, "loc", None))
        rebuilt = node.rebuild(lambda child: self.stmt(child) if isinstance(child, s.Stmt) else self.safe(child))
        if isinstance(node, s.Store):
            bounds = bounds_of(node)
            if bounds:
                before += [self.note(bound, (), node.loc) for bound in bounds]
                rebuilt = s.If(self.safe(is_inside(bounds)), rebuilt)
        return build.seq([*before, rebuilt]) if before else rebuilt

    def safe(self, root: e.Expr) -> e.Expr:
        """An expression whose accesses outside of arrays are of element 0, and whose calls pass the words on."""

        def change(node: IRNode) -> IRNode | None:
            if isinstance(node, e.Load):
                bounds = bounds_of(node)
                if not bounds:
                    return None
                inside = is_inside(bounds)
                indices = tuple(build.select(inside, index, build.index(0)) for index in node.indices)
                return replace(node, indices=indices)
            if isinstance(node, e.Call) and node.callee in self._own:
                return replace(node, arguments=(*node.arguments, self.faults))
            return None

        return rewrite(root, change)

    def notes(self, roots: Sequence[e.Expr], loc: Loc | None) -> list[s.Stmt]:
        """Statements that note accesses of expressions outside of their arrays, as far as they would be made."""
        return [
            self.note(bound, guards, loc)
            for root in roots
            for load, guards in guarded_loads(root)
            for bound in bounds_of(load)
        ]

    def note(self, bound: IndexBound, guards: Guards, loc: Loc | None) -> s.Stmt:
        """Note a fault where `guards` hold and the index is outside."""
        self.checks.append(Check(self.function.name, bound.message, loc))
        number = e.Const(len(self.checks), dtypes.i32)
        arguments = (self.faults, number, self.safe(bound.last), self.safe(bound.extent))
        call = s.Evaluate(e.Call(_NOTE, arguments, None))  # type: ignore[arg-type]  # gives no value
        result: s.Stmt = s.If(build.unary("lnot", self.safe(bound.inside)), call)
        for guard in reversed(guards):
            result = s.If(self.safe(guard), result)
        return result

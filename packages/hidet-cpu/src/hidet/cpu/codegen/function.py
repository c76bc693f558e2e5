"""Emitting one thread-IR function as LLVM text: blocks, locals, control flow. Expressions are in `expression.py`."""

from __future__ import annotations

from collections.abc import Callable

from hidet.cpu.codegen.evaluation import ExpressionEmitter
from hidet.cpu.codegen.expression import HANDLERS, emit_reassociated
from hidet.cpu.codegen.failing import FAILURE, VALUE_CELLS, assertion_text, checked_name
from hidet.cpu.codegen.lines import LineEmitter
from hidet.cpu.codegen.memory import emit_in_memory_form, emit_pointer, emit_unknown_mask
from hidet.cpu.codegen.spelling import memory_type, register_type, suffix_of
from hidet.cpu.codegen.state import ModuleState
from hidet.errors import CodegenError
from hidet.ir import stmt as s
from hidet.ir.build import INDEX
from hidet.ir.expr import Binary, Bitcast, Call, Const, Expr, Load, Number, Var
from hidet.ir.func import COMPACT, Function
from hidet.ir.print_format import c_format, promoted
from hidet.ir.types import BufferType, PointerType, Type, VectorType
from hidet.ir.visit import statements, walk

# Work below this many nanoseconds is not worth waking the pool: an empty region costs about half a microsecond.
PARALLEL_GRAIN = 5000


class FunctionEmitter:
    """Statements of one function. `out` gets the body, `entry` the allocas that precede it."""

    def __init__(self, names: dict[Var, str], module: ModuleState, function: Function, wraps: bool = False) -> None:
        self.module = module
        self.out = LineEmitter(module)
        self.entry: list[str] = []
        self._expressions = ExpressionEmitter(self.out, HANDLERS, names, wraps)
        self._value = self._expressions.value
        self.label = function.name
        self._assigned = _assigned_variables(function.body)
        self._loops: list[tuple[str, str]] = []
        self._is_compact = COMPACT in function.attributes

    def stmt(self, node: s.Stmt) -> None:
        """Emit one statement; CodegenError, with its place, for what this target does not know."""
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise CodegenError(f"the CPU target cannot emit statement {type(node).__name__}")
        try:
            handler(self, node)
        except CodegenError as error:
            error.loc = error.loc or getattr(node, "loc", None)
            raise

    def _seq(self, node: s.Seq) -> None:
        for child in node.stmts:
            self.stmt(child)

    def _declare(self, node: s.Declare) -> None:
        type_ = node.var.type
        if node.init is not None and node.var not in self._assigned:
            self._expressions.name_value(node.var, node.init)
            return
        slot = self.out.fresh(node.var.name)
        if isinstance(type_, BufferType):
            count = 1
            for extent in type_.shape:
                if not isinstance(extent, Const):
                    raise CodegenError(f"local array {node.var.name} needs a constant shape")
                count *= int(extent.value)  # type: ignore[arg-type]  # index constants are ints
            element = memory_type(VectorType(type_.dtype, type_.lanes) if type_.lanes > 1 else type_.dtype)
            self.entry.append(f"  {slot} = alloca [{count} x {element}], align 64")
        else:
            self.entry.append(f"  {slot} = alloca {register_type(type_)}, align {_slot_alignment(type_)}")
        self._expressions.slots[node.var] = slot
        if node.init is not None:
            self._write_slot(node.var, node.init)

    def _assign(self, node: s.Assign) -> None:
        self._write_slot(node.var, node.value, reassociate=_is_reduction(node.var, node.value))

    def _write_slot(self, var: Var, value: Expr, reassociate: bool = False) -> None:
        slot = self._expressions.slots.get(var)
        if slot is None:
            raise CodegenError(f"variable {var.name} is assigned but not declared")
        self._expressions.begin_statement()
        text = self._value(value) if not reassociate else emit_reassociated(self._expressions, value)
        self.out.line(f"store {register_type(var.type)} {text}, ptr {slot}")

    def _store(self, node: s.Store) -> None:
        self._expressions.begin_statement()
        value = emit_in_memory_form(self._expressions, node.value)
        pointer = emit_pointer(self._expressions, node.buffer, node.indices)
        type_ = memory_type(node.value.type)
        alignment = node.value.dtype.nbytes
        if node.mask is None:
            self.out.line(f"store {type_} {value}, ptr {pointer}, align {alignment}{self._expressions.access_suffix()}")
            return
        mask = self._value(node.mask)
        if node.value.dtype.nbytes < (4 if node.value.dtype.is_float else 8):
            mask = emit_unknown_mask(self._expressions, mask, node.value.lanes)
        mask_type = register_type(node.mask.type)
        name = f"llvm.masked.store.{suffix_of(type_)}.p0"
        target = f"ptr align {alignment}"
        self.module.declare(name, "void", (type_, "ptr", mask_type))
        self.out.line(f"call void @{name}({type_} {value}, {target} {pointer}, {mask_type} {mask})")

    def _for(self, node: s.For) -> None:
        if node.kind == "unroll" and isinstance(node.extent, Const) and isinstance(node.start, Const):
            self._unrolled(node)
            return
        self._expressions.begin_statement()
        start = self._value(node.start)
        extent = self._value(node.extent)
        end = self.out.fresh("end")
        self.out.line(f"{end} = add nsw i64 {start}, {extent}")
        before, head, body, latch, done = self.out.current_block, *self.out.labels("head", "body", "latch", "done")
        counter = self.out.fresh(node.var.name)
        following = self.out.fresh("next")
        self.out.line(f"br label %{head}")
        self.out.block(head)
        self.out.line(f"{counter} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        condition = self.out.fresh("more")
        self.out.line(f"{condition} = icmp slt i64 {counter}, {end}")
        self.out.line(f"br i1 {condition}, label %{body}, label %{done}")
        self.out.block(body)
        self._expressions.names[node.var] = counter
        metadata = ""
        if node.kind == "vectorize":
            group = self.module.metadata("distinct !{}")
            self._expressions.access_groups.append(group)
            metadata = f", !llvm.loop {self.module.vector_loop(group, insist=self._is_straight(node.body))}"
        elif self._is_compact:
            metadata = f", !llvm.loop {self.module.scalar_loop()}"
        self._loops.append((done, latch))
        self.stmt(node.body)
        self._loops.pop()
        if node.kind == "vectorize":
            self._expressions.access_groups.pop()
        self.out.jump(latch)
        self.out.block(latch)
        self.out.line(f"{following} = add nsw i64 {counter}, {node.step}")
        self.out.line(f"br label %{head}{metadata}")
        self.out.block(done)

    def _is_straight(self, body: s.Stmt) -> bool:
        """Whether LLVM can vectorise a loop with this body: nothing leaves it early, it has no loops of its own and
        calls only functions that are inlined into it, and what it reads does not repeat with a short period.

        LLVM says so on stderr where it is told to and cannot.
        """
        filled = 0
        for n in walk(body):
            if type(n) in _NOT_VECTORISED or (isinstance(n, s.For) and n.kind != "unroll"):
                return False
            if isinstance(n, Call) and not self.module.is_inline(n):
                return False
            if isinstance(n, Load) and any(map(_repeats, n.indices)):
                return False
            filled += isinstance(n, s.Store) and isinstance(n.value, Const)
        # Of several constants side by side LLVM makes a call of memset before it looks at loops.
        return filled < 2

    def _unrolled(self, node: s.For) -> None:
        first, count = int(node.start.value), int(node.extent.value)  # type: ignore[attr-defined]  # both are Const
        for i in range(first, first + count, node.step):
            self._expressions.names[node.var] = str(i)
            self.stmt(node.body)

    def _while(self, node: s.While) -> None:
        head, body, done = self.out.labels("head", "body", "done")
        self.out.jump(head)
        self.out.block(head)
        self._expressions.begin_statement()
        condition = self._value(node.condition)
        self.out.line(f"br i1 {condition}, label %{body}, label %{done}")
        self.out.block(body)
        self._loops.append((done, head))
        self.stmt(node.body)
        self._loops.pop()
        self.out.jump(head)
        self.out.block(done)

    def _if(self, node: s.If) -> None:
        self._expressions.begin_statement()
        condition = self._value(node.condition)
        then, otherwise, done = self.out.labels("then", "else", "endif")
        self.out.line(f"br i1 {condition}, label %{then}, label %{otherwise if node.otherwise is not None else done}")
        self.out.block(then)
        self.stmt(node.then)
        self.out.jump(done)
        if node.otherwise is not None:
            self.out.block(otherwise)
            self.stmt(node.otherwise)
            self.out.jump(done)
        self.out.block(done)

    def _break(self, node: s.Break) -> None:
        self._leave_to(self._loops[-1][0])

    def _continue(self, node: s.Continue) -> None:
        self._leave_to(self._loops[-1][1])

    def _leave_to(self, label: str) -> None:
        self.out.line(f"br label %{label}")
        self.out.block(self.out.labels("dead")[0])

    def _return(self, node: s.Return) -> None:
        self._expressions.begin_statement()
        if node.value is None:
            self.out.line("ret void")
        else:
            self.out.line(f"ret {register_type(node.value.type)} {self._value(node.value)}")
        self.out.block(self.out.labels("dead")[0])

    def _evaluate(self, node: s.Evaluate) -> None:
        self._expressions.begin_statement()
        self._value(node.expr)

    def _assert(self, node: s.Assert) -> None:
        self._expressions.begin_statement()
        condition = self._value(node.condition)
        passed, failed = self.out.labels("passed", "failed")
        self.out.line(f"br i1 {condition}, label %{passed}, label %{failed}")
        self.out.block(failed)
        # Memory behind an assertion may be anything: nothing more is done.
        assert self.out.failed_text is not None, f"{self.label} has an assertion, and so cannot run to its end"
        text = self.module.text(assertion_text(self.label, node))
        told, done = self.out.labels("told", "left")
        # Threads may fail at the same time: the first one tells its values.
        outcome = self.out.instruction(f"cmpxchg ptr %failure, ptr null, ptr {text} monotonic monotonic, align 8")
        is_first = self.out.instruction(f"extractvalue {{ptr, i1}} {outcome}, 1")
        self.out.line(f"br i1 {is_first}, label %{told}, label %{done}")
        self.out.block(told)
        for number, value in enumerate(node.values):
            cell = self.out.instruction(f"getelementptr ptr, ptr %failure, i64 {VALUE_CELLS + number}")
            self.out.line(f"store i64 {self._value(value)}, ptr {cell}, align 8")
        self.out.jump(done)
        self.out.block(done)
        self.out.line(self.out.failed_text)
        self.out.block(passed)

    def _print(self, node: s.Print) -> None:
        self._expressions.begin_statement()
        arguments = ["i32 1", f"ptr {self.module.text(c_format(node.text))}"]
        for value in node.values:
            type_: Type = value.type if isinstance(value.type, PointerType) else promoted(value.dtype)
            arguments.append(f"{register_type(type_)} {self.out.convert(self._value(value), value.type, type_)}")
        # Not through a stream of the C library: its buffer would keep the text while Python writes past it.
        self.module.declare("dprintf", "i32", ("i32", "ptr", "..."))
        self.out.line(f"{self.out.fresh('printed')} = call i32 (i32, ptr, ...) @dprintf({', '.join(arguments)})")

    def _assembly(self, node: s.Assembly) -> None:
        raise CodegenError("assembly of a GPU has no meaning on a CPU", hint="compile it for the GPU")

    def _launch(self, node: s.Launch) -> None:
        if node.block:
            raise CodegenError(
                f"kernel {node.kernel} is launched with blocks of threads, which a CPU does not have",
                hint="compile it for a GPU target, or launch it over a grid alone",
            )
        self._expressions.begin_statement()
        grid = [self._value(extent) for extent in node.grid]
        arguments = [(register_type(a.type), self._value(a)) for a in node.arguments]
        cells = self.out.fresh("args")
        is_failing = node.kernel in self.module.failing
        cell_values = [*arguments, *(("i64", extent) for extent in grid), *([("ptr", "%failure")] * is_failing)]
        words = len(cell_values)
        self.entry.append(f"  {cells} = alloca [{max(words, 1)} x i64], align 64")
        for position, (type_, text) in enumerate(cell_values):
            cell = self.out.fresh("arg")
            self.out.line(f"{cell} = getelementptr i64, ptr {cells}, i64 {position}")
            self.out.line(f"store {type_} {text}, ptr {cell}, align 8")
        count = grid[0]
        for extent in grid[1:]:
            product = self.out.fresh("count")
            self.out.line(f"{product} = mul nsw i64 {count}, {extent}")
            count = product
        self.module.use_kernel(node.kernel)
        if node.cost is None:
            self._call_parallel(node.kernel, cells, count)
        else:
            self._call_where_worth_while(node.kernel, cells, count, self._value(node.cost))
        if is_failing:
            self.out.leave_where_failed(node.kernel)

    def _call_where_worth_while(self, kernel: str, cells: str, count: str, cost: str) -> None:
        """Share a launch among threads where the whole costs more than waking them."""
        total, large = self.out.fresh("nanoseconds"), self.out.fresh("large")
        self.out.line(f"{total} = mul nsw i64 {count}, {cost}")
        self.out.line(f"{large} = icmp sgt i64 {total}, {PARALLEL_GRAIN}")
        parallel, alone, done = self.out.labels("parallel", "alone", "launched")
        self.out.line(f"br i1 {large}, label %{parallel}, label %{alone}")
        self.out.block(parallel)
        self._call_parallel(kernel, cells, count)
        self.out.jump(done)
        self.out.block(alone)
        self.out.line(f"call void @{kernel}(ptr {cells}, i64 0, i64 {count})")
        self.out.jump(done)
        self.out.block(done)

    def _call_parallel(self, kernel: str, cells: str, count: str) -> None:
        self.module.declare("hidet_parallel", "void", ("ptr", "ptr", "ptr", "i64"))
        self.out.line(f"call void @hidet_parallel(ptr %pool, ptr @{kernel}, ptr {cells}, i64 {count})")

    def _invoke(self, node: s.Invoke) -> None:
        self._expressions.begin_statement()
        # Calls of host code have tens of sizes that are known.
        arguments = [
            f"i64 {a.value}" if type(a) is Const and a.type is INDEX else self._argument(a) for a in node.arguments
        ]
        if node.function not in self.module.functions and node.function not in self.module.declarations:
            self.module.declare(node.function, "void", ["ptr", *(register_type(a.type) for a in node.arguments)])
        if node.function in self.module.failing:
            self.out.line(f"call void @{checked_name(node.function)}({', '.join(['ptr %pool', *arguments, FAILURE])})")
            self.out.leave_where_failed()
        else:
            self.out.line(f"call void @{node.function}({', '.join(['ptr %pool', *arguments])})")

    def _argument(self, value: Expr) -> str:
        """An argument with its type. Addresses from a table of 8-byte cells are read as the pointers that they are."""
        if isinstance(value, Bitcast) and isinstance(value.type, PointerType):
            read = value.a
            if isinstance(read, Load) and read.mask is None:
                cell = emit_pointer(self._expressions, read.buffer, read.indices)
                return f"ptr {self.out.instruction(f'load ptr, ptr {cell}, align 8')}"
        return f"{register_type(value.type)} {self._value(value)}"


def _repeats(index: Expr) -> bool:
    """Whether an index holds a remainder by a power of two: of a loop whose number of iterations is a multiple of it,
    LLVM unrolls a period before it looks for vectors."""
    return any(
        isinstance(n, Binary) and n.op == "mod" and isinstance(n.b, Const) and _is_power_of_two(n.b.value)
        for n in walk(index)
    )


def _is_power_of_two(value: Number) -> bool:
    return isinstance(value, int) and value > 1 and value & (value - 1) == 0


_NOT_VECTORISED = frozenset({s.While, s.Break, s.Return, s.Assert, s.Print, s.Launch, s.Invoke})


def _is_reduction(var: Var, value: Expr) -> bool:
    """Whether an assignment reduces a number into its own variable, so that lanes may be combined in another order."""
    is_own = isinstance(value, Binary) and value.op in ("add", "mul", "min", "max") and var in (value.a, value.b)
    return is_own and not isinstance(var.type, PointerType)


def _slot_alignment(type_: object) -> int:
    return 64 if isinstance(type_, VectorType) else 8


def _assigned_variables(body: s.Stmt) -> set[Var]:
    """The variables that change after their declaration."""
    return {stmt.var for stmt in statements(body) if isinstance(stmt, s.Assign)}


_HANDLERS: dict[type, Callable[..., None]] = {
    s.Seq: FunctionEmitter._seq,
    s.Declare: FunctionEmitter._declare,
    s.Assign: FunctionEmitter._assign,
    s.Store: FunctionEmitter._store,
    s.For: FunctionEmitter._for,
    s.While: FunctionEmitter._while,
    s.If: FunctionEmitter._if,
    s.Break: FunctionEmitter._break,
    s.Continue: FunctionEmitter._continue,
    s.Return: FunctionEmitter._return,
    s.Evaluate: FunctionEmitter._evaluate,
    s.Assert: FunctionEmitter._assert,
    s.Print: FunctionEmitter._print,
    s.Assembly: FunctionEmitter._assembly,
    s.Launch: FunctionEmitter._launch,
    s.Invoke: FunctionEmitter._invoke,
}

"""Functions written statement by statement in Python, in the words of hidet 0.6; `hidet.script` is the shorter way.

with FunctionBuilder("scale", kind="cpu_kernel") as fb:
    x = tensor_var("x", [4], "float32")
    fb.extend_params([x])
    with fb.for_loop("i", 4) as i:
        fb.buffer_store(x, [i], x[i] * 2.0)
module = IRModule([fb.get()])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hidet.compat.expressions import Value
from hidet.errors import ScriptError
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Stmt
from hidet.ir.types import BufferType
from hidet.lang import operators
from hidet.lang.attributes import FUNCTION_KINDS, AttributeValues
from hidet.lang.function import ScriptFunction
from hidet.lang.operand import unwrapped
from hidet.lang.types import UNBOUNDED, TensorKind, VoidKind, value_type
from hidet.loc import Loc


class StmtBuilder:
    """Statements in the order in which they run; blocks are `with` statements."""

    def __init__(self) -> None:
        self._builder = IRBuilder()

    def __iadd__(self, other: Any) -> StmtBuilder:
        self.append(other)
        return self

    def append(self, stmt: Stmt | Sequence[Stmt] | Any) -> None:
        """A finished statement, several, or a call for its effect."""
        for part in stmt if isinstance(stmt, Sequence) else [stmt]:
            plain = unwrapped(part)
            if isinstance(plain, Expr):
                self._builder.run(plain)
            else:
                self._builder.emit(plain)

    def declare(self, v: Any, init: Any = None) -> Any:
        """A variable for the rest of the block; gives the variable."""
        variable = _var(v)
        self._builder.declare(variable, None if init is None else _converted(init, variable))
        return v

    def declare_var(self, hint: str, tp: Any, init: Any = None) -> Value:
        """A new variable of a type."""
        return Value(_var(self.declare(Value(Var(hint, value_type(tp))), init)))

    def assign(self, dst: Any, value: Any) -> None:
        """Give a variable another value."""
        self._builder.assign(_var(dst), _converted(value, _var(dst)))

    def buffer_store(self, buf: Any, indices: Sequence[Any], value: Any) -> None:
        """Write an element of memory, converted to the type of the elements."""
        memory = _var(buf)
        given = tuple(operators.index(unwrapped(index)) for index in indices)
        stored = operators.convert(unwrapped(value), memory.dtype, f"the value for {memory.name}")
        self._builder.store(memory, given, stored)

    def ret(self, value: Any = None) -> None:
        """Leave the function."""
        self._builder.return_(None if value is None else operators.as_expr(unwrapped(value)))

    def brk(self) -> None:
        """Leave the innermost loop."""
        self._builder.break_()

    @contextmanager
    def let(self, v: Any, value: Any) -> Iterator[Value]:
        """A variable with a value for a block. v: its name, or the variable."""
        given = operators.as_expr(unwrapped(value))
        if isinstance(v, str):
            yield Value(self._builder.let(v, given))
        else:
            self._builder.declare(_var(v), given)
            yield v

    @contextmanager
    def for_loop(self, v: Any, extent: Any) -> Iterator[Value]:
        """A loop from 0 to `extent` - 1; gives its index. v: its name."""
        name = v if isinstance(v, str) else _var(v).name
        with self._builder.for_range(name, operators.index(unwrapped(extent))) as index:
            yield Value(index)

    for_range = for_loop

    @contextmanager
    def for_grid(self, shape: Sequence[Any], iter_names: Sequence[str] | None = None) -> Iterator[list[Value]]:
        """Loops inside of each other; gives the indices."""
        names = [f"i{axis}" for axis in range(len(shape))] if iter_names is None else list(iter_names)
        loops = [
            self._builder.for_range(name, operators.index(unwrapped(extent)))
            for name, extent in zip(names, shape, strict=True)
        ]
        indices = [Value(loop.__enter__()) for loop in loops]
        yield indices
        for loop in reversed(loops):
            loop.__exit__(None, None, None)

    @contextmanager
    def if_then(self, cond: Any) -> Iterator[None]:
        """Statements that run where a condition holds."""
        with self._builder.if_(operators.condition(unwrapped(cond))):
            yield

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Those that run where the condition of the `if_then` right before does not."""
        with self._builder.else_():
            yield

    @contextmanager
    def while_loop(self, cond: Any) -> Iterator[None]:
        """A loop as long as a condition holds."""
        with self._builder.while_(operators.condition(unwrapped(cond))):
            yield

    def finish(self) -> Stmt:
        """All statements, as one."""
        return self._builder.body


class FunctionBuilder(StmtBuilder):
    """A function and its statements; `get()` behind the `with` block gives it, as `hidet.script` would.

    kind: as `attrs.func_kind` of a script. grid_dim, block_dim, dynamic_smem_bytes, min_blocks: of kernels, numbers or
    expressions of parameters.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        label: str = "",
        ret_type: Any = None,
        grid_dim: Any = None,
        block_dim: Any = None,
        dynamic_smem_bytes: Any = None,
        min_blocks: int | None = None,
    ) -> None:
        super().__init__()
        if kind not in FUNCTION_KINDS:
            raise ScriptError(f"function kind {kind!r} is unknown", hint=f"known: {', '.join(FUNCTION_KINDS)}")
        self.name = name
        self.kind = kind
        self.label = label
        self.ret_type = None if ret_type is None or isinstance(ret_type, VoidKind) else value_type(ret_type)
        self.params: list[Var] = []
        launch = {
            "cuda.grid_dim": grid_dim,
            "cuda.block_dim": block_dim,
            "cuda.dynamic_smem_bytes": dynamic_smem_bytes,
            "cuda.min_blocks": min_blocks,
        }
        self._attributes = AttributeValues()
        for attribute, value in launch.items():
            if value is not None:
                self._attributes.set(attribute, unwrapped(value), Loc(name=name))
        self._made: ScriptFunction | None = None

    def __enter__(self) -> FunctionBuilder:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.finish_func()

    def extend_params(self, params: Sequence[Any]) -> None:
        """More parameters."""
        self.params.extend(map(_var, params))

    def finish_func(self) -> ScriptFunction:
        """The function of the statements so far."""
        kind = FUNCTION_KINDS[self.kind]
        launch = self._attributes.launch_shape() if kind == "kernel" else None
        sizes = [] if launch is None else [getattr(extent, "value", None) for extent in launch.block]
        is_known = bool(sizes) and None not in sizes
        function = Function(
            self.name,
            tuple(self.params),
            self.finish(),
            kind,
            result=self.ret_type,
            attributes=(("block", (*sizes, *(1,) * (3 - len(sizes)))),) if is_known else (),
        )
        kinds = tuple(_kind(var) for var in self.params)
        is_public = kind == "host"
        self._made = ScriptFunction(self.name, function, function, kind, is_public, kinds, (), launch, ())
        return self._made

    def get(self) -> ScriptFunction:
        """The function. ScriptError inside of the `with` block."""
        if self._made is None:
            raise ScriptError(f"function {self.name} is not finished", hint="ask for it behind the `with` block")
        return self._made


def _var(given: Any) -> Var:
    plain = unwrapped(given)
    if not isinstance(plain, Var):
        raise ScriptError(f"{given!r} is no variable", hint="hidet.ir.expr.var, or hidet.ir.Var(name, type)")
    return plain


def _converted(value: Any, variable: Var) -> Expr:
    return operators.convert(unwrapped(value), variable.type, f"the value of {variable.name}")  # type: ignore[arg-type]  # a local


def _kind(variable: Var) -> Any:
    type_ = variable.type
    if not isinstance(type_, BufferType):
        return type_
    return TensorKind(type_.dtype, tuple(type_.shape) or (UNBOUNDED,), type_.space)

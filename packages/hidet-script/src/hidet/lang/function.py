"""One script as a function of the thread IR: its signature, its body, and how other scripts call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any

from hidet import dims
from hidet.dims import Symbol
from hidet.errors import DTypeError, MemorySpaceError, ScriptError, suggestion
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import AddressOf, Call, Const, Expr, Load, Size, Var
from hidet.ir.expr_text import print_expr
from hidet.ir.func import SIZES, Function, FunctionKind
from hidet.ir.node import IRNode
from hidet.ir.types import MemorySpace, PointerType, ValueType
from hidet.ir.visit import has_statement, rewrite, substitute, walk
from hidet.lang import operators
from hidet.lang.attributes import LaunchShape
from hidet.lang.environment import Environment, captured_names
from hidet.lang.evaluation import changes_of, intrinsic_effect
from hidet.lang.extents import PassedTensor, checks_of, sizes_from, without_checks
from hidet.lang.index_faults import refuse_index_faults
from hidet.lang.layout import is_row_major
from hidet.lang.parallel import outline_parallel_loops
from hidet.lang.signature import Signature
from hidet.lang.source import FunctionSource, read_source
from hidet.lang.translator import Translator
from hidet.lang.types import TensorKind
from hidet.lang.values import TensorValue
from hidet.loc import Loc

if TYPE_CHECKING:
    from hidet.lang.translator import Translator


@dataclass(frozen=True, eq=False)
class ScriptFunction:
    """A translated script.

    kind: None where nothing in it says: what a host calls, unless another script calls it. kinds: what each parameter
    was declared as, before extents that are symbols became parameters of their own (`symbols`, last in `params`).
    launch: of kernels. helpers: further functions that it was split into. unchecked: the function for a device, which
    trusts that arguments of its calls have the extents that are declared.
    """

    name: str
    function: Function
    unchecked: Function
    kind: FunctionKind | None
    is_public: bool
    kinds: tuple[TensorKind | ValueType, ...]
    symbols: tuple[Symbol, ...]
    launch: LaunchShape | None
    callees: tuple[ScriptFunction, ...]
    helpers: tuple[Function, ...] = ()

    @cached_property
    def has_effect(self) -> bool:
        """Whether a call does more than read memory and give a value."""
        bodies = [function.body for function in (self.function, *self.helpers)]
        return changes_of(bodies, intrinsic_effect).to_memory or any(callee.has_effect for callee in self.callees)

    @cached_property
    def may_end(self) -> bool:
        """Whether a call may end the whole call, or never return."""
        bodies = [function.body for function in (self.function, *self.helpers)]
        is_ending = any(has_statement(body, kind) for body in bodies for kind in (s.Assert, s.While))
        return is_ending or any(callee.may_end for callee in self.callees)

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        """Compile the function, alone with what it calls, and call it; see `hidet.lang.ScriptModule.build`."""
        return self.build()(*arguments, **keywords)

    def build(self, target: str = "auto", options: Mapping[str, Any] | None = None) -> Any:
        """The function compiled alone with what it calls, as `hidet.lang.ScriptModule.build` does: its source, what its
        kernels take, a callable. The same one at each call without options."""
        from hidet.lang.module import ScriptModule, build_alone

        if not options:
            return build_alone(self, target)
        module = ScriptModule()
        module.add(self)
        return module.build(target, options)

    def __repr__(self) -> str:
        given = zip(self.function.params, self.kinds, strict=False)
        result = "" if self.function.result is None else f" -> {self.function.result}"
        return f"<script {self.name}({', '.join(f'{var.name}: {kind}' for var, kind in given)}){result}>"

    def call_from_script(self, translator: Translator, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What a call in another script becomes: a launch, an invocation, or a call. DTypeError or ScriptError when the
        arguments do not fit."""
        assert isinstance(translator, Translator)
        translator.callees.append(self)
        given = self._arguments(translator, self._in_order(arguments, keywords))
        if self.launch is not None:
            values = dict(zip(self.function.params, given, strict=True))
            translator.stmts.append(launch_stmt(self, values))
            return None
        if self.kind == "host":
            if self.function.result is not None:
                raise ScriptError(f"{self.name} runs on the host and returns a value: other scripts cannot call it")
            translator.stmts.append(s.Invoke(self.name, given))
            return None
        return Call(self.name, given, self.function.result)  # type: ignore[arg-type]  # None where it gives no value

    def _in_order(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Sequence[Any]:
        if not keywords:
            return arguments
        names = [var.name for var in self.function.params[: len(self.kinds)]][len(arguments) :]
        unknown = [name for name in keywords if name not in names]
        if unknown:
            raise ScriptError(
                f"{self.name} takes no further argument {unknown[0]!r}", hint=suggestion(unknown[0], names)
            )
        missing = [name for name in names if name not in keywords]
        if missing:
            raise ScriptError(f"{self.name} needs a value for {missing[0]}")
        return [*arguments, *(keywords[name] for name in names)]

    def _arguments(self, translator: Translator, arguments: Sequence[Any]) -> tuple[Expr, ...]:
        if len(arguments) != len(self.kinds):
            raise ScriptError(f"{self.name} takes {len(self.kinds)} arguments, got {len(arguments)}")
        passed = [
            PassedTensor(self.name, var.name, kind, argument)
            for var, kind, argument in zip(self.function.params, self.kinds, arguments, strict=False)
            if isinstance(kind, TensorKind) and isinstance(argument, TensorValue)
        ]
        values: dict[Var, Expr] = {}
        for var, kind, argument in zip(self.function.params, self.kinds, arguments, strict=False):
            given = _argument(kind, argument, f"argument {var.name} of {self.name}")
            # Extents mention numbers that are passed: these are computed once.
            is_repeated = var in self._in_extents and not isinstance(given, Var | Const)
            values[var] = translator.declare(var.name, given) if is_repeated else given
        sizes = sizes_from(passed)
        for symbol in self.symbols:
            if symbol not in sizes:
                raise ScriptError(f"{self.name} needs a value of {symbol.name}, which no tensor argument has as extent")
        for check in checks_of(passed, sizes, values, translator.facts.values):
            translator.checks.append(check.condition)
            translator.stmts.append(check)
        return (*values.values(), *(sizes[symbol] for symbol in self.symbols))

    @property
    def _in_extents(self) -> set[IRNode]:
        """Variables that extents of parameters mention."""
        kinds = [kind for kind in self.kinds if isinstance(kind, TensorKind)]
        return {node for kind in kinds for extent in kind.shape if isinstance(extent, Expr) for node in walk(extent)}


def _argument(kind: TensorKind | ValueType, argument: Any, what: str) -> Expr:
    target: ValueType = PointerType(kind.dtype, kind.space) if isinstance(kind, TensorKind) else kind
    if isinstance(argument, TensorValue):
        if isinstance(kind, TensorKind) and not kind.is_pointer:
            _check_layout(kind, argument, what)
        pointee = kind.pointee if isinstance(kind, TensorKind) else None
        if pointee != argument.pointee and (pointee or not isinstance(target, PointerType) or target.dtype.bits != 8):
            raise DTypeError(f"{what} holds {argument.pointee or argument.dtype}, expected {kind}")
    if not isinstance(target, PointerType):
        return operators.convert(argument, target, what)
    expr = operators.as_expr(operators.decayed(argument))
    is_made_here = isinstance(expr, Call) and expr.intrinsic is not None
    if target.space == "constant" and not is_made_here:
        raise DTypeError(f"{what} is no tensor map", hint="pass tensor_map(x, box=[...]) of hidet.lang.cuda")
    if isinstance(expr.type, PointerType) and expr.type.dtype == target.dtype and expr.type.space != target.space:
        # A pointer into any memory is a pointer of the generic address space.
        return AddressOf(expr, (build.index(0),), target)
    return operators.convert(expr, target, what)


def _check_layout(kind: TensorKind, tensor: TensorValue, what: str) -> None:
    """DTypeError where elements of the tensor do not lie as the parameter has them."""
    if kind.layout is not None:
        if tensor.layout != kind.layout or tensor.is_window:
            raise DTypeError(f"{what} has layout {tensor.layout or 'row_major'}, expected {kind.layout}")
        return
    if tensor.layout is not None and not is_row_major(tensor.layout):
        raise DTypeError(f"{what} has layout {tensor.layout}, expected a row-major tensor", hint="declare ~f32 instead")
    if not tensor.is_dense:
        raise DTypeError(
            f"{what} is a part whose rows lie apart, expected a row-major tensor",
            hint="pass the whole tensor and where the part begins",
        )


def launch_stmt(script: ScriptFunction, values: Mapping[Var, Expr], loc: Loc | None = None) -> s.Launch:
    """The launch of a kernel with these arguments. loc: where it stands, None where that is not known yet."""
    shape = script.launch
    assert shape is not None

    def filled(extents: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(substitute(extent, values) for extent in extents)

    return s.Launch(
        script.name,
        filled(shape.grid),
        tuple(values[var] for var in script.function.params),
        block=filled(shape.block),
        cluster=filled(shape.cluster),
        shared_bytes=None if shape.shared_bytes is None else substitute(shape.shared_bytes, values),
        is_cooperative=shape.is_cooperative,
        loc=loc,
    )


def translate(function: Callable[..., Any], frame: FrameType | None) -> ScriptFunction:
    """The script that a Python function is. `frame`: where it is defined, for names in annotations kept as text.

    A function that uses a parameter as only some memory can be used, such as shared memory, is one that kernels call:
    its parameters lie wherever a call says. Raises ScriptError with file, line and column.
    """
    source = read_source(function, frame)
    try:
        return _translated(source, function, frame, "global")
    except ScriptError as error:
        if not isinstance(error.__cause__, MemorySpaceError):
            raise
        made = _translated(source, function, frame, "generic")
        if made.kind != "device":
            raise
        return made


def _translated(
    source: FunctionSource, function: Callable[..., Any], frame: FrameType | None, space: MemorySpace
) -> ScriptFunction:
    translator = Translator(source, Environment(captured_names(function, frame), source.tree.name))
    signature = Signature(translator, function, space)
    signature.bind()
    translator.statements(source.tree.body)
    return _finish(signature, translator)


def _finish(signature: Signature, translator: Translator) -> ScriptFunction:
    source, attributes = translator.source, translator.attributes
    kind = attributes.kind
    if kind is None and signature.space == "generic":
        kind = "device"
    if kind is None and any(isinstance(node, s.Launch | s.Invoke) for stmt in translator.stmts for node in walk(stmt)):
        kind = "host"
    name = attributes.values.get("func_name", source.tree.name)
    # Sizes that the body mentions are those of the parameters.
    sizes = _Sizes(signature)
    whole = build.seq(translator.stmts)
    ending = {callee.name for callee in translator.callees if callee.may_end}
    refuse_index_faults(whole, translator.facts.values, ending.__contains__)
    helpers: list[Function] = []
    if translator.parallel_loops:
        if kind in ("kernel", "device") or signature.result is not None:
            what = "returns a value" if signature.result is not None else f"is a {kind} function"
            translator.fail(source.tree, f"parallel loops stand in functions of the host, but {name} {what}")
        kind = "host"
        whole, helpers = outline_parallel_loops(name, whole, translator.parallel_loops, sizes)
    with translator.at(source.tree):
        launch = attributes.launch_shape() if kind == "kernel" else None
        _check_result(translator, kind)
    trusting = whole if kind == "host" else without_checks(whole, translator.checks)
    body, unchecked = (sizes(stmt) for stmt in (trusting if kind in ("kernel", "device") else whole, trusting))
    if launch is not None:
        launch = replace(
            launch,
            grid=tuple(map(sizes, launch.grid)),
            block=tuple(map(sizes, launch.block)),
            cluster=tuple(map(sizes, launch.cluster)),
            shared_bytes=None if launch.shared_bytes is None else sizes(launch.shared_bytes),
        )
        _check_launch(launch, {*signature.params.values(), *signature.symbols.values()})
    params = (*signature.params.values(), *signature.symbols.values())
    function = Function(
        name,
        params,
        body,
        kind or "device",
        result=signature.result,
        attributes=_function_attributes(signature, launch),
    )
    return ScriptFunction(
        name=name,
        function=function,
        unchecked=replace(function, body=unchecked),
        kind="device" if kind == "host" and signature.result is not None else kind,
        is_public=kind == "host",
        kinds=signature.kinds,
        symbols=tuple(signature.symbols),
        launch=launch,
        callees=tuple(dict.fromkeys(translator.callees)),
        helpers=tuple(helpers),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Sizes:
    """Replaces symbols in statements and expressions by the parameters that hold them."""

    signature: Signature

    def __call__(self, root: Any) -> Any:
        return rewrite(root, self._change)

    def _change(self, node: IRNode) -> IRNode | None:
        if not isinstance(node, Size):
            return None
        missing = [symbol for symbol in dims.symbols(node.dim) if symbol not in self.signature.symbols]
        if missing:
            raise ScriptError(
                f"size {missing[0].name} is no extent of a parameter, so its value is not known",
                loc=self.signature.source.place(self.signature.source.tree),
            )
        return self.signature.extent(node.dim)


def _function_attributes(signature: Signature, launch: LaunchShape | None) -> tuple[tuple[str, object], ...]:
    found: list[tuple[str, object]] = []
    if signature.symbols:
        found.append((SIZES, tuple(symbol.name for symbol in signature.symbols)))
    if launch is not None:
        for key, extents in (("block", launch.block), ("cluster", launch.cluster)):
            values = [getattr(extent, "value", None) for extent in extents]
            if values and all(isinstance(value, int) for value in values):
                found.append((key, (*values, *(1,) * (3 - len(values)))))
        if launch.min_blocks is not None:
            found.append(("min_blocks", launch.min_blocks))
    return tuple(found)


def _check_launch(launch: LaunchShape, params: set[Var]) -> None:
    """Extents of a launch are computed before the kernel runs: from parameters alone."""
    for name, values in launch.computed().items():
        for node in (node for value in values for node in walk(value)):
            if isinstance(node, Call | Load) or (isinstance(node, Var) and node not in params):
                what = node.callee if isinstance(node, Call) else print_expr(node)
                raise ScriptError(
                    f"launch attributes are computed on the host from parameters, but mention {what}",
                    loc=launch.places[name],
                    hint="pass the number as a parameter of the kernel",
                )


def _check_result(translator: Translator, kind: FunctionKind | None) -> None:
    name, result = translator.source.tree.name, translator.result
    if result is None:
        return
    if kind == "kernel":
        raise ScriptError(f"kernel {name} returns a {result}: kernels return nothing")
    if any(isinstance(node, s.Launch | s.Invoke) for stmt in translator.stmts for node in walk(stmt)):
        raise ScriptError(f"{name} launches kernels and returns a value", hint="write the value to a tensor")
    if not _always_returns(build.seq(translator.stmts)):
        raise ScriptError(f"{name} may end without returning a {result}")


def _always_returns(stmt: s.Stmt) -> bool:
    if isinstance(stmt, s.Seq):
        return any(map(_always_returns, stmt.stmts))
    if isinstance(stmt, s.If):
        return stmt.otherwise is not None and _always_returns(stmt.then) and _always_returns(stmt.otherwise)
    is_endless = isinstance(stmt, s.While) and getattr(stmt.condition, "value", None) is True
    return isinstance(stmt, s.Return) or (is_endless and not any(isinstance(n, s.Break) for n in walk(stmt)))

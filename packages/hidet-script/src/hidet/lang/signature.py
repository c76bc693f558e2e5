"""The parameters and the result of a script."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hidet import dims, dtypes
from hidet.dims import DimExpr, Symbol
from hidet.errors import ScriptError
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.types import BufferType, MemorySpace, PointerType, Type, ValueType, VectorType
from hidet.lang.assignments import declare_named
from hidet.lang.extents import extent_of, sole_symbol
from hidet.lang.source import FunctionSource
from hidet.lang.translator import Translator
from hidet.lang.types import TensorKind, TypeList, VoidKind, value_type
from hidet.lang.values import tensor_of


class Signature:
    """Parameters and result of a script. `params` are variables, in order; `symbols` the sizes among extents.

    translator: that of the script, which annotations need, too. space: where tensors and pointers lie that are passed
    for them.
    """

    result: ValueType | None

    def __init__(self, translator: Translator, function: Callable[..., Any], space: MemorySpace) -> None:
        self.translator = translator
        self.source = translator.source
        self.space = space
        self.nodes = _plain_parameters(self.source)
        self.annotations = _annotations(function)
        self.params: dict[str, Var] = {}
        self.symbols: dict[Symbol, Var] = {}
        declared: dict[str, tuple[TensorKind | ValueType, ...]] = {}
        made: dict[str, tuple[Var, ...]] = {}
        self._groups: set[str] = set()
        # Extents of tensors may mention scalar parameters, so these come first.
        for is_tensor in (False, True):
            for node in self.nodes:
                if node.arg not in declared and _may_be_tensor(node) == is_tensor:
                    with self.translator.at(node.annotation or node):
                        kinds = declared[node.arg] = self._declared(node)
                        made[node.arg] = self._variables(node.arg, kinds)
                        is_group = node.arg in self._groups
                        translator.names.bind(node.arg, made[node.arg] if is_group else made[node.arg][0])
        self._check_symbols(declared)
        self.kinds = tuple(kind for node in self.nodes for kind in declared[node.arg])
        self.params = {var.name: var for node in self.nodes for var in made[node.arg]}
        self._of_node = {node.arg: tuple(zip(made[node.arg], declared[node.arg], strict=True)) for node in self.nodes}
        self.result = self._result()

    def _check_symbols(self, declared: Mapping[str, Sequence[TensorKind | ValueType]]) -> None:
        """ScriptError for a symbol that calls do not tell: no axis of a tensor is as long as it alone."""
        tensors = [(node, k) for node in self.nodes for k in declared[node.arg] if isinstance(k, TensorKind)]
        told = {sole_symbol(extent) for _, kind in tensors for extent in kind.shape}
        for node, extent in ((node, extent) for node, kind in tensors for extent in kind.shape):
            for symbol in dims.symbols(extent) if isinstance(extent, DimExpr) else ():
                if symbol not in told:
                    raise ScriptError(
                        f"parameter {node.arg} has extent {extent}, but no call tells {symbol.name}",
                        loc=self.source.place(node.annotation or node),
                        hint=f"give a parameter the extent {symbol.name}, or {node.arg} a symbol for the whole extent",
                    )

    def _declared(self, node: ast.arg) -> tuple[TensorKind | ValueType, ...]:
        """What a parameter of the script is: one, or several for `meta.types`."""
        if node.annotation is None:
            raise ScriptError(f"parameter {node.arg} has no type", hint=f"write {node.arg}: f32, ~f32 or f32[m, n]")
        kind = self._annotation(node.arg, node.annotation)
        if not isinstance(kind, TypeList):
            return (self._kind(kind),)
        self._groups.add(node.arg)
        return tuple(map(self._kind, kind.types))

    def _kind(self, given: Any) -> TensorKind | ValueType:
        if isinstance(given, TensorKind):
            return given if given.space == "constant" else replace(given, space=self.space)
        found = value_type(given)
        return PointerType(found.dtype, self.space) if isinstance(found, PointerType) else found

    def _variables(self, name: str, kinds: Sequence[TensorKind | ValueType]) -> tuple[Var, ...]:
        is_group = name in self._groups
        return tuple(
            Var(f"{name}_{number}" if is_group else name, self._type(kind)) for number, kind in enumerate(kinds)
        )

    def _annotation(self, name: str, node: ast.expr) -> Any:
        given = self.annotations.get(name)
        if given is not None and not isinstance(given, str):
            return given
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text: ast.expr = ast.parse(node.value, mode="eval").body
            for part in ast.walk(text):
                ast.copy_location(part, node)
            node = text
        return self.translator.value(node)

    def _type(self, kind: TensorKind | ValueType) -> Type:
        if not isinstance(kind, TensorKind):
            return kind
        if kind.is_pointer or kind.layout is not None:
            return PointerType(kind.dtype, kind.space)
        lanes = kind.element.lanes if isinstance(kind.element, VectorType) else 1
        return BufferType(kind.dtype, tuple(map(self.extent, kind.shape)), None, kind.space, lanes)

    def extent(self, extent: int | DimExpr | Expr) -> Expr:
        """An extent as an expression of parameters; its symbols become parameters."""
        return extent_of(extent, self.size_of)

    def size_of(self, symbol: Symbol) -> Var:
        """The parameter that holds a symbol's value."""
        return self.symbols.setdefault(symbol, Var(symbol.name, dtypes.i64))

    def _result(self) -> ValueType | None:
        node = self.source.tree.returns
        if node is None:
            return None
        with self.translator.at(node):
            kind = self._annotation("return", node)
            if kind is None or isinstance(kind, VoidKind):
                return None
            if isinstance(kind, TensorKind):
                raise ScriptError(
                    "a script returns numbers, not tensors", hint="pass the tensor to write as a parameter"
                )
            return value_type(kind)

    def bind(self) -> None:
        """Give parameters their meaning in the body, and the body the type of what it returns."""
        translator = self.translator
        translator.result = self.result
        translator.facts.values |= {var: build.index(dims.as_dim(symbol)) for symbol, var in self.symbols.items()}
        for node in self.nodes:
            meanings = [self._meaning(node, var, kind) for var, kind in self._of_node[node.arg]]
            translator.names.bind(node.arg, tuple(meanings) if node.arg in self._groups else meanings[0])

    def _meaning(self, node: ast.arg, var: Var, kind: TensorKind | ValueType) -> Any:
        if isinstance(kind, TensorKind):
            shape = tuple(e if isinstance(e, int) else self.extent(e) for e in kind.shape)
            return tensor_of(var, shape, kind.layout, self.translator.facts, kind.pointee)
        is_rebound = self.translator.bindings.is_rebound(node.arg) and node.arg not in self._groups
        return declare_named(self.translator, node.arg, var, node) if is_rebound else var


def _plain_parameters(source: FunctionSource) -> list[ast.arg]:
    arguments = source.tree.args
    unusual: list[ast.AST] = [*arguments.kwonlyargs, *arguments.defaults]
    unusual += [node for node in (arguments.vararg, arguments.kwarg) if node is not None]
    if unusual:
        raise ScriptError("a script takes plain parameters: no defaults, no * and **", loc=source.place(unusual[0]))
    return [*arguments.posonlyargs, *arguments.args]


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return dict(function.__annotations__)
    except NameError:
        # Annotations are evaluated late from Python 3.14 on, and may name other parameters, which only the tree can.
        return {}


def _may_be_tensor(node: ast.arg) -> bool:
    annotation = node.annotation
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return "[" in annotation.value
    return annotation is not None and any(isinstance(part, ast.Subscript) for part in ast.walk(annotation))

"""Mixed precision: a model of f32 computes in 16-bit floats, as option `compat.precision` says.

Products, convolutions and attention multiply 16-bit floats, and what follows them stays in that type. Norms and softmax
read and give it, and compute in f32 in between. Reductions, exponentials, powers and losses are computed in f32, and
their results stay in it until a product reads them. What depends on nothing but weights is computed in f32 and
converted where it is used. Inputs, outputs and weights of the graph keep their types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from hidet import dtypes
from hidet.errors import DTypeError
from hidet.graph.graph import Graph, Node, Value
from hidet.graph.types import TensorType
from hidet.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.dtypes import DType

_MULTIPLYING = frozenset({"matmul", "convolution", "attention"})
"""Families that are computed in 16-bit floats; they sum in f32."""
_NORMALIZING = frozenset({"normalization", "group-normalization", "softmax"})
"""Families whose definitions compute in f32, with results that 16-bit floats hold well."""
_BATCH_NORMS = frozenset({"batch_norm", "apply_batch_norm"})
"""Operators of such results, whose statistics 16-bit floats do not hold."""
_FOLLOWING = frozenset({"pooling", "reshape"})
"""Families that are computed in the type of what they read."""
_STEEP = frozenset(
    (
        *(
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "pow",
            "square",
            "rsqrt",
            "reciprocal",
            "log_softmax",
        ),
        *("sinh", "cosh", "tan", "acos", "asin", "erfinv", "lgamma", "digamma", "logit", "logaddexp", "logaddexp2"),
        *("hypot", "xlogy", "xlog1py", "quantize", "dequantize", "bitcast"),
    )
)
"""Operators of core whose results 16-bit floats do not hold, or that look at bits. What other wheels offer is computed
in f32 unless it is of one of the families."""


class _Kind(Enum):
    """What a value of f32 in the old graph is in the new one."""

    STEADY = "f32, made of elements of weights and constants: may be rounded where it is used"
    WIDE = "f32, which 16-bit floats may not hold"
    OPEN = "f32 from outside that nothing was computed of"
    NARROW = "16-bit floats"


@dataclass(frozen=True)
class ConvertPrecision:
    """Converts f32 to the type that option `compat.precision` names; without one, the graph stays as it is."""

    name: ClassVar[str] = "compat-convert-precision"

    def run(self, graph: Graph, ctx: CompileContext) -> Graph:
        """One walk in graph order."""
        name = ctx.option("compat.precision")
        if name is None:
            return graph
        narrow = dtypes.dtype(str(name))
        return graph if narrow is dtypes.f32 else _Conversion(graph, ctx, narrow).run()


class _Conversion:
    """A walk over a graph. narrow: the type of 16 bits."""

    def __init__(self, graph: Graph, ctx: CompileContext, narrow: DType) -> None:
        self._graph = graph
        self._narrow = narrow
        self._owners = ctx.registry.owners
        self._rewriter = GraphRewriter(graph, ctx.registry.operators)
        self._casts: dict[tuple[Value, DType], Value] = {}
        self._masks: dict[Value, Value] = {}
        self._kinds: dict[Value, _Kind] = {}
        for value in filter(_is_f32, graph.inputs):
            self._kinds[value] = _Kind.STEADY if value in graph.parameters else _Kind.OPEN
        for value, constant in graph.constants.items():
            if _is_f32(value):
                self._kinds[value] = _Kind.STEADY if self._holds(constant.data) else _Kind.WIDE

    def run(self) -> Graph:
        """The graph with results of its own types."""
        for node in self._graph.nodes:
            if any(map(_is_f32, (*node.values, *node.outputs))):
                self._convert(node)
            else:
                self._rewriter.keep(node)
        for value in self._graph.outputs:
            if self._is_narrow(value):
                self._rewriter.substitute(value, self._as(value, dtypes.f32, None))
        return self._rewriter.finish()

    def _convert(self, node: Node) -> None:
        family = node.op.family
        if family in _MULTIPLYING:
            self._emit(node, self._narrow)
        elif family in _NORMALIZING and node.op.name not in _STEEP:
            kinds = self._reads(node)
            if _Kind.NARROW in kinds and kinds <= {_Kind.NARROW, _Kind.STEADY}:
                self._emit(node, self._narrow)
            else:
                self._normalize(node)
        elif node.op.name in _BATCH_NORMS:
            self._normalize(node)
        elif self._follows(node):
            self._follow(node)
        else:
            self._emit(node, dtypes.f32, _Kind.WIDE)

    def _normalize(self, node: Node) -> None:
        """The node in f32, with results of 16 bits unless it is made of weights alone."""
        self._emit(node, dtypes.f32, _Kind.STEADY if self._reads(node) == {_Kind.STEADY} else _Kind.WIDE)
        for value in node.outputs:
            if _is_f32(value) and self._kinds[value] is _Kind.WIDE:
                self._rewriter.substitute(value, self._as(value, self._narrow, node))
                self._kinds[value] = _Kind.NARROW

    def _follows(self, node: Node) -> bool:
        """Whether a node computes in the type of what it reads: it moves elements, or is a tame function of them."""
        op, definition = node.op, node.definition
        if op.family in _FOLLOWING or op.kind == "view":
            return True
        is_own = self._owners["operators", op.name] == self._owners["operators", "add"]
        is_function = definition is not None and definition.is_injective and op.kind == "compute" and not op.is_random
        return is_own and is_function and op.family is None and op.name not in _STEEP

    def _follow(self, node: Node) -> None:
        kinds = self._reads(node)
        if not kinds or node.op.name == "cast":
            # A conversion to f32 asks for its digits.
            is_held = node.op.name == "full" and self._attributes_fit(node)
            self._emit(node, None, _Kind.STEADY if is_held else _Kind.WIDE)
        elif kinds == {_Kind.STEADY}:
            self._emit(node, dtypes.f32, _Kind.STEADY)
        elif kinds <= {_Kind.NARROW, _Kind.STEADY} and self._attributes_fit(node):
            self._emit(node, self._narrow)
        else:
            is_untouched = kinds == {_Kind.OPEN} and len(node.values) == 1
            self._emit(node, dtypes.f32, _Kind.OPEN if is_untouched else _Kind.WIDE)

    def _reads(self, node: Node) -> set[_Kind]:
        """What a node reads of f32."""
        return {self._kinds[value] for value in node.values if _is_f32(value)}

    def _attributes_fit(self, node: Node) -> bool:
        """Whether the type of 16 bits holds the numbers among a node's attributes."""
        numbers = [value for value in node.attrs.values() if isinstance(value, int | float)]
        return all(not math.isfinite(value) or abs(value) <= self._narrow.max for value in numbers)

    def _emit(self, node: Node, dtype: DType | None, kind: _Kind = _Kind.NARROW) -> None:
        """The node on operands of a type, None for those that they have; f32 where the operator does not take it.

        kind: of results of f32.
        """
        given = [value if value is None else self._operand(node, value, dtype) for value in node.inputs]
        if all(new is old for new, old in zip(given, node.inputs, strict=True)):
            self._rewriter.keep(node)
            made: tuple[Value, ...] = node.outputs
        else:
            types = [self._result(value, dtype) for value in node.outputs]
            try:
                made = self._rewriter.emit_all(node.op, given, node.attrs, node, types)
            except DTypeError:
                if dtype is not self._narrow:
                    raise
                self._emit(node, dtypes.f32, _Kind.WIDE)
                return
            for old, new in zip(node.outputs, made, strict=True):
                self._rewriter.substitute(old, new)
        for old, new in zip(node.outputs, made, strict=True):
            if _is_f32(old):
                self._kinds[old] = kind if _is_f32(new) else _Kind.NARROW

    def _operand(self, node: Node, value: Value, dtype: DType | None) -> Value:
        if not _is_f32(value) or dtype is None:
            return self._rewriter.current(value)
        if (
            dtype is self._narrow
            and node.op.family == "attention"
            and value is node.inputs[-1]
            and len(node.values) > 3
        ):
            return self._finite(value, node)
        return self._as(value, dtype, node)

    def _finite(self, mask: Value, node: Node) -> Value:
        """A mask that is added to scores, without infinities that only the type makes: rows of them read nothing."""
        if self._is_narrow(mask):
            return self._rewriter.current(mask)
        if mask not in self._masks:
            lowest = self._rewriter.constant(-self._narrow.max, mask)
            self._masks[mask] = self._rewriter.emit("maximum", mask, lowest, at=node)
        return self._cast(self._masks[mask], self._narrow, node)

    def _result(self, value: Value, dtype: DType | None) -> Any:
        return replace(value.tensor, dtype=dtype) if _is_f32(value) and dtype is not None else value.type

    def _is_narrow(self, value: Value) -> bool:
        return _is_f32(value) and self._kinds[value] is _Kind.NARROW

    def _as(self, value: Value, dtype: DType, node: Node | None) -> Value:
        """What stands for an old value of f32, as a type. node: in whose place."""
        current = self._rewriter.current(value)
        return current if current.tensor.dtype is dtype else self._cast(current, dtype, node)

    def _cast(self, current: Value, dtype: DType, node: Node | None) -> Value:
        key = current, dtype
        if key not in self._casts:
            type_ = replace(current.tensor, dtype=dtype)
            (made,) = self._rewriter.emit_all("cast", [current], {"dtype": dtype}, node, [type_])
            self._casts[key] = made
        return self._casts[key]

    def _holds(self, data: Any) -> bool:
        """Whether the type of 16 bits holds the elements of a constant."""
        array = numpy.asarray(data)
        finite = array[numpy.isfinite(array)]
        return not finite.size or bool(numpy.abs(finite).max() <= self._narrow.max)


def _is_f32(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is dtypes.f32

"""Nodes that run in TensorFlow: operators without a handler, and cases that a handler refuses.

They are counted, named in the report and warned about; `options={"strict": True}` refuses them. A model with such nodes
needs TensorFlow where it runs, and cannot be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy

from hidet.errors import FallbackWarning, UnsupportedOp
from hidet.frontend import Emitter
from hidet.graph import Attribute, OperatorSpec, TensorType, Value
from hidet.tensorflow.compat import has_cpu_kernel, has_effect, load_tensorflow, op_def
from hidet.tensorflow.functions import Function
from hidet.tensorflow.items import Item
from hidet.tensorflow.value_types import RESOURCE, VARIANT, dtype_of, number_of


@dataclass(frozen=True, slots=True)
class EagerNode:
    """One node that runs in TensorFlow: its operator, its name, and why it is not compiled."""

    operator: str
    name: str
    reason: str


def fallback_warning(nodes: Sequence[EagerNode]) -> FallbackWarning:
    """The warning that names nodes which run in TensorFlow."""
    lines = "\n".join(f"  {node.operator} {node.name!r}: {node.reason}" for node in nodes[:10])
    more = f"\n  and {len(nodes) - 10} more" if len(nodes) > 10 else ""
    count = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"
    return FallbackWarning(
        f"{count} of the model run in TensorFlow, which it then needs where it runs:\n{lines}{more}\n"
        'options={"strict": True} refuses them'
    )


def may_run_in_tensorflow(operator: str) -> bool:
    """Whether an operator runs on a CPU, takes and gives tensors alone, and writes to no variable."""
    definition = op_def(operator)
    if definition is None or has_effect(operator) or not has_cpu_kernel(operator):
        return False
    return all(entry.type not in (RESOURCE, VARIANT) for entry in (*definition.input_arg, *definition.output_arg))


def run_in_tensorflow(e: Emitter, node: Any, operands: Sequence[Item], function: Function) -> tuple[Value, ...]:
    """The results of a node that TensorFlow computes when the model runs, from arrays and as arrays.

    Extents that TensorFlow does not tell beforehand are symbols that the results tell. UnsupportedOp for operands and
    results that are no tensors, and for results of an unknown number of axes.
    """
    values = [item for item in operands if isinstance(item, Value)]
    if len(values) < len(operands):
        raise UnsupportedOp(f"{node.op} takes what is no tensor, so that TensorFlow cannot run it by itself")
    call = _Call(node, [value.tensor for value in values], function)
    for result in call.results:
        if result.shape.rank is None:
            raise UnsupportedOp(f"{node.op} runs in TensorFlow, which does not say how many axes its result has")
    shapes = [(dtype_of(result.dtype.as_datatype_enum), result.shape.as_list()) for result in call.results]
    count = sum(shape.count(None) for _, shape in shapes)

    def infer(given: Sequence[Any], attrs: Any) -> tuple[TensorType, ...]:
        # A body that is written again has symbols of its own.
        left = iter(attrs["defines"])
        return tuple(TensorType(dtype, tuple(next(left) if n is None else n for n in shape)) for dtype, shape in shapes)

    definition = op_def(node.op)
    spec = OperatorSpec(
        name=f"tensorflow:{node.op}",
        inputs=("inputs*",),
        attributes=(Attribute("node"), Attribute("defines")),
        kind="eager",
        infer=infer,
        call=call,
        is_random=definition is not None and definition.is_stateful,
        doc=f"{node.op}, run by TensorFlow.",
    )
    defines = tuple(e.builder.fresh_size() for _ in range(count))
    return e.emit_all(spec, values, {"node": node.name, "defines": defines})


class _Call:
    """A node as a function of arrays."""

    def __init__(self, node: Any, types: Sequence[TensorType], function: Function) -> None:
        self._node = node
        self._types = types
        self._function = function

    @cached_property
    def _concrete(self) -> Any:
        """A function of TensorFlow with this node alone; sizes that are open here are open there."""
        tf = load_tensorflow()
        graph = tf.compat.v1.GraphDef()
        graph.library.CopyFrom(self._function.library.proto)
        for number, type_ in enumerate(self._types):
            graph.node.add(name=f"operand_{number}", op="Placeholder").attr["dtype"].type = number_of(type_.dtype)
        made = graph.node.add()
        made.CopyFrom(self._node)
        made.name = "node"
        made.ClearField("input")
        made.input.extend(f"operand_{number}" for number in range(len(self._types)))

        def compute(*operands: Any) -> Any:
            given = {f"operand_{number}:0": operand for number, operand in enumerate(operands)}
            (operation,) = tf.graph_util.import_graph_def(graph, given, ["node"], name="")
            return list(operation.outputs)

        specs = [
            tf.TensorSpec([n if isinstance(n, int) else None for n in type_.shape], number_of(type_.dtype))
            for type_ in self._types
        ]
        return tf.compat.v1.wrap_function(compute, specs)

    @property
    def results(self) -> Sequence[Any]:
        """Descriptions of the results."""
        outputs: Sequence[Any] = self._concrete.outputs
        return outputs

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results, as arrays."""
        tf = load_tensorflow()
        operands = [
            tf.constant(numpy.asarray(array), number_of(type_.dtype))
            for array, type_ in zip(arrays, self._types, strict=True)
        ]
        return [_plain(tensor.numpy()) for tensor in self._concrete(*operands)]


def _plain(array: Any) -> Any:
    """An array of strings as core has them, texts; any other one as it is."""
    array = numpy.asarray(array)
    if array.dtype != object:
        return array
    decode: Callable[[Any], Any] = numpy.vectorize(lambda text: text.decode(errors="replace"), otypes=[object])
    return decode(array) if array.size else array

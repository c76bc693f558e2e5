"""Variables, which are constants of the compiled model, and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.tensorflow.compat import load_tensorflow
from hidet.tensorflow.emitter import TensorFlowEmitter
from hidet.tensorflow.items import Item, Table, Variable


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "LookupTableFindV2": _find,
        "LookupTableSizeV2": _size,
        "ReadVariableOp": lambda e, variable, dtype: _read(e, variable),
        "ResourceGather": _gather,
        "ResourceGatherNd": lambda e, variable, index, dtype: e.emit("gather_nd", _read(e, variable), index),
        "VariableShape": lambda e, variable, out_type: e.size_vector(_read(e, variable).tensor.shape, out_type),
    }


def _read(e: TensorFlowEmitter, variable: Item) -> Value:
    if not isinstance(variable, Variable):
        raise UnsupportedOp(f"{e.operator} reads what is no variable of the model")
    return e.read(variable)


def _gather(e: TensorFlowEmitter, variable: Item, index: Value, dtype: DType, batch_dims: int = 0, **_: Any) -> Value:
    if batch_dims:
        raise UnsupportedOp(f"{e.operator} with batch_dims {batch_dims}")
    return e.emit("index_select", _read(e, variable), index, axis=0, wraps=False)


def _table(e: TensorFlowEmitter, item: Item) -> Table:
    if not isinstance(item, Table):
        raise UnsupportedOp(f"{e.operator} reads what is no table of the model")
    return item


def _size(e: TensorFlowEmitter, table: Item) -> Value:
    found = load_tensorflow().raw_ops.LookupTableSizeV2(table_handle=_table(e, table).handle)
    return e.array(found.numpy())


def _find(e: TensorFlowEmitter, table: Item, keys: Value, default: Value) -> Value:
    known, values = _contents(e, _table(e, table), keys.tensor.dtype, default.tensor.dtype)
    return e.emit(
        "lookup",
        keys,
        keys=tuple(known.tolist()),
        values=tuple(values.tolist()),
        default=_plain(e.array_of(default, "the default").item()),
        dtype=default.tensor.dtype,
    )


def _contents(e: TensorFlowEmitter, table: Table, key: DType, value: DType) -> tuple[Any, Any]:
    """Keys and values of a table as it is now. ImportFailed where it has others than these types."""
    tf = load_tensorflow()
    types = {"Tkeys": key.name, "Tvalues": value.name}
    try:
        # Asked first, because this one checks the types, while the other ends the process.
        tf.raw_ops.LookupTableFindV2(
            table_handle=table.handle,
            keys=tf.zeros((0,), key.name),
            default_value=tf.zeros((), value.name),
        )
        found = tf.raw_ops.LookupTableExportV2(table_handle=table.handle, **types)
    except tf.errors.OpError as error:
        raise ImportFailed(f"{e.operator}: the table cannot be read: {error.message}") from error
    return tuple(_texts(part.numpy()) for part in found)


def _texts(array: Any) -> Any:
    """Strings, which TensorFlow has as bytes, as texts."""
    if array.dtype != object:
        return array
    return numpy.array([_plain(item) for item in array.reshape(-1)], object).reshape(array.shape)


def _plain(item: Any) -> Any:
    return item.decode(errors="replace") if isinstance(item, bytes) else item

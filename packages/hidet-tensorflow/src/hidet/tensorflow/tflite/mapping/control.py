"""Branches and loops, and rows that loops write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet.frontend import Handler
from hidet.graph import Value
from hidet.tensorflow.items import Item, TensorList
from hidet.tensorflow.mapping import table as tensorflow_table
from hidet.tensorflow.tflite.emitter import LiteEmitter
from hidet.tensorflow.tflite.rows import WRITE_ROW, filled_arguments


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {"IF": _branch, "WHILE": _loop, WRITE_ROW: _write_row}


def _branch(e: LiteEmitter, flag: Value, *items: Item, then: Any, **other: Any) -> Any:
    return tensorflow_table()["If"](e, flag, *items, then_branch=then, else_branch=other["else"])


def _loop(e: LiteEmitter, *items: Item, cond: Any, body: Any) -> tuple[Item, ...]:
    """What the body fills row by row is a list while importing."""
    filled = filled_arguments(body.graph) - cond.read
    given = [_as_list(item) if number in filled else item for number, item in enumerate(items)]
    made = tensorflow_table()["While"](e, *given, cond=cond, body=body)
    assert isinstance(made, tuple)
    return tuple(item.values if isinstance(item, TensorList) else item for item in made)


def _as_list(item: Item) -> Item:
    if not isinstance(item, Value) or item.tensor.rank == 0:
        return item
    count, *shape = item.tensor.shape
    return TensorList(item.tensor.dtype, count, item, tuple(shape))


def _write_row(e: LiteEmitter, x: Item, index: Value, row: Value) -> Any:
    """x with row[1, ...] at a position of its first axis."""
    if isinstance(x, Value):
        return e.emit("index_put", x, row, e.reshape(index, (1,)))
    return tensorflow_table()["TensorListSetItem"](e, x, index, e.squeeze(row, (0,)))

"""Attributes of TensorFlow's nodes as Python values, with the defaults of the operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from hidet.errors import ImportFailed
from hidet.tensorflow.compat import load_tensorflow, op_def
from hidet.tensorflow.value_types import RESOURCE, VARIANT, dtype_of, shape_of


def attributes_of(node: Any, body: Callable[[str], Any]) -> dict[str, Any]:
    """The attributes of a node, with defaults; those that its operands tell are left out, as are hints for TensorFlow's
    own execution.

    body: makes what stands for a function of this name. Types are element types (None for variables and lists), shapes
    tuples with None for open extents (None for an unknown number of axes), tensors arrays.
    """
    given = {name: value for name, value in node.attr.items() if not name.startswith("_")}
    definition = op_def(node.op)
    if definition is not None:
        for attribute in definition.attr:
            if attribute.name not in given and attribute.HasField("default_value"):
                given[attribute.name] = attribute.default_value
    told = _told_by_operands(node.op)
    return {name: _value(node, name, value, body) for name, value in given.items() if name not in told}


@cache
def _told_by_operands(operator: str) -> frozenset[str]:
    """Attributes that say types and numbers of operands, and do nothing else."""
    definition = op_def(operator)
    if definition is None:
        return frozenset()
    names = {
        getattr(entry, kind)
        for entry in definition.input_arg
        for kind in ("type_attr", "number_attr", "type_list_attr")
    }
    return frozenset(names - {""})


def _value(node: Any, name: str, proto: Any, body: Callable[[str], Any]) -> Any:
    kind = proto.WhichOneof("value")
    if kind in ("i", "f", "b"):
        return getattr(proto, kind)
    if kind == "s":
        return _text(proto.s)
    if kind == "type":
        return _dtype(proto.type)
    if kind == "shape":
        return shape_of(proto.shape)
    if kind == "tensor":
        return load_tensorflow().make_ndarray(proto.tensor)
    if kind == "func":
        return body(proto.func.name)
    if kind == "list":
        held = proto.list
        for part, read in (
            ("s", _text),
            ("i", int),
            ("f", float),
            ("b", bool),
            ("type", _dtype),
            ("shape", shape_of),
            ("func", lambda func: body(func.name)),
        ):
            entries = getattr(held, part)
            if len(entries):
                return tuple(read(entry) for entry in entries)
        return ()
    raise ImportFailed(f"attribute {name!r} of {node.op} {node.name!r} has no value")


def _dtype(number: int) -> Any:
    return None if number in (RESOURCE, VARIANT) else dtype_of(number)


def _text(text: bytes) -> str:
    return text.decode(errors="replace")

"""Variables: what a file sets once, which a compiled model holds as constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.tensorflow.tflite.emitter import LiteEmitter, VariableName


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "ASSIGN_VARIABLE": _assign,
        "CALL_ONCE": _initialise,
        "READ_VARIABLE": _read,
        "VAR_HANDLE": lambda e, container, shared_name: VariableName(f"{container}/{shared_name}"),
    }


def _initialise(e: LiteEmitter, init: Any) -> tuple[()]:
    with e.variables.being_set():
        init.inline(())
    return ()


def _assign(e: LiteEmitter, variable: VariableName, value: Value) -> tuple[()]:
    constant = e.builder.constants.get(value)
    if not e.variables.is_being_set or constant is None:
        raise UnsupportedOp(f"{e.operator} of {variable.name!r}: a compiled model does not write to variables")
    e.variables.arrays[variable.name] = constant.data
    return ()


def _read(e: LiteEmitter, variable: VariableName) -> Value:
    if variable.name not in e.variables.arrays:
        raise ImportFailed(f"{e.operator}: nothing has set {variable.name!r}")
    return e.builder.constant(e.variables.arrays[variable.name])

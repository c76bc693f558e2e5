"""Plug-in module of the StableHLO front-end: what hidet-stablehlo offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Iterable

from hidet.plugins.specs import FrontendSpec

HIDET_API = 1

_SUFFIXES = (".mlir", ".mlirbc", ".stablehlo", ".jax")
_MAGIC = b"ML\xefR"


def is_stablehlo(model: object) -> bool:
    """Whether `model` is a path of a file of StableHLO, bytes of a portable artifact, or an export of jax."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model).endswith(_SUFFIXES)
    if isinstance(model, bytes | bytearray):
        return bytes(model[:4]) == _MAGIC
    return type(model).__module__.partition(".")[0] == "jax" and type(model).__name__ in ("Exported", "Lowered")


def hidet_frontends() -> Iterable[FrontendSpec]:
    """Programs of StableHLO, and jax's arrays."""
    return [
        FrontendSpec(
            name="stablehlo",
            accepts=is_stablehlo,
            load="hidet.stablehlo.convert:import_for_compile",
            tensor_types=("jaxlib._jax.ArrayImpl",),
            adapter="hidet.stablehlo.tensors:JaxAdapter",
            fixes_inputs=True,
            doc="StableHLO: a path ending in .mlir, .mlirbc, .stablehlo or .jax, a portable artifact's bytes, or a "
            "jax.export.Exported",
        )
    ]

"""Import torchvision beside a torch build that cannot load torchvision's compiled operators."""

import importlib
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import torch

# torchvision registers fake kernels for these two while it is imported, and fails when nobody defined them.
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def import_torchvision_models() -> ModuleType:
    """Return the module `torchvision.models`.

    The registry's torchvision wheel is built for another torch build than the CPU one, so its extension may not load.
    Then the schemas of `torchvision::nms` and `torchvision::qnms` are defined before the import: the models work, the
    two operators themselves stay without a kernel.
    """
    _define_missing_schemas()
    return importlib.import_module("torchvision.models")


@cache
def _define_missing_schemas() -> torch.library.Library | None:
    """Define the schemas unless the extension does; the cache keeps the library, and so the definitions, alive."""
    if _extension_loads():
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema in _SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
    return library


def _extension_loads() -> bool:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise ImportError("torchvision is not installed: pip install --no-deps torchvision==0.28.0")
    for extension in Path(spec.origin).parent.glob("_C*"):
        try:
            torch.ops.load_library(extension)  # type: ignore[no-untyped-call]
        except OSError:
            return False
        return True
    return False

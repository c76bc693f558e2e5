"""Places of objects as text, "package.module:attribute": what specs of plug-ins name their implementations by."""

from __future__ import annotations

import importlib
from typing import Any


def load_object(place: str) -> Any:
    """The object at "package.module:attribute", where the attribute may have dots; the module is imported.

    Raises whatever the import raises, and AttributeError.
    """
    module, _, path = place.partition(":")
    found: Any = importlib.import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return found

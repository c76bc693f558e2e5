"""Which modules dynamo leaves alone, by private names of torch (`compat.py`)."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any


def leave_untraced(package: ModuleType, *but: str) -> None:
    """Let dynamo run the functions of a package's modules instead of tracing into them. but: modules that it traces."""
    trace_rules: Any = import_module("torch._dynamo.trace_rules")
    prefix = f"{package.__name__}."
    left = {prefix + name for name in but}
    modules = [module for module in pkgutil.iter_modules(package.__path__, prefix) if module.name not in left]
    found = [PathFinder.find_spec(module.name, package.__path__) for module in modules]
    places = [spec.origin.removesuffix("__init__.py") for spec in found if spec is not None and spec.origin is not None]
    # torch's own function compiles all places into one pattern, which takes a fifth of a second at least. Whoever calls
    # it later finds ours in the list.
    trace_rules.SKIP_DIRS.extend(places)
    trace_rules.SKIP_DIRS_RE = _Places(tuple(places), trace_rules.SKIP_DIRS_RE)


@dataclass(frozen=True, slots=True)
class _Places:
    """Stands for torch's pattern of the places of files. others: that pattern."""

    places: tuple[str, ...]
    others: Any

    def match(self, file: str) -> bool:
        """Whether a file is at one of the places, or matches torch's pattern."""
        return file.startswith(self.places) or bool(self.others.match(file))

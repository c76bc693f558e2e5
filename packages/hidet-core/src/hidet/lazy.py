"""Names of a package that are imported when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_attributes(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package (PEP 562).

    modules: for each name, the module in the package that has it. What was used once is an attribute like others.
    """

    def find(name: str) -> object:
        module = modules.get(name)
        if module is None:
            # What plug-ins add.
            return import_module("hidet.plugins.attributes").find(package, name)
        value: object = getattr(import_module(f"{package}.{module}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return find, names

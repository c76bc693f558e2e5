"""Plug-in module of hidet-compat: names that it adds to modules of hidet. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from hidet.plugins.specs import AttributeSpec

HIDET_API = 1


def hidet_attributes() -> Iterable[AttributeSpec]:
    """Settings of `hidet.option`, and names of other modules."""
    from hidet.compat.names import PLACES
    from hidet.compat.option import NAMES

    settings = {f"hidet.option.{name}": f"hidet.compat.option:{name}" for name in NAMES}
    return [AttributeSpec(name=name, load=place) for name, place in {**PLACES, **settings}.items()]

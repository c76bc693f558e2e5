"""Records: dataclasses of which a compilation makes thousands, frozen for type checkers and while debugging.

At run time they are frozen with HIDET_DEBUG=1 alone: making a frozen dataclass takes five times as long, because every
field is set by a call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform, overload

Class = TypeVar("Class", bound=type)


@overload
def record(cls: Class) -> Class: ...


@overload
def record(*, eq: bool) -> Callable[[Class], Class]: ...


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def record(cls: Any = None, *, eq: bool = False) -> Any:
    """Make `cls` a record with slots. eq: equality and hash go by value; without it they go by identity."""

    def make(cls: type) -> type:
        is_frozen = os.environ.get("HIDET_DEBUG") == "1"
        return dataclass(slots=True, eq=eq, unsafe_hash=eq, frozen=is_frozen)(cls)

    return make if cls is None else make(cls)

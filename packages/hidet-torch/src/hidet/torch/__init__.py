"""hidet's PyTorch front-end: `torch.compile(model, backend="hidet")`.

hidet.torch.collect_reports()              reports of what is compiled inside a `with` block
hidet.torch.register_op(name, kernel)      a Hidet Script kernel as an operator of torch

torch is imported when `register_op` is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hidet.torch.reports import collect_reports

if TYPE_CHECKING:
    from hidet.torch.custom_op import register_op

__all__ = ["collect_reports", "register_op"]

_MODULES = {"register_op": "custom_op"}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})

"""hidet's PyTorch front-end: `torch.compile(model, backend="hidet")`.

hidet.torch.collect_reports()              reports of what is compiled inside a `with` block
hidet.torch.register_op(name, kernel)      a Hidet Script kernel as an operator of torch
hidet.torch.dynamo_config                  settings as scripts of earlier versions make them

torch is imported when `register_op` is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes
from hidet.torch.reports import collect_reports

if TYPE_CHECKING:
    from hidet.torch.config import dynamo_config
    from hidet.torch.custom_op import register_op

__all__ = ["collect_reports", "dynamo_config", "register_op"]

__getattr__, __dir__ = lazy_attributes(__name__, {"dynamo_config": "config", "register_op": "custom_op"})

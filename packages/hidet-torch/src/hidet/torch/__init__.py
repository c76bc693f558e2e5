"""hidet's PyTorch front-end: `torch.compile(model, backend="hidet")`.

hidet.torch.collect_reports()    reports of what is compiled inside a `with` block
"""

from hidet.torch.reports import collect_reports

__all__ = ["collect_reports"]

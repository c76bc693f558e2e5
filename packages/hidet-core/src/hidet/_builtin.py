"""Plug-in module of the built-ins: core offers its own operators, passes and targets through the same hooks as any plug-in."""

HIDET_API = 1

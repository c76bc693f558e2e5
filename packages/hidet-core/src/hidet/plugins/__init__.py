"""The plug-in system: hook specifications, the spec objects that hooks return, and the host that collects them.

    specs.py      what a plug-in returns: frozen descriptions that name their implementation by "pkg.mod:attr"
    hookspecs.py  every hook, one page
    host.py       finds plug-ins, isolates the broken ones, builds the registry; the only user of pluggy
    registry.py   name -> spec, with owners, priorities, order and helpful errors
    report.py     what `hidet plugins` prints

A plug-in is a module with `HIDET_API = 1` and any of the hook functions, named by an entry point of the group
`hidet.plugins`. It imports its spec classes from here; importing this package loads none of pluggy, numpy or torch.
"""

from hidet.plugins.specs import (
    PLUGIN_API,
    CommandSpec,
    CommandTable,
    FrontendSpec,
    HandlerSpec,
    OptionSpec,
    PassSpec,
    RewriteSpec,
    ScheduleSpec,
    TargetSpec,
)

__all__ = [
    "PLUGIN_API",
    "CommandSpec",
    "CommandTable",
    "FrontendSpec",
    "HandlerSpec",
    "OptionSpec",
    "PassSpec",
    "RewriteSpec",
    "ScheduleSpec",
    "TargetSpec",
]

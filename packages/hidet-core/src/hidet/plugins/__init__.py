"""The plug-in system: hook specifications, the spec objects that hooks return, and the host that collects them.

    specs.py      what a plug-in returns: frozen descriptions that name their implementation by "pkg.mod:attr"
    hookspecs.py  every hook, one page
    host.py       finds plug-ins, isolates the broken ones, builds the registry; the only user of pluggy
    registry.py   name -> spec, with owners, priorities, order and helpful errors
    report.py     what `hidet plugins` prints

A plug-in is a module or an object with `HIDET_API = 1` and any of the hook functions, named by an entry point of the
group `hidet.plugins`. It imports its spec classes from here; importing this package loads none of pluggy, numpy or
torch. `use` and `without` have plug-ins active, or leave them out, for a block of code.
"""

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes
from hidet.plugins.specs import (
    PLUGIN_API,
    AttributeSpec,
    CheckSpec,
    CommandSpec,
    CommandTable,
    ExecutorSpec,
    FrontendSpec,
    HandlerSpec,
    OptionSpec,
    PassSpec,
    RewriteSpec,
    ScheduleSpec,
    StrategySpec,
    TargetSpec,
)

if TYPE_CHECKING:
    from hidet.plugins.host import use, without

__getattr__, __dir__ = lazy_attributes(__name__, {"use": "host", "without": "host"})

__all__ = [
    "PLUGIN_API",
    "AttributeSpec",
    "CheckSpec",
    "CommandSpec",
    "CommandTable",
    "ExecutorSpec",
    "FrontendSpec",
    "HandlerSpec",
    "OptionSpec",
    "PassSpec",
    "RewriteSpec",
    "ScheduleSpec",
    "StrategySpec",
    "TargetSpec",
    "use",
    "without",
]

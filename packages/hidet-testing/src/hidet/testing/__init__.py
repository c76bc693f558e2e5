"""What tests of hidet and of its plug-ins share; docs/testing.md shows what plug-ins need of it."""

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

# Wheels may continue this package in folders of their own.
__path__ = extend_path(__path__, __name__)

if TYPE_CHECKING:
    from hidet.testing.edges import EdgeReport, check_edges
    from hidet.testing.rules import RuleReport, check_rule

_LAZY = {"EdgeReport": "edges", "RuleReport": "rules", "check_edges": "edges", "check_rule": "rules"}
_own, __dir__ = lazy_attributes(__name__, _LAZY)


def __getattr__(name: str) -> object:
    # What plug-ins add, where it is none of these.
    return _own(name) if name in _LAZY else import_module("hidet.plugins.attributes").find(__name__, name)


__all__ = ["EdgeReport", "RuleReport", "check_edges", "check_rule"]

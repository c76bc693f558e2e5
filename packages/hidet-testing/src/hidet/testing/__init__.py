"""What tests of hidet and of its plug-ins share; docs/testing.md shows what plug-ins need of it."""

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

if TYPE_CHECKING:
    from hidet.testing.edges import EdgeReport, check_edges
    from hidet.testing.rules import RuleReport, check_rule

_LAZY = {"EdgeReport": "edges", "RuleReport": "rules", "check_edges": "edges", "check_rule": "rules"}
__getattr__, __dir__ = lazy_attributes(__name__, _LAZY)

__all__ = ["EdgeReport", "RuleReport", "check_edges", "check_rule"]

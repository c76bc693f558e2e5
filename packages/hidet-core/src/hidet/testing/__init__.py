"""What tests of hidet and of its plug-ins share; docs/testing.md shows what plug-ins need of it."""

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

if TYPE_CHECKING:
    from hidet.testing.rules import RuleReport, check_rule

__getattr__, __dir__ = lazy_attributes(__name__, {"RuleReport": "rules", "check_rule": "rules"})

__all__ = ["RuleReport", "check_rule"]

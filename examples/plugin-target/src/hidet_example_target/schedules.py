"""The schedule of a target that has none of its own."""

from __future__ import annotations

from hidet.schedule.fallback import FallbackRule


class NestRule(FallbackRule):
    """Core's nest for every task. hidet warns of products in its own rule; here plain loops are what is meant."""

"""Settings of all tests: property tests draw the same examples every time, and a busy machine does not fail them."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("repeatable")

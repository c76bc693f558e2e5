"""Settings of all tests: property tests draw the same examples every time, and a busy machine does not fail them."""

from __future__ import annotations

import gc
import importlib.util

if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """Keep the tests themselves out of the cycle collector: with thousands of them, a collection takes seconds."""
    gc.collect()
    gc.freeze()

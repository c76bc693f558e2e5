"""Whole models beyond the smoke set run only when asked for by marker."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked `models` unless `-m` says what to run."""
    if config.option.markexpr:
        return
    wanted = [item for item in items if item.get_closest_marker("models") is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted

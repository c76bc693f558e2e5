"""A driver of the test's own in place of the machine's."""

from collections.abc import Iterator

import pytest

from hidet.cuda import memory
from hidet.cuda.testing.fake_driver import FakeDriver


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The driver that hidet.cuda finds: two devices."""
    made = FakeDriver(devices=2)
    driver = made.driver()
    for module in ("memory", "devices"):
        monkeypatch.setattr(f"hidet.cuda.{module}.load_driver", lambda: driver)
    memory._made_device.cache_clear()
    yield made
    memory._made_device.cache_clear()

"""A driver of the test's own in place of the machine's."""

from collections.abc import Iterator

import pytest

from hidet.cuda import devices
from hidet.cuda.testing.fake_driver import FakeDriver


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The driver that hidet.cuda finds: two devices."""
    made = FakeDriver(devices=2)
    driver = made.driver()
    monkeypatch.setattr(devices, "load_driver", lambda: driver)
    devices._make_device.cache_clear()
    yield made
    devices._make_device.cache_clear()

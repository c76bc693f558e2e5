"""Settings of all tests: they draw the same examples and random numbers every time, a busy machine does not fail them,
and the user's tuned choices do not act."""

from __future__ import annotations

import gc
import importlib.util
import operator
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.sampling import chosen_cases

# What somebody has tuned on this machine would change schedules, and with them what tests expect of them.
os.environ.setdefault("HIDET_TUNE_STORE", "off")

# What a shell starts in the background ignores Ctrl-C, and tests of it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("repeatable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with the marker gpu are skipped where there is no device. Those with the marker models, and all of those
    with the marker thorough but one in so many cases, are deselected unless `-m` says what to run."""
    on_device = [item for item in items if item.get_closest_marker("gpu")]
    if on_device and not _has_device():
        for item in on_device:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    if not config.option.markexpr:
        left_out = _left_out(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Tests that run on demand alone."""
    found = {item for item in items if item.get_closest_marker("models") is not None}
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item not in found and item.get_closest_marker("thorough") is not None:
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for group in groups.values():
        marker = group[0].get_closest_marker("thorough")
        every = None if marker is None else marker.kwargs.get("every")
        cases = [_values(item) for item in group]
        chosen = [] if every is None else chosen_cases(cases, every)
        found |= set(group) - {group[number] for number in chosen}
    return found


def _values(item: pytest.Item) -> dict[str, int]:
    """Which value each parameter of a case has: a number for each, as cases share them."""
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else {name: id(value) for name, value in callspec.params.items()}


def _has_device() -> bool:
    try:
        import hidet.cuda
    except ImportError:
        return False
    return bool(hidet.cuda.available())


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Weights of models and `random` inputs are those of the last run, whichever tests ran before in this process."""
    random.seed(0)  # Keras takes the seed of its initializers from here where nobody sets one.
    for name, seed in (("numpy", "random.seed"), ("tensorflow", "random.set_seed")):
        if name in sys.modules:
            operator.attrgetter(seed)(sys.modules[name])(0)
    torch = sys.modules.get("torch")
    if torch is not None:
        # Where there is no device, torch.manual_seed keeps a text of the stack for each kind of them: 6 ms a test.
        (torch if torch.cuda.is_available() else torch.default_generator).manual_seed(0)


def pytest_collection_finish() -> None:
    """Keep the tests themselves out of the cycle collector: with thousands of them, a collection takes seconds."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Skipped tests by reason, a line each: there are hundreds, for a handful of reasons."""
    reports = terminalreporter.stats.get("skipped", [])
    if not reports:
        return
    terminalreporter.section("skipped, by reason")
    for reason, count in Counter(map(_reason, reports)).most_common():
        terminalreporter.write_line(f"{count:5}  {reason}")


def _reason(report: pytest.TestReport) -> str:
    found = report.longrepr
    text = found[2] if isinstance(found, tuple) else str(found)
    return text.removeprefix("Skipped: ").splitlines()[0]

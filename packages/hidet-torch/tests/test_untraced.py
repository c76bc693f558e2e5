"""Which modules dynamo leaves alone."""

from __future__ import annotations

import pytest
import torch._dynamo.trace_rules as trace_rules

import hidet.schedule
from hidet.torch import compat


def test_modules_left_untraced_are_skipped_and_torch_compiles_its_pattern_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []
    make = trace_rules._recompile_re
    monkeypatch.setattr(trace_rules, "SKIP_DIRS", [])
    monkeypatch.setattr(trace_rules, "SKIP_DIRS_RE", trace_rules.SKIP_DIRS_RE)
    monkeypatch.setattr(trace_rules, "_recompile_re", lambda: (compiled.append(1), make()))
    compat.leave_untraced(hidet.schedule, "select")
    assert compiled == [1]
    folder = hidet.schedule.__path__[0]
    assert trace_rules.check_file(f"{folder}/task.py").skipped
    assert not trace_rules.check_file(f"{folder}/select.py").skipped

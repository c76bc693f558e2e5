"""Which modules dynamo leaves alone."""

from __future__ import annotations

import re

import pytest
import torch._dynamo.trace_rules as trace_rules

import hidet.schedule
from hidet.torch.compat_untraced import leave_untraced

NOTHING = re.compile("(?!)")
"""In the place of what hidet's backend leaves untraced, if it was imported before."""


def test_modules_left_untraced_are_skipped_and_torch_compiles_no_pattern_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[int] = []
    make = trace_rules._recompile_re
    monkeypatch.setattr(trace_rules, "SKIP_DIRS", [])
    monkeypatch.setattr(trace_rules, "SKIP_DIRS_RE", NOTHING)
    monkeypatch.setattr(trace_rules, "_recompile_re", lambda: (compiled.append(1), make()))
    leave_untraced(hidet.schedule, "select")
    assert not compiled
    folder = hidet.schedule.__path__[0]
    assert trace_rules.check_file(f"{folder}/task.py").skipped
    assert not trace_rules.check_file(f"{folder}/select.py").skipped
    assert not trace_rules.check_file("/elsewhere/model.py").skipped


def test_a_module_that_is_left_out_later_leaves_those_before_it_untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_rules, "SKIP_DIRS", [])
    monkeypatch.setattr(trace_rules, "SKIP_DIRS_RE", NOTHING)
    leave_untraced(hidet.schedule, "select")
    trace_rules.add("hidet.errors")
    assert trace_rules.check_file(f"{hidet.schedule.__path__[0]}/task.py").skipped

"""`__builtin_assume`: what a script takes for granted about integers."""

from __future__ import annotations

import pytest

import hidet
from hidet.errors import ScriptError
from hidet.lang import __builtin_assume, f32, i64, register_tensor, row_major


def divides(module: hidet.lang.ScriptModule) -> bool:
    """Whether an element of a composed layout is found by division."""
    return "//" in str(module.ir_module())


def test_a_range_that_is_assumed_makes_division_superfluous() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def pick(i: i64, j: i64) -> f32:
            __builtin_assume(i >= 0 and i < 4)
            held = register_tensor(f32, layout=row_major(2) * row_major(4))
            held[4 + i] = 2.5
            return held[4 + i]

    assert not divides(module)
    assert module.build()(3, 0) == 2.5


def test_what_holds_in_a_branch_alone_is_not_kept() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def pick(i: i64) -> f32:
            held = register_tensor(f32, layout=row_major(2) * row_major(4))
            if i < 4:
                __builtin_assume(i >= 0 and i < 4)
            held[i] = 2.5
            return held[i]

    assert divides(module)


def test_a_variable_that_changes_is_not_known() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def pick(i: i64) -> f32:
            k = i
            __builtin_assume(k >= 0 and k <= 3)
            k += 4
            held = register_tensor(f32, layout=row_major(2) * row_major(4))
            held[k] = 2.5
            return held[k]

    assert divides(module)


def test_one_end_of_a_range_is_not_enough() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def pick(i: i64) -> f32:
            __builtin_assume(i < 4)
            held = register_tensor(f32, layout=row_major(2) * row_major(4))
            held[i] = 2.5
            return held[i]

    assert divides(module)


def test_what_never_holds_is_refused() -> None:
    with pytest.raises(ScriptError, match="this never holds"):

        @hidet.script
        def never(x: f32) -> f32:
            __builtin_assume(3 < 2)
            return x

"""Functions that programs share are named by what they do, and compiled once."""

from __future__ import annotations

from hidet import dtypes
from hidet.host.units import merge_modules
from hidet.ir import build
from hidet.ir.expr import Call, Var
from hidet.ir.func import EXPORTED, Function, Module
from hidet.ir.stmt import Evaluate, Return
from hidet.ir.visit import walk
from hidet.schedule.shared_functions import share_functions, split_shared


def _step(name: str, amount: int) -> Function:
    x = Var("x", dtypes.i64)
    return Function(name, (x,), Return(x + amount), result=dtypes.i64)


def _module(*steps: Function, entry: str = "entry") -> Module:
    calls = build.seq([Evaluate(build.call(f.name, build.index(1), type=dtypes.i64)) for f in steps])
    return Module((*steps, Function(entry, (), calls, kind="host")), entry)


def _calls(module: Module) -> list[str]:
    return [node.callee for f in module.functions for node in walk(f.body) if isinstance(node, Call)]


def _names(*steps: Function) -> list[str]:
    return [f.name for f in share_functions(steps)]


def test_equal_groups_get_equal_names_and_others_do_not() -> None:
    assert _names(_step("a", 1), _step("b", 2)) == _names(_step("a", 1), _step("b", 2))
    assert _names(_step("a", 1)) != _names(_step("a", 2))
    assert _names(_step("a", 1))[0] not in _names(_step("a", 1), _step("b", 2))


def test_a_module_without_shared_functions_stays_as_it_is() -> None:
    module = _module(_step("a", 1))
    assert split_shared(module) == (module, [])


def test_shared_functions_move_to_a_module_of_their_group_and_are_linked() -> None:
    whole = _module(*share_functions([_step("a", 1), _step("b", 2)]), *share_functions([_step("c", 3)]))
    module, (one, other) = split_shared(whole)
    assert [f.name for f in module.functions] == ["entry"]
    assert [len(one.functions), len(other.functions)] == [2, 1]
    assert all(EXPORTED in f.attributes for f in (*one.functions, *other.functions))
    assert list(module.externals) == _calls(module) == [f.name for f in (*one.functions, *other.functions)]


def test_a_merged_module_has_each_shared_function_once_and_renames_others_of_the_same_name() -> None:
    first = _module(*share_functions([_step("a", 1)]), _step("own", 2), entry="first")
    second = _module(*share_functions([_step("a", 1)]), _step("own", 3), entry="second")
    merged = merge_modules([first, second], {"first": None, "second": None})
    (shared,) = _names(_step("a", 1))
    assert [f.name for f in merged.functions] == [shared, "own", "first", "second_own", "second"]
    assert _calls(merged) == [shared, "own", shared, "second_own"]

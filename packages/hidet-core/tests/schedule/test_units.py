"""Functions that programs share are compiled once."""

from __future__ import annotations

from hidet import dtypes
from hidet.ir import build
from hidet.ir.expr import Call, Var
from hidet.ir.func import EXPORTED, SHARED, Function, Module
from hidet.ir.stmt import Evaluate, Return
from hidet.ir.visit import walk
from hidet.schedule.units import split_shared


def _step(name: str, amount: int, group: str = "steps") -> Function:
    x = Var("x", dtypes.i64)
    return Function(name, (x,), Return(x + amount), result=dtypes.i64, attributes=((SHARED, group),))


def _module(*steps: Function) -> Module:
    calls = build.seq([Evaluate(build.call(f.name, build.index(1), type=dtypes.i64)) for f in steps])
    return Module((*steps, Function("entry", (), calls, kind="host")), "entry")


def _calls(module: Module) -> list[str]:
    return [node.callee for f in module.functions for node in walk(f.body) if isinstance(node, Call)]


def test_a_module_without_shared_functions_stays_as_it_is() -> None:
    module = _module()
    assert split_shared(module) == (module, [])


def test_shared_functions_move_to_a_module_of_their_group_and_are_linked() -> None:
    module, (one, other) = split_shared(_module(_step("a", 1), _step("b", 2), _step("c", 3, "others")))
    assert [f.name for f in module.functions] == ["entry"]
    assert [len(one.functions), len(other.functions)] == [2, 1]
    assert all(EXPORTED in f.attributes for f in (*one.functions, *other.functions))
    names = [f.name for f in (*one.functions, *other.functions)]
    assert _calls(module) == names
    assert module.externals == tuple(names)


def test_equal_groups_get_equal_names_and_others_do_not() -> None:
    def names(*steps: Function) -> list[str]:
        _, (library,) = split_shared(_module(*steps))
        return [f.name for f in library.functions]

    assert names(_step("a", 1), _step("b", 2)) == names(_step("a", 1), _step("b", 2))
    assert names(_step("a", 1)) != names(_step("a", 2))
    assert names(_step("a", 1))[0] not in names(_step("a", 1), _step("b", 2))

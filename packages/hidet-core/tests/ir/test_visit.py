"""Walking programs."""

from __future__ import annotations

from hidet import dtypes
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Var
from hidet.ir.types import PointerType
from hidet.ir.visit import has_statement, statements

X = Var("x", PointerType(dtypes.f32))
STORE = s.Store(X, (build.index(0),), build.load(X, 1) * 2.0)
LOOP = s.For(build.size_var("i"), build.index(0), build.index(4), s.Seq((STORE, s.Break())))
PROGRAM = s.Seq((LOOP, s.If(build.size_var("n") > 0, s.Return(), STORE)))


def test_statements_come_in_order_without_what_they_compute() -> None:
    found = [type(stmt) for stmt in statements(PROGRAM)]
    assert found == [s.Seq, s.For, s.Seq, s.Store, s.Break, s.If, s.Return, s.Store]


def test_a_class_of_statements_is_found_wherever_statements_are() -> None:
    classes = [value for value in vars(s).values() if isinstance(value, type) and issubclass(value, s.Stmt)]
    there = {type(stmt) for stmt in statements(PROGRAM)}
    assert {kind for kind in classes if has_statement(PROGRAM, kind)} == there

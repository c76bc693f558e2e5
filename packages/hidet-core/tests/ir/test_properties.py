"""What holds for every program: it verifies, its text parses back, and names do not matter."""

import ast

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hidet import dtypes
from hidet.ir import expr as e
from hidet.ir.expr_text import Names, expr_text
from hidet.ir.interpret import run_module
from hidet.ir.parser import parse_expr, parse_module
from hidet.ir.printer import print_expr, print_module
from hidet.ir.structural import structural_equal, structural_hash
from hidet.ir.verify import verify_module
from hidet.ir.visit import rewrite, walk
from hidet.testing.program_strategies import Scope, arguments, expressions, modules

VARIABLES = tuple(
    e.Var(f"{type_}_{number}", type_) for type_ in (dtypes.f32, dtypes.i64, dtypes.boolean) for number in range(2)
)
SCOPE = Scope(VARIABLES, (), ())

quick = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@quick
@given(modules())
def test_a_printed_program_parses_back_equal(module):
    verify_module(module)
    text = print_module(module)
    again = parse_module(text)
    assert structural_equal(again, module)
    assert print_module(again) == text


@quick
@given(modules(), st.integers(0, 3))
def test_a_parsed_program_computes_the_same_bits(module, seed):
    results = []
    for program in (module, parse_module(print_module(module))):
        values = arguments(seed)
        run_module(program, values)
        results.append([value.tobytes() for value in values if isinstance(value, np.ndarray)])
    assert results[0] == results[1]


class _Rename(ast.NodeTransformer):
    """Prefixes every name of a variable: parameters and what statements bind."""

    def __init__(self, tree):
        bound = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        self.names = {*bound, *(n.arg for n in ast.walk(tree) if isinstance(n, ast.arg))}

    def visit_Name(self, node):
        return ast.Name(f"other_{node.id}", node.ctx) if node.id in self.names else node

    def visit_arg(self, node):
        return ast.arg(f"other_{node.arg}", node.annotation)


@quick
@given(modules())
def test_the_hash_of_a_program_does_not_depend_on_names(module):
    tree = ast.parse(print_module(module))
    renamed = parse_module(ast.unparse(_Rename(tree).visit(tree)))
    assert all(var.name.startswith("other_") for function in renamed.functions for var in function.params)
    assert structural_hash(renamed) == structural_hash(module)


@quick
@given(st.sampled_from([dtypes.f32, dtypes.f64, dtypes.i32, dtypes.i64, dtypes.boolean]), st.data())
def test_a_printed_expression_parses_back_equal(type_, data):
    expr = data.draw(expressions(type_, SCOPE))
    again = parse_expr(print_expr(expr), VARIABLES)
    assert structural_equal((*VARIABLES, again), (*VARIABLES, expr))


@quick
@given(st.sampled_from([dtypes.f32, dtypes.i64, dtypes.boolean]), st.data())
def test_sharing_equal_parts_changes_neither_hash_nor_equality(type_, data):
    expr = data.draw(expressions(type_, SCOPE))
    by_text = {}
    names = Names()
    shared = rewrite(expr, lambda node: by_text.setdefault((expr_text(node, names), str(node.type)), node))
    assert structural_hash(shared) == structural_hash(expr)
    assert len(list(walk(shared))) <= len(list(walk(expr)))


@quick
@given(st.sampled_from([dtypes.f32, dtypes.i64]), st.data())
def test_changing_one_constant_changes_the_hash(type_, data):
    expr = data.draw(expressions(type_, SCOPE))
    constants = [node for node in walk(expr) if isinstance(node, e.Const) and isinstance(node.value, int)]
    numbers = [node for node in constants if not isinstance(node.value, bool)]
    if numbers:
        chosen = data.draw(st.sampled_from(numbers))
        changed = rewrite(expr, lambda node: e.Const(chosen.value + 1, chosen.type) if node is chosen else None)
        assert structural_hash(changed) != structural_hash(expr)

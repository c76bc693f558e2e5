"""`hidet.ir` in the words of hidet 0.6: types, expressions, builders and walks over programs."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet import ir
from hidet.errors import ScriptError, UnsupportedOp
from hidet.ir import dtypes, tools
from hidet.ir.builders import FunctionBuilder
from hidet.ir.expr import cast, if_then_else, index_vars, is_zero, logical_not, logical_or, tensor_var, var
from hidet.ir.functors import IRRewriter, IRVisitor
from hidet.ir.interpret import run_module
from hidet.lang import attrs, f32
from hidet.lang.cuda import blockIdx, threadIdx


@pytest.fixture
def add():
    with hidet.script_module() as module:

        @hidet.script
        def add(a: f32, b: f32) -> f32:
            return a + b * 2.0

    return module


def test_types_are_told_apart() -> None:
    scalar, tensor, pointer = hidet.float32, hidet.float32[3, 4], ~hidet.float32
    kinds = {ir.DataType: scalar, ir.TensorType: tensor, ir.PointerType: pointer, ir.VoidType: hidet.lang.void}
    for kind, one in kinds.items():
        assert [isinstance(other, kind) for other in kinds.values()] == [other is one for other in kinds.values()]
        assert isinstance(one, ir.BaseType)
    assert isinstance(hidet.zeros([1]).dtype, ir.DataType)
    assert not isinstance(3, ir.BaseType)


def test_types_are_made_by_name() -> None:
    assert ir.data_type("float16") == ir.data_type("f16") == dtypes.float16 == hidet.float16
    assert ir.data_type("f32x4").nbytes == 16
    assert str(ir.tensor_type("float32", [3, 4])) == str(hidet.float32[3, 4]) == str(ir.TensorType("float32", [3, 4]))
    assert str(ir.PointerType("int8")) == "~i8"
    assert dtypes.promote_type("int64", "float16") == dtypes.float16
    assert dtypes.dtype_from_numpy(np.dtype("int8")) == dtypes.int8


def test_scripts_and_builders_give_functions(add) -> None:
    assert isinstance(add.functions[0], ir.Function) and not isinstance(add, ir.Function)
    assert isinstance(add.ir_module(), ir.IRModule)
    assert isinstance(add.ir_module().functions[0], ir.Function)


def test_expressions_are_told_apart() -> None:
    (i,) = index_vars(["i"])
    assert isinstance(i, ir.Var) and isinstance(i + 1, ir.Expr) and not isinstance(i + 1, ir.Var)
    assert isinstance(ir.Constant(3, "int32"), ir.Constant) and is_zero(0) and not is_zero(i)
    assert isinstance(hidet.symbol_var("n"), ir.Expr) and isinstance(hidet.symbol_var("n"), ir.SymbolVar)
    assert ir.infer_type(cast(i, "float16") * 2.0) == dtypes.float16


def test_a_program_is_searched_and_changed(add) -> None:
    module = add.ir_module()
    (product,) = tools.collect(module, hidet.ir.expr.Const)
    assert product.value == 2.0

    class Twice(IRRewriter):
        def visit_Const(self, number):
            return ir.expr.constant(number.value * 2, "float32").expr

    class Count(IRVisitor):
        numbers = 0

        def visit_Const(self, number):
            self.numbers += 1

    count = Count()
    count(module)
    assert count.numbers == 1
    changed = Twice()(module)
    assert hidet.driver.build_ir_module(changed)(1.0, 2.0) == 9.0
    assert IRRewriter()(module) is module


def test_variables_are_replaced_and_constants_folded() -> None:
    i, j = index_vars(["i", "j"])
    replaced = tools.rewrite(i * 3 + j, {i: 2})
    assert tools.collect(replaced, hidet.ir.expr.Var) == [j.expr]
    assert is_zero(tools.simplify(tools.rewrite(i * 3, {i: 0})))


def test_a_function_is_built_statement_by_statement() -> None:
    with FunctionBuilder("clip", kind="cpu_kernel") as fb:
        x, low = tensor_var("x", [2, 3]), var("low", "float32")
        fb.extend_params([x, low])
        with fb.for_grid([2, 3]) as (i, j), fb.if_then(logical_or(x[i, j] < low, logical_not(x[i, j] < 4.0))):
            fb.buffer_store(x, [i, j], if_then_else(x[i, j] < low, low, 4.0))
        total = fb.declare_var("total", "float32", 0)
        with fb.for_loop("k", 3) as k:
            fb.assign(total, total + x[0, k])
        with fb.if_then(total > 100.0):
            fb.buffer_store(x, [0, 0], -1)
        with fb.otherwise(), fb.let("doubled", total * 2.0) as doubled:
            fb.buffer_store(x, [0, 0], doubled)
    assert isinstance(fb.get(), ir.Function)
    values = hidet.asarray([[0.0, 2.0, 9.0], [1.0, -5.0, 3.0]])
    hidet.driver.build_ir_module(ir.IRModule([fb.get()]))(values, 1.0)
    assert values.tolist() == [[14.0, 2.0, 4.0], [1.0, 1.0, 3.0]]


def test_a_kernel_is_built_and_launched_as_it_says() -> None:
    with FunctionBuilder("iota", kind="cuda_kernel", grid_dim=2, block_dim=4) as fb:
        x = tensor_var("x", [8], "int32")
        fb.extend_params([x])
        place = ir.expr.convert(blockIdx.x * 4 + threadIdx.x)
        fb.buffer_store(x, [place], cast(place, "int32"))
    numbers = np.zeros(8, np.int32)
    run_module(ir.IRModule({"iota": fb.get()}), [numbers])
    assert numbers.tolist() == list(range(8))


def test_builders_say_what_they_do_not_take() -> None:
    with pytest.raises(ScriptError, match="kind 'gpu' is unknown"):
        FunctionBuilder("f", kind="gpu")
    fb = FunctionBuilder("f", kind="public")
    with pytest.raises(ScriptError, match="not finished"):
        fb.get()
    with pytest.raises(ScriptError, match="is no variable"):
        fb.extend_params([3])


def test_primitives_are_for_scripts_and_for_definitions() -> None:
    from hidet.ir.primitives import exp, max, syncthreads
    from hidet.ir.primitives.cuda import threadIdx as same

    with hidet.script_module() as module:

        @hidet.script
        def grow(a: f32) -> f32:
            attrs.func_kind = "public"
            return max(exp(a), 1.0)

    assert module.build()(-1.0) == 1.0
    assert same.name == threadIdx.name and type(syncthreads) is type(hidet.lang.cuda.syncthreads)
    with pytest.raises(TypeError, match="takes 1 numbers"):
        exp(1.0, 2.0)


def test_a_module_shows_its_program(add) -> None:
    assert "def add(a: f32, b: f32) -> f32:" in str(add.ir_module())


def test_sums_of_products_have_a_normal_form() -> None:
    from hidet.ir.polinomial import from_expr_to_poli, from_poli_to_expr

    a, b = index_vars(["a", "b"])
    assert from_expr_to_poli(a * (b + 1) - a) == from_expr_to_poli(b * a)
    assert from_expr_to_poli(-a + a) == 0 and from_expr_to_poli(a * 3) != from_expr_to_poli(a * 2)
    assert from_expr_to_poli(from_poli_to_expr(from_expr_to_poli(a + b))) == from_expr_to_poli(b + a)
    with pytest.raises(UnsupportedOp, match="no sum of products"):
        from_expr_to_poli(a // b)

"""What holds for every operator, and operators of symbolic extents against those of fixed ones."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hidet.operators
from hidet import dtypes
from hidet.compute.definition import Compute, Definition, Scan, Scatter
from hidet.compute.evaluate import evaluate
from hidet.dims import DimExpr, symbol
from hidet.dims import evaluate as evaluate_dim
from hidet.graph.operator import FOREIGN_KINDS, REQUIRED, OperatorSpec, define_node
from hidet.graph.types import TensorType
from hidet.ir.build import INDEX
from hidet.ir.expr import Access, Expr, Reduce
from hidet.ir.visit import walk
from hidet.operators import FAMILIES, all_operators

ALL = {spec.name: spec for spec in all_operators()}


def test_operator_names_are_unique() -> None:
    assert [name for name, count in Counter(spec.name for spec in all_operators()).items() if count > 1] == []


def test_every_family_module_is_listed() -> None:
    folder = Path(hidet.operators.__file__).parent
    with_specs = {path.stem for path in folder.glob("*.py") if "\nSPECS: tuple" in path.read_text()}
    assert with_specs == set(FAMILIES)


@pytest.mark.parametrize("spec", ALL.values(), ids=ALL)
def test_operator_says_what_it_does_and_has_a_meaning(spec: OperatorSpec) -> None:
    assert spec.doc.endswith(".") and len(spec.doc) > 40
    assert spec.define is not None or spec.decompose is not None or (spec.kind in FOREIGN_KINDS and spec.infer)
    assert (spec.view is not None) == (spec.kind == "view")
    assert all(attribute.name.isidentifier() for attribute in spec.attributes)


@pytest.mark.parametrize("name", ALL)
def test_operator_has_a_test_that_names_it(name: str) -> None:
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name]
    assert any(f'"{name}"' in text for text in texts)


def test_listing_the_operators_imports_nothing_heavy() -> None:
    code = (
        "import sys; from hidet._builtin import hidet_operators; assert len(list(hidet_operators())) > 200;"
        "print([m for m in ('numpy', 'torch', 'llvmlite', 'pluggy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


S, T = symbol("s0", lower=1), symbol("s1", lower=1)
BINDINGS = {"s0": 6, "s1": 4}
F32, I64 = dtypes.f32, dtypes.i64

# operator, inputs as (dtype, shape with symbols), attributes
SYMBOLIC: tuple[tuple[str, tuple[tuple[Any, tuple[Any, ...]], ...], dict[str, Any]], ...] = (
    ("add", ((F32, (S, 1, T)), (F32, (5, T))), {}),
    ("where", ((dtypes.boolean, (S, 1)), (F32, (S, T)), (F32, ())), {}),
    ("sum", ((F32, (S, 3, T)),), {"axes": (0, 2)}),
    ("mean", ((F32, (S, 3, T)),), {"axes": (2,)}),
    ("var", ((F32, (S, T)),), {"axes": (0,)}),
    ("argmax", ((F32, (S, T)),), {}),
    ("matmul", ((F32, (S, 1, 3, T)), (F32, (S, 2, T, 5))), {}),
    ("matmul", ((F32, (T, S)), (F32, (T, S))), {"trans_b": True}),
    ("linear", ((F32, (S, T)), (F32, (3, T)), (F32, (3,))), {}),
    ("stacked_linear", ((F32, (S, T)), (F32, (3, T)), (F32, (S + 3,)), (F32, (S, T))), {}),
    ("gated_linear", ((F32, (S, T)), (F32, (3, T)), (F32, (3, T)), (F32, (3,))), {"activation": "gelu_tanh"}),
    ("reshape", ((F32, (S, 3, T)),), {"shape": (3 * S, T)}),
    ("reshape", ((F32, (2 * S, T)),), {"shape": (S, 2, -1)}),
    ("reshape", ((F32, (S, T)),), {"shape": (T, S)}),
    ("flatten", ((F32, (2, S, T)),), {"start": 1}),
    ("transpose", ((F32, (S, 3, T)),), {"perm": (2, 0, 1)}),
    ("expand", ((F32, (1, T)),), {"shape": (S, T)}),
    ("slice", ((F32, (S, T)),), {"starts": (1, -2), "stops": (None, None), "steps": (2, 1)}),
    ("slice", ((F32, (S, T)),), {"starts": (None, None), "stops": (None, None), "steps": (-2, 1)}),
    ("select", ((F32, (S, T)),), {"axis": 0, "index": S - 1}),
    ("diagonal", ((F32, (S, T)),), {}),
    ("unfold", ((F32, (S + 2, 3)),), {"axis": 0, "size": 2, "step": 1}),
    ("concat", ((F32, (S, 3)), (F32, (T, 3))), {"axis": 0}),
    ("pad", ((F32, (S, T)),), {"pads": ((1, T), (0, 2)), "value": 2.0}),
    ("flip", ((F32, (S, T)),), {"axes": (0,)}),
    ("roll", ((F32, (S, T)),), {"shifts": (2,), "axes": (1,)}),
    ("tile", ((F32, (S, 3)),), {"repeats": (2, T)}),
    ("tril", ((F32, (S, T)),), {}),
    ("softmax", ((F32, (S, T)),), {}),
    ("layer_norm", ((F32, (S, T)), (F32, (T,))), {}),
    ("group_norm", ((F32, (S, 6, T)),), {"groups": 3}),
    ("batch_norm", ((F32, (S, 3, T)), (F32, (3,)), (F32, (3,))), {"eps": 10.0}),
    ("attention", ((F32, (2, S, 3)), (F32, (2, T, 3)), (F32, (2, T, 5))), {"is_causal": True}),
    ("conv", ((F32, (S, 2, S + 2, T)), (F32, (3, 2, 3, 2))), {"stride": 2, "padding": 1}),
    ("conv_transpose", ((F32, (1, 2, S)), (F32, (2, 3, 3))), {"stride": 2}),
    ("max_pool", ((F32, (1, 2, S, T)),), {"kernel": (2, 2), "ceil_mode": True}),
    ("avg_pool", ((F32, (1, 2, S, T)),), {"kernel": (3, 2), "stride": 1, "padding": (1, 0)}),
    ("adaptive_avg_pool", ((F32, (1, S, T)),), {"size": (3, 2)}),
    ("adaptive_avg_pool", ((F32, (1, S, T)),), {"size": (4, 3)}),
    ("interpolate", ((F32, (1, 2, S, T)),), {"size": (2 * S, 7), "mode": "linear"}),
    ("gather", ((F32, (S, T)), (I64, (2, T))), {"axis": 0}),
    ("embedding", ((F32, (11, T)), (I64, (S,))), {}),
    ("index", ((F32, (S, 3, T)), (I64, (5,))), {}),
    ("scatter", ((F32, (S, T)), (I64, (2, T)), (F32, (2, T))), {"axis": 0, "reduce": "sum"}),
    ("index_put", ((F32, (S, T)), (F32, (T,)), (I64, (2,))), {"accumulate": True}),
    ("slice_scatter", ((F32, (S, T)), (F32, (1, T))), {"starts": (S - 1, 0), "stops": (S, None)}),
    ("cumsum", ((F32, (S, T)),), {"axis": 1}),
    ("sort", ((F32, (S, T)),), {"axis": 0}),
    ("topk", ((F32, (S, T)),), {"k": 3, "axis": 1}),
    ("full", (), {"shape": (S, T), "value": 1.5}),
    ("arange", (), {"stop": 2 * S + T}),
    ("rand", ((I64, ()), (I64, ())), {"shape": (S, T)}),
)


def bound(value: Any) -> Any:
    """`value` with every symbolic size replaced by its binding."""
    if isinstance(value, tuple):
        return tuple(map(bound, value))
    return evaluate_dim(value, BINDINGS) if isinstance(value, DimExpr) else value


def values(dtype: Any, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Seeded data; integers are below 4, so that they are positions on every axis used here."""
    generator = np.random.default_rng(seed)
    if dtype is F32:
        return generator.standard_normal(shape).astype(np.float32)
    return np.asarray(generator.integers(0, 2 if dtype.is_bool else 4, shape)).astype(dtype.numpy())


@pytest.mark.parametrize(("name", "inputs", "attrs"), SYMBOLIC)
def test_operator_of_symbolic_extents_means_the_same(
    name: str, inputs: tuple[tuple[Any, tuple[Any, ...]], ...], attrs: dict[str, Any]
) -> None:
    spec = ALL[name]
    arrays = [values(dtype, bound(shape), seed) for seed, (dtype, shape) in enumerate(inputs)]
    fixed_attrs = {key: bound(value) for key, value in attrs.items()}
    symbolic = define_node(spec, [TensorType(d, s) for d, s in inputs], spec.attrs(attrs))
    fixed = define_node(spec, [TensorType(d, bound(s)) for d, s in inputs], spec.attrs(fixed_attrs))
    assert symbolic is not None and fixed is not None
    check_indices(symbolic)
    check_indices(fixed)
    for ours, theirs, operand in zip(
        evaluate(symbolic, arrays, BINDINGS), evaluate(fixed, arrays), symbolic.outputs, strict=True
    ):
        assert ours.shape == bound(operand.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def check_indices(definition: Definition) -> None:
    """Every index and every reduction extent is i64, and every operand read is an input or an earlier result."""
    known = set(definition.inputs)
    for stage in definition.stages:
        exprs: list[Expr] = []
        if isinstance(stage, Compute):
            exprs = [stage.value]
            assert stage.value.dtype == stage.result.dtype
        elif isinstance(stage, Scan):
            exprs = list(stage.values)
        elif isinstance(stage, Scatter):
            exprs = [stage.base, stage.update, *stage.indices]
            assert all(index.dtype is INDEX for index in stage.indices)
        for expr in exprs:
            for node in walk(expr):
                if isinstance(node, Access):
                    assert node.operand in known
                    assert all(index.dtype is INDEX for index in node.indices)
                if isinstance(node, Reduce):
                    assert all(extent.dtype is INDEX for extent in node.extents)
        known |= {stage.result} if isinstance(stage, Compute | Scatter) else set(stage.results)
    assert set(definition.outputs) <= known


def test_required_attributes_are_asked_for_by_name() -> None:
    needy = {name: [a.name for a in spec.attributes if a.default is REQUIRED] for name, spec in ALL.items()}
    assert needy["reshape"] == ["shape"]
    assert needy["softmax"] == []

"""Views: definitions against torch, and the view rule against the definition for inputs laid out in several ways."""

from __future__ import annotations

from typing import Any

import pytest

from hidet import dtypes
from hidet.compute.definition import Compute
from hidet.dims import floordiv, symbol
from hidet.errors import ShapeError
from hidet.graph import GraphBuilder, TensorType
from hidet.graph.operator import define_node
from hidet.ir.expr import Binary
from hidet.ir.visit import accesses, walk

torch = pytest.importorskip("torch")

NONE3: tuple[None, ...] = (None, None, None)
CASES: tuple[tuple[str, tuple[int, ...], dict[str, Any], Any], ...] = (
    ("reshape", (4, 6), {"shape": (2, 2, 6)}, lambda x: x.reshape(2, 2, 6)),
    ("reshape", (4, 6), {"shape": (3, -1)}, lambda x: x.reshape(3, -1)),
    ("reshape", (4, 6), {"shape": (24,)}, lambda x: x.reshape(24)),
    ("reshape", (2, 3, 4, 5), {"shape": (6, 2, 10)}, lambda x: x.reshape(6, 2, 10)),
    ("reshape", (2, 3, 4, 5), {"shape": (2, 12, 5)}, lambda x: x.reshape(2, 12, 5)),
    ("reshape", (2, 1, 6), {"shape": (1, 2, 3, 1, 2)}, lambda x: x.reshape(1, 2, 3, 1, 2)),
    ("reshape", (1,), {"shape": ()}, lambda x: x.reshape(())),
    ("reshape", (), {"shape": (1, 1)}, lambda x: x.reshape(1, 1)),
    ("reshape", (0, 3), {"shape": (5, 0)}, lambda x: x.reshape(5, 0)),
    ("flatten", (2, 3, 4, 5), {"start": 1, "end": -2}, lambda x: x.flatten(1, -2)),
    ("flatten", (), {}, lambda x: x.flatten()),
    ("transpose", (2, 3, 4), {"perm": (2, 0, 1)}, lambda x: x.permute(2, 0, 1)),
    ("transpose", (2, 3, 4), {"perm": (0, -1, 1)}, lambda x: x.permute(0, 2, 1)),
    ("transpose", (), {"perm": ()}, lambda x: x),
    ("squeeze", (1, 3, 1), {}, lambda x: x.squeeze()),
    ("squeeze", (1, 3, 1), {"axes": (-1, 1)}, lambda x: x.squeeze((-1, 1))),
    ("unsqueeze", (3, 2), {"axes": (0, -1)}, lambda x: x[None, :, :, None]),
    ("unsqueeze", (3, 2), {"axes": (1,)}, lambda x: x[:, None]),
    ("unsqueeze", (), {"axes": (0,)}, lambda x: x[None]),
    ("expand", (3, 1), {"shape": (2, -1, 4)}, lambda x: x.expand(2, -1, 4)),
    ("expand", (1, 3), {"shape": (1, 3)}, lambda x: x.expand(1, 3)),
    ("slice", (5, 6, 7), {"starts": (1, None, -3), "stops": (4, 5, None)}, lambda x: x[1:4, :5, -3:]),
    ("slice", (5, 6, 7), {"starts": NONE3, "stops": NONE3, "steps": (2, 3, 1)}, lambda x: x[::2, ::3]),
    ("slice", (5, 6, 7), {"starts": (3, 9, 0), "stops": (2, 99, 0)}, lambda x: x[3:2, 9:99, 0:0]),
    ("slice", (5, 6, 7), {"starts": NONE3, "stops": NONE3, "steps": (-1, 1, -2)}, lambda x: x.flip(0, 2)[:, :, ::2]),
    (
        "slice",
        (9, 2, 3),
        {"starts": (6, None, None), "stops": (-9, None, None), "steps": (-3, 1, 1)},
        lambda x: x[[6, 3]],
    ),
    ("select", (4, 5, 6), {"axis": 1, "index": -2}, lambda x: x.select(1, -2)),
    ("select", (4,), {"axis": 0, "index": 3}, lambda x: x[3]),
    ("diagonal", (4, 5), {}, lambda x: x.diagonal()),
    ("diagonal", (4, 5, 3), {"offset": 1, "axis1": 0, "axis2": 2}, lambda x: x.diagonal(1, 0, 2)),
    ("diagonal", (4, 5, 3), {"offset": -2, "axis1": -1, "axis2": 0}, lambda x: x.diagonal(-2, -1, 0)),
    ("diagonal", (2, 2), {"offset": 5}, lambda x: x.diagonal(5)),
    ("unfold", (3, 10), {"axis": 1, "size": 4, "step": 3}, lambda x: x.unfold(1, 4, 3)),
    ("unfold", (10, 3), {"axis": 0, "size": 2, "step": 2}, lambda x: x.unfold(0, 2, 2)),
    (
        "as_strided",
        (4, 6),
        {"shape": (3, 2), "strides": (7, 1), "offset": 2},
        lambda x: x.as_strided((3, 2), (7, 1), 2),
    ),
    ("as_strided", (9,), {"shape": (4, 3), "strides": (2, 1), "offset": 0}, lambda x: x.as_strided((4, 3), (2, 1), 0)),
)


@pytest.mark.parametrize(("name", "shape", "attrs", "reference"), CASES)
def test_view_definition_agrees_with_torch(
    name: str, shape: tuple[int, ...], attrs: dict[str, Any], reference: Any, apply: Any, make: Any, assert_matches: Any
) -> None:
    for dtype in ("float32", "bool", "int8", "bfloat16"):
        x = make(shape, dtype, 0, 1 if dtype == "bool" else 99)
        assert_matches(apply(name, x, **attrs), reference(x).contiguous())


def layouts(shape: tuple[int, ...]) -> list[Any]:
    """The same numbers laid out row-major, column-major, with gaps, and repeated along the first axis."""
    numbers = torch.arange(int(torch.tensor(shape).prod()), dtype=torch.float32).reshape(shape)
    order = tuple(reversed(range(len(shape))))
    results = [numbers, numbers.permute(order).contiguous().permute(order)]
    if shape:
        spaced = torch.zeros((*shape[:-1], 2 * shape[-1]))[..., ::2]
        results += [spaced.copy_(numbers), numbers[:1].expand(shape)]
    return results


@pytest.mark.parametrize(("name", "shape", "attrs", "reference"), CASES)
def test_view_rule_finds_the_elements_that_the_definition_means(
    name: str, shape: tuple[int, ...], attrs: dict[str, Any], reference: Any, apply: Any, operators: Any
) -> None:
    spec = operators[name]
    for x in layouts(shape):
        complete = spec.attrs(attrs)
        given = TensorType(dtypes.f32, tuple(x.shape), tuple(x.stride()))
        definition = define_node(spec, [given], complete)
        assert definition is not None
        result = TensorType(dtypes.f32, definition.outputs[0].shape)
        view = spec.view(given, complete, result)
        if view is None:
            assert name in ("reshape", "flatten", "as_strided") or min(attrs["steps"]) < 0
            continue
        storage = x.as_strided((x.untyped_storage().nbytes() // 4,), (1,), 0)
        seen = storage.as_strided(result.shape, view.strides, x.storage_offset() + view.offset)
        assert torch.equal(seen, apply(name, x, **attrs))


def test_reshape_is_a_view_exactly_where_torch_makes_one(operators: Any) -> None:
    spec = operators["reshape"]
    shapes = ((4, 6), (24,), (2, 2, 6), (2, 12), (8, 3), (4, 2, 3), (1, 4, 6), (2, 2, 3, 2))
    for shape in shapes:
        for x in layouts(shape):
            given = TensorType(dtypes.f32, tuple(x.shape), tuple(x.stride()))
            for new in shapes:
                view = spec.view(given, spec.attrs({"shape": new}), TensorType(dtypes.f32, new))
                try:
                    theirs = x.view(new)
                except RuntimeError:
                    assert view is None, (shape, x.stride(), new)
                else:
                    assert view is not None, (shape, x.stride(), new)
                    assert [s for s, n in zip(view.strides, new, strict=True) if n > 1] == [
                        s for s, n in zip(theirs.stride(), new, strict=True) if n > 1
                    ]


def index_operations(operators: Any, shape: Any, new: Any) -> list[str]:
    """The arithmetic in the index expressions of a reshape."""
    x = TensorType(dtypes.f32, shape)
    definition = define_node(operators["reshape"], [x], operators["reshape"].attrs({"shape": new}))
    assert definition is not None
    (stage,) = definition.stages
    assert isinstance(stage, Compute)
    (access,) = accesses(stage.value)
    return sorted(n.op for index in access.indices for n in walk(index) if isinstance(n, Binary))


def test_reshape_computes_only_where_axes_merge_or_split(operators: Any) -> None:
    s = symbol("s0", lower=1)
    assert index_operations(operators, (2, 128, 768), (2, 128, 12, 64)) == ["add", "mul"]
    assert index_operations(operators, (2, 128, 12, 64), (2, 128, 768)) == ["floordiv", "mod"]
    assert index_operations(operators, (s, 7, 12, 64), (s, 7, 768)) == ["floordiv", "mod"]
    assert index_operations(operators, (s, 7, 768), (-1, 768)) == ["floordiv", "mod"]
    assert index_operations(operators, (7 * s, 768), (s, 7, 768)) == ["add", "mul"]
    assert index_operations(operators, (1, s, 1, 5), (s, 5, 1)) == []
    assert index_operations(operators, (2 * s, 3), (2, 3 * s)) == ["add", "add", "floordiv", "mod", "mul", "mul"]


def test_reshape_resolves_minus_one_of_symbolic_extents(operators: Any) -> None:
    s = symbol("s0", lower=1)
    builder = GraphBuilder(operators)
    x = builder.input(TensorType(dtypes.f32, (s, 12, 64)))
    assert builder.emit("reshape", x, shape=(s, -1)).tensor.shape == (s, 768)
    assert builder.emit("reshape", x, shape=(-1, 64)).tensor.shape == (12 * s, 64)


def test_slice_of_a_symbolic_extent_keeps_its_bounds(operators: Any) -> None:
    s = symbol("s0", lower=4, upper=100)
    builder = GraphBuilder(operators)
    x = builder.input(TensorType(dtypes.f32, (s,)))
    assert builder.emit("slice", x, starts=(1,), stops=(None,)).tensor.shape == (s - 1,)
    assert builder.emit("slice", x, starts=(-3,), stops=(-1,)).tensor.shape == (2,)
    assert builder.emit("slice", x, starts=(0,), stops=(4,)).tensor.shape == (4,)
    half = floordiv(s + 1, 2)
    rest = builder.emit("slice", x, starts=(half,), stops=(s,))
    assert rest.tensor.shape == (s - half,)
    assert builder.emit("slice", rest, starts=(0,), stops=(1,)).tensor.shape == (1,)


@pytest.mark.parametrize(
    ("name", "shape", "attrs", "message"),
    (
        ("reshape", (4, 6), {"shape": (5, 5)}, r"cannot turn shape \[4, 6\] \(24 elements\)"),
        ("reshape", (4, 6), {"shape": (-1, -1)}, "-1 stands twice"),
        ("transpose", (4, 6), {"perm": (0, 0)}, "is not an order of 2 axes"),
        ("expand", (4, 6), {"shape": (5, 6)}, "extents 5 and 4 differ"),
        ("select", (4, 6), {"axis": 0, "index": 4}, "position 4 does not exist on an axis of extent 4"),
        ("select", (4, 6), {"axis": 0, "index": -5}, "position -5 does not exist"),
        ("slice", (4,), {"starts": (0, 0), "stops": (1, 1)}, "one start, stop and step an axis"),
        ("unfold", (4,), {"axis": 0, "size": 5, "step": 1}, "windows of 5 every 1 do not fit"),
        ("squeeze", (4,), {"axes": (3,)}, "axis 3 does not exist in a tensor with 1 axes"),
        ("as_strided", (9,), {"shape": (2, 2), "strides": (1, 2), "offset": -1}, "takes elements -1 to 2 of a tensor"),
        ("as_strided", (9,), {"shape": (2, 2), "strides": (1, 8), "offset": 0}, "0 to 9 of a tensor that has 9"),
    ),
)
def test_impossible_view_is_refused_by_name(
    name: str, shape: tuple[int, ...], attrs: dict[str, Any], message: str, apply: Any, make: Any
) -> None:
    with pytest.raises(ShapeError, match=message):
        apply(name, make(shape), **attrs)

"""The shape of imported graphs: few nodes, the ones that schedules know, no view that changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hidet.torch.composed import corrected
from hidet.torch.decompositions import decompositions
from hidet.torch.imported import ImportedGraph
from hidet.torch.mapping import table

Import = Callable[..., ImportedGraph]


def names(imported: ImportedGraph) -> list[str]:
    return [node.op.name for node in imported.graph.nodes]


def test_a_linear_layer_on_a_batch_of_rows_is_one_node(import_function: Import) -> None:
    x, weight, bias = torch.randn(2, 5, 8), torch.randn(3, 8), torch.randn(3)
    imported = import_function(F.linear, x, weight, bias)
    assert names(imported) == ["linear"]
    assert imported.graph.nodes[0].inputs[1] is imported.graph.inputs[1]


def test_a_weight_stored_by_columns_is_read_as_it_is(import_function: Import) -> None:
    x, weight, bias = torch.randn(5, 8), torch.randn(8, 3), torch.randn(3)
    imported = import_function(lambda x, w, b: torch.addmm(b, x, w), x, weight, bias)
    assert names(imported) == ["matmul", "add"]


def test_products_of_heads_keep_their_axes(import_function: Import) -> None:
    q, k = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 6, 8)
    imported = import_function(lambda q, k: q @ k.transpose(-2, -1), q, k)
    assert names(imported) == ["matmul"]
    assert imported.graph.nodes[0].attrs["trans_b"] is True


def test_splitting_heads_costs_one_reshape_and_one_transpose(import_function: Import) -> None:
    def heads(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weight).view(2, 5, 4, 2).transpose(1, 2).contiguous()

    imported = import_function(lambda x, w: heads(x, w) + 1, torch.randn(2, 5, 8), torch.randn(8, 8))
    assert names(imported) == ["linear", "reshape", "transpose", "add"]


def test_views_that_change_nothing_are_no_nodes(import_function: Import) -> None:
    imported = import_function(
        lambda x: x.view(4, 6).expand(4, 6).t().t()[:].contiguous().clone() + 1, torch.randn(4, 6)
    )
    assert names(imported) == ["add"]


def test_statistics_of_a_norm_that_nobody_reads_are_not_computed(import_function: Import) -> None:
    assert names(import_function(lambda x: F.layer_norm(x, (6,)), torch.randn(4, 6))) == ["layer_norm"]


def test_positions_of_a_maximum_that_nobody_reads_are_not_computed(import_function: Import) -> None:
    assert names(import_function(lambda x: F.max_pool2d(x, 2), torch.randn(1, 2, 4, 4))) == ["max_pool"]


def test_work_that_nobody_reads_is_dropped_with_its_inputs(import_function: Import) -> None:
    imported = import_function(lambda x, y: (x * 2, (y + 1).sum())[0], torch.randn(3), torch.randn(4))
    assert names(imported) == ["mul"]
    assert imported.inputs == (0,)


def test_nodes_carry_their_place_in_the_model(import_function: Import) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.first(x)
            return result

    program = torch.export.export(Model(), (torch.randn(2, 4),), strict=False)
    from hidet.torch.fx_nodes import location

    (node,) = [node for node in program.graph.nodes if node.op == "call_function"]
    loc = location(node)
    assert loc is not None
    assert loc.name == "first"
    assert loc.file is not None
    assert loc.line is not None


def test_every_decomposition_leads_away_from_what_core_has() -> None:
    """But for operators that are called with other arguments, and stay."""
    assert {str(target) for target in decompositions()} & set(table()) <= set(map(str, corrected()))


# Core aten operators without a core operator: their results have sizes that depend on data, or they are algorithms that
# no model of the zoo uses. They run in torch.
RUN_IN_TORCH = {
    "aten._fft_c2r.default",
    "aten._fft_r2c.default",
    "aten.randperm.default",
    "aten._native_batch_norm_legit.default",
}
# Questions about sizes and layouts, which the importer answers from torch's inference, and numbers that it reads.
ANSWERED = {
    "aten._local_scalar_dense.default",
    "aten.sym_is_contiguous.default",
    "aten.sym_numel.default",
    "aten.sym_size.int",
} | {
    "aten.sym_storage_offset.default",
    "aten.sym_stride.int",
}


def _core_overloads() -> list[str]:
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if namespace != "aten" or overload.endswith("out"):
            continue
        packet = getattr(torch.ops.aten, base)
        operator = getattr(packet, overload or "default")
        # What is made of other operators never gets as far as a graph.
        is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
        if torch.Tag.core in operator.tags and not operator._schema.is_mutable and not is_composite:
            found.append(str(operator))
    return found


def test_every_core_aten_operator_is_mapped_decomposed_or_known_to_run_in_torch() -> None:
    known = set(table()) | {str(target) for target in decompositions()} | RUN_IN_TORCH | ANSWERED
    assert sorted(set(_core_overloads()) - known) == []


@pytest.mark.parametrize("name", sorted(RUN_IN_TORCH))
def test_nothing_that_runs_in_torch_is_mapped_meanwhile(name: str) -> None:
    assert name not in table()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.int32, torch.int64),
        (torch.float16, torch.bfloat16),
        (torch.bool, torch.int8),
        (torch.int64, torch.float32),
        (torch.uint8, torch.int8),
    ],
)
@pytest.mark.parametrize("ranks", [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_types_promote_as_in_torch(left: torch.dtype, right: torch.dtype, ranks: tuple[int, int]) -> None:
    from hidet.graph import GraphBuilder, TensorType
    from hidet.torch.emitter import promote_operands
    from hidet.torch.tensors import dtype_of

    a, b = torch.ones((2,) * ranks[0], dtype=left), torch.ones((2,) * ranks[1], dtype=right)
    builder = GraphBuilder({})
    values = [builder.input(TensorType(dtype_of(t.dtype), tuple(t.shape))) for t in (a, b)]
    assert promote_operands(*values) == dtype_of(torch.result_type(a, b))
    for number in (True, 3, 2.5):
        assert promote_operands(values[0], number) == dtype_of(torch.result_type(a, number))


def test_random_operators_take_seed_and_offset_from_the_caller(import_function: Import) -> None:
    def noisy(x: torch.Tensor) -> Any:
        return torch.rand_like(x) + torch.randn(3, 4) + F.dropout(x)

    imported = import_function(noisy, torch.randn(3, 4))
    assert imported.random_inputs == 2
    streams = [node.attrs["stream"] for node in imported.graph.nodes if "stream" in node.attrs]
    assert len(streams) == len(set(streams)) == 3

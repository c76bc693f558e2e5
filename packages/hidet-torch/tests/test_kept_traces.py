"""Graphs of dynamo that were traced before: what was made of them comes out of the cache."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hidet
import hidet.torch
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.torch import compat, compat_state, kept_traces, running
from hidet.torch.imported import ImportedGraph, OutputPlan, Region


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and no plug-in to which another test may have given what keys cannot tell."""
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin,hidet.torch._plugin")


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each graph that AOTAutograd traces."""
    found: list[int] = []
    run = compat.run_aot

    def counted(*args: Any, **kwargs: Any) -> Any:
        found.append(len(found))
        return run(*args, **kwargs)

    monkeypatch.setattr(compat, "run_aot", counted)
    return found


class Block(nn.Module):
    """Attention, a norm, and layers that share nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = self.inner(self.norm(x)).view(2, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        y = self.outer(y.transpose(1, 2).reshape(2, 8, 16)) + x
        return nn.functional.gelu(y), y.mean(dim=-1)


def block() -> tuple[Block, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return Block().eval(), (torch.randn(2, 8, 16), torch.rand(2, 8) > 0.2)


def compiled_anew(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="hidet", options=options)


def test_a_model_that_was_compiled_before_is_not_traced_again(traces: list[int]) -> None:
    model, inputs = block()
    with torch.no_grad():
        expected = model(*inputs)
        for _ in range(2):
            with hidet.torch.collect_reports() as reports:
                results = compiled_anew(model)(*inputs)
            for result, wanted in zip(results, expected, strict=True):
                torch.testing.assert_close(result, wanted)
    assert len(traces) == 1
    assert [report.is_kept for report in reports] == [True]


WARM = """
import sys

import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU()).eval()
x = torch.randn(4, 8)
with torch.no_grad():
    torch.testing.assert_close(torch.compile(model, backend="hidet")(x), model(x))
print(*sys.modules)
"""

COMPILER = frozenset(
    f"hidet.{name}"
    for name in (
        *("compiler.binaries", "compiler.lowering", "compiler.steps", "fusion", "graph.parser", "ir.structural"),
        *("passes.manager", "schedule.select", "frontend"),
        *("torch.aot", "torch.decompositions", "torch.emitter", "torch.importer", "torch.mapping"),
    )
)
"""Parts of the compiler that no graph needs which was compiled before."""


def test_a_process_that_compiles_nothing_new_loads_no_compiler() -> None:
    loaded = []
    for _ in range(2):
        finished = subprocess.run([sys.executable, "-c", WARM], capture_output=True, text=True, check=True)
        loaded.append(set(finished.stdout.split()))
    assert loaded[0] >= COMPILER
    assert not loaded[1] & COMPILER
    assert not {name for name in loaded[1] - loaded[0] if name.startswith("hidet.")}


def test_a_graph_that_is_no_longer_kept_is_compiled_from_its_trace(
    traces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = block()
    with torch.no_grad():
        compiled_anew(model)(*inputs)
        monkeypatch.setattr(running, "recall_graph", lambda *_: None)
        torch.testing.assert_close(compiled_anew(model)(*inputs), model(*inputs))
    assert len(traces) == 1


def test_a_process_without_anything_to_show_reads_no_kept_graph(
    traces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    parse = kept_traces._read_graph
    monkeypatch.setattr(kept_traces, "_read_graph", lambda text, ctx: (read.append(text), parse(text, ctx))[1])
    # pytest takes the messages of torch's structured trace, for which graphs are lowered.
    monkeypatch.setattr(compat, "trace_artifact", lambda *_: None)
    model, inputs = block()
    with torch.no_grad():
        compiled_anew(model)(*inputs)
        read.clear()
        compiled = compiled_anew(model)
        compiled(*inputs)
        assert not read
        (part,) = hidet.compiler.graphs.compiled_parts(compiled)
    assert part.imported.graph.nodes
    assert len(read) == 1
    assert part.imported.graph.nodes


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_model_on_a_gpu_that_was_compiled_before_is_not_traced_again(
    mode: str, traces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HIDET_PLUGINS")
    model, inputs = block()
    model, given = model.cuda(), [value.cuda() for value in inputs]
    with torch.no_grad():
        for _ in range(2):
            compiled = compiled_anew(model, mode=mode)
            for factor in (1.0, 0.5, 2.0):
                model.outer.weight.mul_(factor)
                again = (given[0] * factor, given[1])
                for result, wanted in zip(compiled(*again), model(*again), strict=True):
                    torch.testing.assert_close(result, wanted)
    assert len(traces) == 1


@pytest.mark.gpu
def test_arguments_on_several_devices_are_traced_each_time(traces: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIDET_PLUGINS")
    x, number = torch.randn(4, device="cuda"), torch.tensor(2.0)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled_anew(lambda x, number: torch.relu(x) * number)(x, number), x.relu() * 2)
    assert len(traces) == 2


def test_weights_of_the_second_model_are_its_own(traces: list[int]) -> None:
    model, inputs = block()
    with torch.no_grad():
        compiled_anew(model)(*inputs)
        other = copy.deepcopy(model)
        for parameter in other.parameters():
            parameter.add_(0.5)
        compiled = compiled_anew(other)
        torch.testing.assert_close(compiled(*inputs)[0], other(*inputs)[0])
        other.outer.weight.data = torch.randn(16, 16) / 16
        torch.testing.assert_close(compiled(*inputs)[0], other(*inputs)[0])
        other.norm.bias.data.numpy()[:] = 3
        torch.testing.assert_close(compiled(*inputs)[0], other(*inputs)[0])
    assert len(traces) == 1


def test_a_forward_that_waits_for_its_backward_is_kept_and_gives_gradients(traces: list[int]) -> None:
    model, inputs = block()
    compiled_anew(model)(*inputs)
    assert len(traces) == 1
    compiled = compiled_anew(model)
    result = compiled(*inputs)[0]
    assert len(traces) == 1
    result.sum().backward()
    found = model.outer.weight.grad
    model.zero_grad()
    model(*inputs)[0].sum().backward()
    torch.testing.assert_close(found, model.outer.weight.grad)


def test_what_is_called_with_other_arguments_is_traced(traces: list[int]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2

    x = torch.randn(4, 6)
    with torch.no_grad():
        for given in (x, x, torch.randn(6, 4).t(), x.double(), torch.randn(4, 5), torch.zeros(4, 12)[:, :6]):
            torch.testing.assert_close(compiled_anew(function)(given), function(given))
    assert len(traces) == 5


@pytest.mark.parametrize("number", [2, 2.0, -0.0, 0.0, True])
def test_numbers_in_a_graph_are_told_apart(number: float, traces: list[int]) -> None:
    x = torch.tensor([1.0, -1.0])
    with torch.no_grad():
        for factor in (3, number):
            result = compiled_anew(lambda x, factor=factor: torch.relu(x) * factor)(x)
            assert torch.equal(result, torch.relu(x) * factor)
            assert torch.equal(result.signbit(), (torch.relu(x) * factor).signbit())
    assert len(traces) == 2


def test_settings_of_torch_are_told_apart(traces: list[int]) -> None:
    x = torch.randn(4, 4)
    with torch.no_grad():
        compiled_anew(torch.mm, threads=1)(x, x + 1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert compiled_anew(torch.mm, threads=1)(x, x + 1).dtype is torch.bfloat16
        compiled_anew(torch.mm, threads=2)(x, x + 1)
        compiled_anew(torch.mm, threads=1)(x, x + 1)
    assert len(traces) == 3


def _overwrites(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1) * 2


def _returns_its_argument(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, x * 2


def _returns_a_view_of_its_argument(x: torch.Tensor) -> torch.Tensor:
    return (x.t() + 0) if x.dim() > 2 else x.t()


def _returns_a_result_twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.relu(x)
    return y, y.view(-1)


@pytest.mark.parametrize(
    ("function", "times"),
    [
        (_overwrites, 2),
        (_returns_a_view_of_its_argument, 2),
        # Dynamo returns the argument by itself, and results that share memory are views that the runner makes.
        (_returns_its_argument, 1),
        (_returns_a_result_twice, 1),
    ],
)
def test_what_needs_more_than_a_call_is_traced_each_time(
    function: Callable[..., Any], times: int, traces: list[int]
) -> None:
    x = torch.randn(4, 4)
    with torch.no_grad():
        for _ in range(2):
            given, wanted = x.clone(), x.clone()
            results, expected = _tuple(compiled_anew(function)(given)), _tuple(function(wanted))
            for result, right in zip(results, expected, strict=True):
                torch.testing.assert_close(result, right)
            torch.testing.assert_close(given, wanted)
            assert _sharing([given, *results]) == _sharing([wanted, *expected])
    assert len(traces) == times


def _sharing(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor the number of the first one that lies in the same storage."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [places.index(place) for place in places]


def _tuple(results: Any) -> tuple[torch.Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def test_sizes_that_depend_on_data_are_traced_each_time(traces: list[int]) -> None:
    x = torch.randn(4, 4)
    with torch.no_grad(), compat.tracing_everything():
        for _ in range(2):
            assert torch.equal(compiled_anew(lambda x: x[x > 0] * 2)(x), x[x > 0] * 2)
    assert len(traces) == 2


def test_arguments_that_share_memory_are_traced_each_time(traces: list[int]) -> None:
    whole = torch.randn(8)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled_anew(torch.add)(whole[:4], whole[4:]), whole[:4] + whole[4:])
    assert len(traces) == 2


def test_a_function_put_into_torch_by_a_user_is_not_taken_for_torchs(
    traces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(4)
    with torch.no_grad():
        assert torch.equal(compiled_anew(lambda x: torch.relu(x))(x), torch.relu(x))
        monkeypatch.setattr(torch, "relu", lambda x: x * 3)
        assert torch.equal(compiled_anew(lambda x: torch.relu(x))(x), x * 3)


def test_random_numbers_go_on_as_in_the_first_process(traces: list[int]) -> None:
    found = []
    with torch.no_grad():
        for _ in range(2):
            compiled = compiled_anew(lambda x: nn.functional.dropout(x, 0.5, training=True))
            torch.manual_seed(3)
            found.append(torch.stack([compiled(torch.ones(64)) for _ in range(2)]))
    assert torch.equal(*found)
    assert not torch.equal(found[0][0], found[0][1])


def test_who_turns_the_cache_off_has_it_traced(traces: list[int]) -> None:
    with torch.no_grad():
        for _ in range(2):
            compiled_anew(torch.relu, cache=False)(torch.randn(4))
    assert len(traces) == 2


def test_a_kept_trace_has_its_graph_for_who_asks(traces: list[int]) -> None:
    model, inputs = block()
    with torch.no_grad():
        compiled_anew(model)(*inputs)
        compiled = compiled_anew(model)
        compiled(*inputs)
    (part,) = hidet.compiler.graphs.compiled_parts(compiled)
    assert {node.op.name for node in part.imported.graph.nodes} >= {"layer_norm", "gelu"}
    assert compile_graph(part.imported.graph, part.imported.ctx).report().is_kept


def test_fields_without_a_text_are_not_lost(traces: list[int]) -> None:
    region, part = Region((2, 3), (1, 2), 4), Region((6,), (1,), 0)
    for plan in (
        OutputPlan("result", 1, region, (part, region)),
        OutputPlan("result", 0),
        OutputPlan("fixed", fixed=True),
    ):
        assert kept_traces._decode_plan(kept_traces._encode_plan(plan)) == plan
    with torch.no_grad():
        compiled = compiled_anew(torch.relu)
        compiled(torch.randn(4))
    (part_of,) = hidet.compiler.graphs.compiled_parts(torch.compile(nn.ReLU(), backend="hidet"), (torch.randn(4),))
    ctx = make_context("cpu")
    imported = ImportedGraph(part_of.imported.graph, (0,), 1, (), 0, (), (), torch.device("cpu"))
    key = kept_traces.TraceKey(kept_traces.CacheKey.of(name="a trace"), {})
    assert kept_traces.keep_trace(key, imported, ctx)
    assert not kept_traces.keep_trace(key, replace(imported, complex_inputs=(0,)), ctx)
    assert not kept_traces.keep_trace(key, replace(imported, outputs=(OutputPlan("argument", 0),)), ctx)


def test_overwriting_an_argument_counts_as_a_version_of_it(traces: list[int]) -> None:
    x = torch.randn(4)
    with torch.no_grad():
        for _ in range(2):
            version = x._version
            compiled_anew(_overwrites)(x)
            assert x._version > version


def test_an_operator_that_torch_runs_is_called_outside_of_autocast(traces: list[int]) -> None:
    x = torch.rand(3, 3) + 3 * torch.eye(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(x.float(), x) + 1

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            with pytest.warns(UserWarning, match="torch"):
                result = compiled_anew(function)(x)
            assert result.dtype is torch.float32
            torch.testing.assert_close(result, function(x))
    assert len(traces) == 2


def test_sizes_that_are_symbols_are_traced_each_time(traces: list[int]) -> None:
    with torch.no_grad():
        for size in (4, 5):
            torch._dynamo.reset()
            compiled = torch.compile(torch.relu, backend="hidet", dynamic=True)
            x = torch.randn(size, 3)
            assert torch.equal(compiled(x), torch.relu(x))
    assert len(traces) == 2


def test_sub_graphs_are_traced_each_time(traces: list[int]) -> None:
    def function(x: torch.Tensor, factor: float) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * factor, lambda x: x - factor, (x,))

    x = torch.ones(4)
    with torch.no_grad():
        for factor in (2.0, 3.0):
            assert torch.equal(compiled_anew(function)(x, factor), x * factor)
    assert len(traces) == 2


def test_operators_that_users_define_are_traced_each_time(traces: list[int]) -> None:
    x = torch.ones(4)
    with torch.no_grad():
        for factor in (2.0, 3.0):
            with torch.library._scoped_library("kept_traces", "FRAGMENT") as library:
                library.define("scaled(Tensor x) -> Tensor")
                library.impl("scaled", lambda x, factor=factor: x * factor, "CompositeImplicitAutograd")
                result = compiled_anew(lambda x: torch.ops.kept_traces.scaled(x) + 1)(x)
            assert torch.equal(result, x * factor + 1)
    assert len(traces) == 2


@pytest.mark.filterwarnings("ignore:Warning only once")
def test_operators_that_users_implement_anew_are_traced_each_time(traces: list[int]) -> None:
    x = torch.randn(4)
    with torch.no_grad():
        compiled_anew(torch.square)(x)
        with torch.library._scoped_library("aten", "IMPL") as library:
            library.impl("square", lambda x: x * 3, "CompositeImplicitAutograd")
            assert compat_state.trace_state(torch.device("cpu")) is None
            compiled_anew(torch.square)(x)
    assert len(traces) == 2


def test_traces_are_kept_where_vmap_has_been_used() -> None:
    """The first use gives some operators implementations for it, which are torch's own."""
    torch.vmap(torch.square)(torch.ones(2, 3))
    assert compat_state.trace_state(torch.device("cpu")) is not None


def test_decompositions_of_users_leave_nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compat_state.trace_state(torch.device("cpu")) is not None
    rules = torch._decomp.global_decomposition_table["post_autograd"]
    monkeypatch.setitem(rules, torch.ops.aten.silu.default, lambda x: x * 3)
    assert compat_state.trace_state(torch.device("cpu")) is None


def test_methods_put_into_tensors_by_a_user_are_not_taken_for_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compat_state.method_text("view") == "view"
    monkeypatch.setattr(torch.Tensor, "view", lambda self, *shape: self, raising=False)
    assert compat_state.method_text("view") is None
    assert compat_state.method_text("no_such_method") is None


def test_operators_of_others_and_of_higher_order_have_no_name() -> None:
    assert compat_state.function_text(torch.ops.aten.relu.default) == "aten.relu.default"
    assert compat_state.function_text(torch.ops.aten.relu) is None
    assert compat_state.function_text(torch.ops.higher_order.cond) is None
    assert compat_state.function_text(lambda x: x) is None
    assert compat_state.function_text([]) is None


def _default_dtype() -> AbstractContextManager[object]:
    stack = ExitStack()
    stack.callback(torch.set_default_dtype, torch.get_default_dtype())
    torch.set_default_dtype(torch.float64)
    return stack


def _deterministic() -> AbstractContextManager[object]:
    stack = ExitStack()
    stack.callback(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
    torch.use_deterministic_algorithms(True)
    return stack


def _without_mkldnn() -> AbstractContextManager[object]:
    stack = ExitStack()
    stack.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
    torch._C._set_mkldnn_enabled(False)
    return stack


def _another_torch() -> AbstractContextManager[object]:
    patch = pytest.MonkeyPatch()
    patch.setattr(torch.version, "git_version", "another")
    stack = ExitStack()
    stack.callback(patch.undo)
    return stack


@pytest.mark.parametrize(
    "setting",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.float16),
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        lambda: torch._functorch.config.patch(functionalize_rng_ops=True),
        *(_default_dtype, _deterministic, _without_mkldnn, _another_torch),
    ],
)
def test_keys_tell_what_torch_is_set_to(setting: Callable[[], AbstractContextManager[object]]) -> None:
    device = torch.device("cpu")
    before = compat_state.trace_state(device)
    with setting():
        assert compat_state.trace_state(device) not in (before, None)
    assert compat_state.trace_state(device) == before


def test_modes_leave_nothing_kept() -> None:
    with torch.device("cpu"):  # a mode that functions of torch are passed through
        assert compat_state.trace_state(torch.device("cpu")) is None


def test_precision_of_products_that_newer_settings_give_is_told_apart(traces: list[int]) -> None:
    x, before = torch.randn(4, 4), torch.backends.cuda.matmul.fp32_precision
    try:
        with torch.no_grad():
            for precision in ("tf32", "ieee", "tf32"):
                torch.backends.cuda.matmul.fp32_precision = precision
                torch.testing.assert_close(compiled_anew(torch.mm)(x, x + 1), x @ (x + 1))
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert len(traces) == 2


class _Tagged(torch.Tensor):
    """A subclass of which only its Python code tells what operators give."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


def test_keys_tell_all_about_arguments_but_their_elements() -> None:
    x = torch.zeros(4, 4)
    texts = [
        compat_state.argument_text(value, is_static)
        for value, is_static in (
            *((x, False), (x, True), (x.t()[:2].t(), False), (x[1:], False), (x.double(), False), (x[None], False)),
            *((nn.Parameter(x), False), (nn.Parameter(x, requires_grad=False), False), (x.to("meta"), False)),
            (torch.zeros(4, 4, dtype=torch.complex64).conj(), False),
            (torch.zeros(4, 4, dtype=torch.complex64), False),
        )
    ]
    assert None not in texts
    assert len(set(texts)) == len(texts)
    assert compat_state.argument_text(torch.ones(4, 4), False) == texts[0]
    assert compat_state.argument_text(x.as_subclass(_Tagged), False) is None
    assert compat_state.argument_text(x.to_sparse(), False) is None


def test_results_have_the_strides_and_the_mode_of_eager_ones(traces: list[int]) -> None:
    layer = nn.Conv2d(3, 4, 3).eval().to(memory_format=torch.channels_last)
    x = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    for region in (torch.no_grad, torch.inference_mode):
        for _ in range(2):
            with region():
                expected, result = layer(x), compiled_anew(layer)(x)
            torch.testing.assert_close(result, expected)
            assert result.stride() == expected.stride()
            assert result.is_inference() == expected.is_inference()
            assert not result.requires_grad
    # What the graph is called in is told at each call, so that both may be called from one trace.
    assert len(traces) <= 2


def test_graphs_that_record_gradients_are_traced_each_time(traces: list[int]) -> None:
    x = torch.randn(4, requires_grad=True)
    for _ in range(2):
        (found,) = torch.autograd.grad(compiled_anew(lambda x: torch.sin(x) * 2)(x).sum(), x)
        torch.testing.assert_close(found, 2 * torch.cos(x))
    assert len(traces) == 2
    y = x.detach()
    result = compiled_anew(lambda x: torch.sin(x) * 2)(y)
    assert not result.requires_grad


def test_seeds_are_drawn_with_gradients_on_as_well(traces: list[int]) -> None:
    for _ in range(2):
        result = compiled_anew(lambda x: nn.functional.dropout(x, 0.5, training=True) * 2)(torch.ones(64))
        assert not result.requires_grad
        assert set(result.tolist()) == {0.0, 4.0}
    assert len(traces) == 1


def test_another_version_of_hidet_traces_anew(traces: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        compiled_anew(torch.relu)(torch.randn(4))
        monkeypatch.setattr("hidet.compiler.kept_graphs.code_hash", lambda module: f"another {module}")
        compiled_anew(torch.relu)(torch.randn(4))
    assert len(traces) == 2

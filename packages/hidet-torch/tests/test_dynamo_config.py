"""Settings as scripts of earlier versions make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import hidet
from hidet.errors import OptionError
from hidet.torch import dynamo_config
from hidet.torch.config import settings_by_name
from hidet.torch.correctness import correctness_report
from hidet.torch.settings import torch_options


@pytest.fixture(autouse=True)
def nothing_set() -> Iterator[None]:
    dynamo_config.reset()
    yield
    dynamo_config.reset()


def test_nothing_is_set_at_first() -> None:
    assert torch_options(None, None).mode == "default"
    assert torch_options(None, None).tf32_products is False


@pytest.mark.parametrize(
    ("space", "graphs", "mode"),
    [
        (0, None, "default"),
        (0, True, "reduce-overhead"),
        (0, False, "max-autotune-no-cudagraphs"),
        (2, None, "max-autotune"),
        (1, True, "max-autotune"),
        (2, False, "max-autotune-no-cudagraphs"),
    ],
)
def test_search_space_and_cuda_graphs_are_the_mode(space: int, graphs: bool | None, mode: str) -> None:
    """user-walk.md bug 7: that nothing is measured was not said."""
    dynamo_config.search_space(space)
    if graphs is not None:
        dynamo_config.use_cuda_graph(graphs)
    assert (torch_options(None, None).mode, torch_options(None, None).search_level) == (mode, space)
    assert torch_options("reduce-overhead", None).mode == "reduce-overhead", "what torch.compile is given comes first"
    assert torch_options(None, {"mode": "default"}).mode == "default"


def test_tensor_cores_multiply_singles_where_they_are_asked_for() -> None:
    for flag in (True, False):
        options = torch_options(None, hidet.torch.dynamo_config.use_tensor_core(flag) and None)
        assert (options.tf32_products, options.tf32_convolutions) == (flag, flag)
    assert torch_options(None, {"tf32_products": True}).tf32_products is True


def test_the_model_of_the_introduction_compiles(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    dynamo_config.use_tensor_core(True)
    dynamo_config.search_space(1)
    dynamo_config.print_input_graph().dump_graph_ir(tmp_path)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="hidet")(x), model(x), rtol=1e-4, atol=1e-5)
    assert "placeholder" in capsys.readouterr().out
    assert any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("name", "given", "options"),
    [
        ("use_fp16", True, {"compat.precision": "float16"}),
        ("use_fp16_reduction", True, {"cuda.fp16_accumulation": True}),
        ("use_attention", False, {"compat.attention": False}),
        ("parallel_k", "disabled", {"gpu.split_k": 1}),
        ("parallel_k", 4, {"gpu.split_k": 4}),
        ("parallel_k", "default", {}),
    ],
)
def test_settings_are_options_of_wheels(name: str, given: Any, options: dict[str, Any]) -> None:
    assert torch_options(None, None).plugin_options == {}
    assert getattr(dynamo_config, name)(given) is dynamo_config
    assert torch_options(None, None).plugin_options == options
    with settings_by_name({name: given, "threads": 2, "gpu.split_k": 8}) as kept:
        assert kept == {"threads": 2, "gpu.split_k": 8}
        assert torch_options(None, kept).plugin_options == {**options, "gpu.split_k": 8}


def test_what_needs_another_wheel_says_so() -> None:
    dynamo_config.use_fp16()
    with hidet.plugins.without("compat"), pytest.raises(OptionError, match=r"option compat\.precision") as refused:
        torch_options(None, None)
    assert refused.value.hint == "pip install hidet-compat"


def test_weights_that_may_be_taken_are_baked_in() -> None:
    assert torch_options(None, None).freeze is False
    assert dynamo_config.steal_weights() is dynamo_config
    assert torch_options(None, None).freeze is True


def test_splits_are_searched_for_by_tuning() -> None:
    dynamo_config.parallel_k("search")
    assert torch_options(None, None).search_level == 1


@pytest.mark.parametrize("strategy", ["often", 0, True, 1.5])
def test_an_unknown_way_to_split_sums_is_refused(strategy: Any) -> None:
    with pytest.raises(OptionError, match="parallel_k is 'default', 'search', 'disabled' or a number"):
        dynamo_config.parallel_k(strategy)


def test_options_of_torch_compile_may_be_named_as_settings_are() -> None:
    with settings_by_name({"use_fp16": True, "cache_operator": False, "steal_weights": True, 1: 2}) as kept:  # type: ignore[dict-item]
        assert kept == {1: 2}
        assert torch_options(None, {}).plugin_options == {"compat.precision": "float16"}
        assert torch_options(None, {}).freeze is True
        assert hidet.option.get_cache_operator() is False
    assert torch_options(None, {}).plugin_options == {}
    assert hidet.option.get_cache_operator() is True


def test_a_model_computes_in_halves_where_options_of_torch_compile_say_so() -> None:
    model = torch.nn.Linear(64, 64).eval()
    x = torch.randn(8, 64)
    with torch.no_grad():
        half = torch.compile(model, backend="hidet", options={"use_fp16": True, "parallel_k": "disabled"})(x)
        assert half.dtype == torch.float32
        assert torch.equal(half, half.half().float()), "results are halves"
        torch.testing.assert_close(half, model(x), rtol=1e-2, atol=1e-2)


def test_gradients_are_computed_as_without_halves() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh())
    x, upstream = torch.randn(8, 16), torch.randn(8, 16)
    model(x).backward(upstream)
    expected = model[0].weight.grad
    model.zero_grad()
    torch.compile(model, backend="hidet", options={"use_fp16": True})(x).backward(upstream)
    torch.testing.assert_close(model[0].weight.grad, expected, rtol=1e-5, atol=1e-5)


class Residual(torch.nn.Module):
    """Operators that write in place after others have read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.conv(x))
        y += x
        return torch.softmax(self.relu(y).flatten(1), 1)


def test_the_report_lists_every_operators_error_at_the_first_call(capsys: pytest.CaptureFixture[str]) -> None:
    dynamo_config.correctness_report()
    model, x = Residual().eval(), torch.randn(2, 3, 6, 6)
    compiled = torch.compile(model, backend="hidet")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-6)
        shown = capsys.readouterr().out
        compiled(x)
    assert capsys.readouterr().out == ""
    head, _, *lines, worst = shown.splitlines()
    assert head.split() == ["kind", "operator", "dtype", "error", "attention"]
    assert [line.split("float32")[0].split(maxsplit=1)[1].strip() for line in lines] == [
        "placeholder",
        "call_module    Conv2d(3, 3, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))",
        "call_module    ReLU(inplace=True)",
        "call_function  operator.iadd",
        "call_module    ReLU(inplace=True)",
        "call_method    torch.Tensor.flatten",
        "call_function  torch.softmax",
        "output",
    ]
    assert all(float(line.split()[-1]) < 1e-5 for line in lines), "and nothing asks for attention"
    assert worst.startswith("worst: ") and len(worst.split(", ")) <= 5


def test_an_operator_that_is_wrong_stands_out() -> None:
    gm = torch.fx.symbolic_trace(lambda x: torch.tanh(torch.neg(x)))
    x = torch.tensor([1.0, 3.0])
    torch.fx.passes.shape_prop.ShapeProp(gm).propagate(x)
    for node in gm.graph.nodes:
        node.meta["val"] = x

    def slightly_wrong(observed: torch.fx.GraphModule, arguments: object) -> object:
        return lambda *given: [*observed(*given)[:2], observed(*given)[2] + 0.5]

    *_, negated, last, output, worst = correctness_report(gm, [x], slightly_wrong).splitlines()
    error = f"{0.5 / (torch.tanh(x).min() + 1):.1e}"
    assert negated.endswith("0.0e+00")
    assert last.split()[-2:] == [error, "<------"]
    assert output.split()[1:] == ["output", "float32", error, "<------"]
    assert worst == f"worst: 2 ({error})"


@pytest.mark.gpu
@pytest.mark.parametrize("rounds", [True, False])
def test_a_report_explains_what_rounding_to_tf32_does(rounds: bool, capsys: pytest.CaptureFixture[str]) -> None:
    dynamo_config.correctness_report().use_tensor_core(rounds)
    model, x = Residual().eval().cuda(), torch.randn(2, 3, 6, 6, device="cuda")
    with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=rounds):
        torch.compile(model, backend="hidet")(x)
    assert "<------" not in capsys.readouterr().out


def test_a_space_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="search_space is 0, 1 or 2, got 3"):
        dynamo_config.search_space(3)

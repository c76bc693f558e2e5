"""Settings as scripts of earlier versions make them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

import hidet
from hidet.errors import HidetWarning, OptionError
from hidet.torch import dynamo_config
from hidet.torch.backend import torch_options
from hidet.torch.correctness import correctness_report


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
    ("name", "silent", "given"),
    [
        ("use_fp16", False, True),
        ("use_fp16_reduction", False, True),
        ("steal_weights", False, True),
        ("use_attention", True, False),
        ("parallel_k", "default", "search"),
    ],
)
def test_what_cannot_be_changed_is_accepted_with_what_to_do(name: str, silent: object, given: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(dynamo_config, name)(silent) is dynamo_config
    with pytest.warns(HidetWarning, match=rf"dynamo_config\.{name}\({given!r}\) is accepted and changes") as told:
        assert getattr(dynamo_config, name)(given) is dynamo_config
    assert told[0].message.hint and told[0].filename == __file__


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
    rows = [line.split() for line in shown.splitlines()[2:]]
    assert [row[2].partition("(")[0] for row in rows if row[1] != "placeholder"] == [
        *("conv2d", "relu", "iadd", "relu", "flatten", "softmax")
    ]
    assert all(float(row[-1]) < 1e-5 for row in rows)


def test_an_operator_that_is_wrong_stands_out() -> None:
    gm = torch.fx.symbolic_trace(lambda x: torch.tanh(torch.neg(x)))
    x = torch.tensor([1.0, 3.0])
    torch.fx.passes.shape_prop.ShapeProp(gm).propagate(x)
    for node in gm.graph.nodes:
        node.meta["val"] = x

    def slightly_wrong(observed: torch.fx.GraphModule, arguments: object) -> object:
        return lambda *given: [*observed(*given)[:2], observed(*given)[2] + 0.5]

    *_, negated, last = correctness_report(gm, [x], slightly_wrong).splitlines()
    assert negated.endswith("0.0e+00")
    assert last.endswith(f"{0.5 / (torch.tanh(x).min() + 1):.1e}")


def test_a_space_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="search_space is 0, 1 or 2, got 3"):
        dynamo_config.search_space(3)

"""A plug-in maps its operator in torch and in ONNX: what was called, or unknown, is compiled."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import hidet
import hidet.onnx
import hidet.torch
from hidet.errors import PluginWarning, UnsupportedOp
from hidet.plugins.host import load_registry

PLUGIN = """
    from hidet.plugins import HandlerSpec

    HIDET_API = 1


    def hidet_operators():
        from hidet.compute.definition import Definition, Operand, compute, single
        from hidet.graph.operator import Attribute, OperatorSpec

        def define(x, *, beta):
            from hidet.ir import build

            def value(*at):
                return x[at] / (build.unary("exp", -x[at] * beta) + 1)

            return single((x,), compute("swish", x.shape, value))

        return [OperatorSpec(name="acme.swish", inputs=("x",), attributes=(Attribute("beta", 1.0),), define=define)]


    def hidet_handlers():
        here = "hidet_swish.handlers:"
        for operator in ("acme_swish.swish.default", "aten.atan2.default"):
            yield HandlerSpec(frontend="torch", operator=operator, load=here + "swish")
        yield HandlerSpec(frontend="torch", operator="acme_swish.split.default", load=here + "split")
        yield HandlerSpec(frontend="torch", operator="acme_swish.picky.default", load=here + "decline")
        yield HandlerSpec(frontend="torch", operator="acme_swish.broken.default", load=here + "fail")
        yield HandlerSpec(frontend="torch", operator="aten.huber_loss.default", load=here + "huber")
        replaced = "torch.aten.hardsigmoid.default"
        yield HandlerSpec(frontend="torch", operator=replaced[6:], load=here + "swish", replaces=replaced)

        yield HandlerSpec(frontend="onnx", operator="acme.ai.Swish", load=here + "swish")
        yield HandlerSpec(frontend="onnx", operator="acme.ai.Swish", since_version=3, load=here + "swish_by_input")
        yield HandlerSpec(frontend="onnx", operator="acme.ai.Broken", load=here + "fail")
        yield HandlerSpec(frontend="onnx", operator="acme.ai.Rows", load=here + "rows")
        yield HandlerSpec(frontend="onnx", operator="Mish", load=here + "swish")
        yield HandlerSpec(frontend="onnx", operator="Softsign", load=here + "swish", replaces="onnx.Softsign")
"""

HANDLERS = """
    from hidet.errors import UnsupportedOp


    def swish(e, x, beta=1.0):
        return e.emit("acme.swish", x, beta=beta)


    def swish_by_input(e, x, beta):
        return swish(e, x, e.number(beta, "beta"))


    def split(e, x):
        return swish(e, x), e.emit("neg", x) if e.is_read(1) else None


    def rows(e, x, shape):
        return e.reshape(x, e.dims(shape, "the shape"))


    def huber(e, x, y, reduction=1, delta=1.0):
        # Not what torch means by it, which shows that this is called.
        return e.emit("sub", x, y)


    def decline(e, x):
        raise UnsupportedOp("swishes of this kind")


    def fail(e, x):
        return x.colour
"""


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The plug-in, installed for all tests of this file: registries are kept for the life of the process."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "hidet_swish").mkdir()
    (folder / "hidet_swish" / "_plugin.py").write_text(textwrap.dedent(PLUGIN))
    (folder / "hidet_swish" / "handlers.py").write_text(textwrap.dedent(HANDLERS))
    plugins = ("hidet.cpu._plugin", "hidet.torch._plugin", "hidet.onnx._plugin", "hidet_swish._plugin")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("HIDET_PLUGINS", ",".join(plugins))
        patch.setenv("HIDET_STRICT_PLUGINS", "0")
        patch.setenv("HIDET_CACHE_DIR", str(folder / "cache"))
        yield


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Refused handlers are told at every import; the tests about them expect it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* refused: front-end", PluginWarning)
        yield


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


def swish(x: Any, beta: float = 1.0) -> Any:
    return x / (1 + np.exp(-beta * x))


# --- torch -----------------------------------------------------------------------------------------------------------


def _custom_operator(name: str, results: int = 1) -> Any:
    """An operator of torch.library that eager mode computes, and AOTAutograd knows by its shapes."""
    schema = "(Tensor x, float beta=1.0)" if name == "swish" else "(Tensor x)"
    library = torch.library.Library("acme_swish", "FRAGMENT")
    library.define(f"{name}{schema} -> {'Tensor' if results == 1 else '(Tensor, Tensor)'}")

    def compute(x: torch.Tensor, beta: float = 1.0) -> Any:
        result = x * torch.sigmoid(beta * x)
        return result if results == 1 else (result, -x)

    def shapes(x: torch.Tensor, beta: float = 1.0) -> Any:
        return torch.empty_like(x) if results == 1 else (torch.empty_like(x), torch.empty_like(x))

    library.impl(name, compute, "CPU")
    torch.library.register_fake(f"acme_swish::{name}", shapes, lib=library)
    return library


LIBRARIES = [_custom_operator(name) for name in ("swish", "picky", "broken")] + [_custom_operator("split", 2)]


def test_a_custom_operator_of_torch_is_compiled() -> None:
    x = torch.linspace(-3, 3, 24).reshape(4, 6)
    compiled = torch.compile(
        lambda x: torch.ops.acme_swish.swish(x + 1, 0.5) * 2, backend="hidet", options={"strict": True}
    )
    assert torch.allclose(compiled(x), 2 * (x + 1) * torch.sigmoid(0.5 * (x + 1)))


def test_a_custom_operator_takes_sizes_that_differ_between_calls() -> None:
    compiled = torch.compile(torch.ops.acme_swish.swish, backend="hidet", dynamic=True, options={"strict": True})
    for rows in (3, 5):
        x = torch.randn(rows, 2)
        assert torch.allclose(compiled(x), x * torch.sigmoid(x), atol=1e-6)


def test_an_operator_with_two_results_leaves_out_what_nobody_reads() -> None:
    x = torch.randn(5)
    with hidet.torch.collect_reports() as reports:
        compiled = torch.compile(lambda x: torch.ops.acme_swish.split(x)[0], backend="hidet", options={"strict": True})
        assert torch.allclose(compiled(x), x * torch.sigmoid(x))
    assert len(reports) == 1


def test_hidet_compile_takes_the_custom_operator() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.acme_swish.swish(x)

    x = torch.randn(3)
    assert torch.allclose(hidet.compile(Model(), (x,))(x), x * torch.sigmoid(x))


def test_an_operator_that_torch_would_take_apart_is_kept_whole() -> None:
    x, y = torch.randn(4), torch.randn(4)
    compiled = torch.compile(lambda x, y: torch.nn.functional.huber_loss(x, y, reduction="none"), backend="hidet")
    assert torch.equal(compiled(x, y), x - y)


def test_an_operator_of_the_front_end_is_replaced_where_the_plugin_says_so() -> None:
    x = torch.randn(8)
    compiled = torch.compile(torch.nn.functional.hardsigmoid, backend="hidet")
    assert torch.allclose(compiled(x), x * torch.sigmoid(x))


def test_a_handler_of_an_operator_of_the_front_end_is_refused() -> None:
    x, y = torch.randn(3), torch.randn(3)
    with pytest.warns(PluginWarning, match="handler 'torch.aten.atan2.default' refused: front-end 'torch' has one"):
        assert torch.allclose(torch.compile(torch.atan2, backend="hidet")(x, y), torch.atan2(x, y))


def test_what_a_handler_declines_runs_in_torch() -> None:
    x = torch.randn(3)
    with pytest.warns(match=r"acme_swish\.picky\.default .*: swishes of this kind"):
        result = torch.compile(lambda x: torch.ops.acme_swish.picky(x), backend="hidet")(x)
    assert torch.allclose(result, x * torch.sigmoid(x))


def test_a_handler_that_fails_is_named_and_the_operator_runs_in_torch() -> None:
    x = torch.randn(3)
    message = r"""plugin "hidet_swish._plugin": handler 'torch.acme_swish.broken.default' raised AttributeError"""
    with pytest.warns(PluginWarning, match=message), pytest.warns(match=r"broken\.default .*: " + message):
        result = torch.compile(lambda x: torch.ops.acme_swish.broken(x), backend="hidet")(x)
    assert torch.allclose(result, x * torch.sigmoid(x))


# --- ONNX ------------------------------------------------------------------------------------------------------------


def model_of(
    *nodes: onnx.NodeProto, version: int = 1, inputs: tuple[str, ...] = ("x",), functions: Any = ()
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "main",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in inputs],
        [helper.make_empty_tensor_value_info("y")],
        [helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("acme.ai", version)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions))


def node(operator: str, inputs: tuple[str, ...] = ("x",), domain: str = "acme.ai", **attributes: Any) -> Any:
    return helper.make_node(operator, list(inputs), ["y"], domain=domain, **attributes)


X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)


def results_of(model: onnx.ModelProto) -> Any:
    (result,) = hidet.onnx.OnnxRunner(model)({"x": X})
    return result


def test_an_operator_of_a_domain_of_ones_own_is_compiled() -> None:
    model = model_of(node("Swish", beta=2.0))
    assert hidet.onnx.check(model) == ()
    np.testing.assert_allclose(results_of(model), swish(X, 2.0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(hidet.compile(model)(X), swish(X, 2.0), rtol=1e-5, atol=1e-6)


def test_a_node_gets_the_newest_handler_that_its_version_has() -> None:
    for version in (3, 4):
        model = model_of(node("Swish", ("x", "half")), version=version)
        np.testing.assert_allclose(results_of(model), swish(X, 0.5), rtol=1e-5, atol=1e-6)
    message = r"'onnx\.acme\.ai\.Swish-3' raised TypeError: swish_by_input\(\) missing .* 'beta'"
    with pytest.warns(PluginWarning, match=message), pytest.raises(UnsupportedOp, match=message):
        results_of(model_of(node("Swish"), version=3))


def test_a_handler_reads_a_shape_that_is_given_as_a_tensor() -> None:
    model = model_of(
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "order"], ["turned"]),
        node("Rows", ("x", "turned")),
    )
    model.graph.initializer.append(helper.make_tensor("order", TensorProto.INT64, [2], [1, 0]))
    assert np.array_equal(results_of(model), X.reshape(4, 3))


def test_a_handler_takes_the_place_of_a_function_of_the_model_with_its_defaults() -> None:
    body = [helper.make_node("Neg", ["x"], ["y"])]
    imports = [helper.make_opsetid("", 21)]
    function = helper.make_function("acme.ai", "Swish", ["x"], ["y"], body, imports, [])
    function.attribute_proto.append(helper.make_attribute("beta", 3.0))
    other = helper.make_function("acme.ai", "Negated", ["x"], ["y"], body, imports)
    np.testing.assert_allclose(
        results_of(model_of(node("Swish"), functions=[function])), swish(X, 3.0), rtol=1e-5, atol=1e-6
    )
    assert np.array_equal(results_of(model_of(node("Negated"), functions=[other])), -X)


def test_an_onnx_operator_of_the_front_end_is_replaced_where_the_plugin_says_so() -> None:
    result = results_of(model_of(node("Softsign", domain="")))
    np.testing.assert_allclose(result, swish(X), rtol=1e-5, atol=1e-6)


def test_a_handler_of_an_onnx_operator_of_the_front_end_is_refused() -> None:
    with pytest.warns(PluginWarning, match="handler 'onnx.Mish' refused: front-end 'onnx' has one of its own"):
        result = results_of(model_of(node("Mish", domain="")))
    np.testing.assert_allclose(result, X * np.tanh(np.log1p(np.exp(X))), rtol=1e-5, atol=1e-6)


def test_a_handler_that_fails_ends_the_import_with_the_name_of_the_plugin() -> None:
    message = r"""plugin "hidet_swish._plugin": handler 'onnx.acme.ai.Broken' raised AttributeError"""
    with pytest.warns(PluginWarning, match=message), pytest.raises(UnsupportedOp, match=message) as error:
        results_of(model_of(node("Broken")))
    assert "Broken that makes 'y'" in str(error.value)


def test_the_handlers_are_listed_with_their_plugin() -> None:
    registry = load_registry()
    assert "onnx.acme.ai.Swish-3" in registry.handlers
    assert registry.owners["handlers", "onnx.acme.ai.Swish-3"].plugin == "hidet_swish._plugin"
    problems = [problem for record in registry.plugins for problem in record.problems]
    assert not problems, problems

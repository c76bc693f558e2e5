"""`hidet.nn`: layers against torch, parameters by names, graphs of models."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hidet
from hidet import nn
from hidet.errors import ShapeError
from hidet.testing import models

LAYERS = {
    "linear": (nn.Linear(6, 4), torch.nn.Linear(6, 4), (2, 6)),
    "conv": (
        nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=2, bias=True),
        torch.nn.Conv2d(4, 6, 3, 2, 1, groups=2),
        (1, 4, 9, 8),
    ),
    "batch norm": (nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3), (2, 3, 4, 4)),
    "layer norm": (nn.LayerNorm([3, 4]), torch.nn.LayerNorm([3, 4]), (2, 3, 4)),
    "group norm": (nn.GroupNorm(2, 4), torch.nn.GroupNorm(2, 4), (2, 4, 5)),
    "max pool": (nn.MaxPool2d(3, 2, 1), torch.nn.MaxPool2d(3, 2, 1), (1, 2, 7, 7)),
    "avg pool": (nn.AvgPool2d(2, 2), torch.nn.AvgPool2d(2, 2), (1, 2, 6, 6)),
    "adaptive pool": (nn.AdaptiveAvgPool2d(1), torch.nn.AdaptiveAvgPool2d(1), (1, 2, 6, 6)),
    "relu": (nn.Relu(), torch.nn.ReLU(), (3, 4)),
    "gelu": (nn.Gelu(), torch.nn.GELU(), (3, 4)),
    "tanh": (nn.Tanh(), torch.nn.Tanh(), (3, 4)),
    "identity": (nn.Identity(), torch.nn.Identity(), (3, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_that_of_torch_does(name) -> None:
    ours, theirs, shape = LAYERS[name]
    torch.manual_seed(0)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    # Weights of linear layers are transposed.
    turned = {
        n: tensor.mT if tensor.ndim == 2 and name == "linear" else tensor for n, tensor in theirs.state_dict().items()
    }
    ours.load_state_dict(turned)
    x = torch.randn(shape)
    with torch.no_grad():
        expected = theirs.eval()(x)
    np.testing.assert_allclose(ours(hidet.from_torch(x)).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_rows_of_a_table_are_taken() -> None:
    table = nn.Embedding(5, 3)
    assert table(hidet.asarray([4, 0])).tolist() == table.weight.numpy()[[4, 0]].tolist()


def test_a_transposed_layer_has_its_weight_turned() -> None:
    layer, x = nn.LinearTransposed(6, 4), hidet.randn([2, 6])
    np.testing.assert_allclose(layer(x).numpy(), x.numpy() @ layer.weight.numpy().T, rtol=1e-5, atol=1e-5)


def test_attention_to_another_sequence_is_that_of_torch() -> None:
    layer = nn.CrossAttention(8, 6, heads=2, dim_head=4)
    x, other = hidet.randn([2, 3, 8]), hidet.randn([2, 5, 6])
    q, k, v = (
        torch.from_numpy(source.numpy() @ part.weight.numpy().T).view(2, -1, 2, 4).transpose(1, 2)
        for source, part in ((x, layer.to_q), (other, layer.to_k), (other, layer.to_v))
    )
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 3, 8)
    expected = found.numpy() @ layer.to_out.weight.numpy().T
    np.testing.assert_allclose(layer(x, other).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_half_of_the_features_gate_the_others() -> None:
    layer, x = nn.Geglu(4, 3), hidet.randn([2, 4])
    value, gate = np.split(x.numpy() @ layer.proj.weight.numpy().T, 2, axis=1)
    expected = value * torch.nn.functional.gelu(torch.from_numpy(gate)).numpy()
    np.testing.assert_allclose(layer(x).numpy(), expected, rtol=1e-4, atol=1e-5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(nn.Linear(4, 4), nn.Relu())
        self.scale = hidet.ones([1])

    def forward(self, x):
        return self.parts(x) * self.scale + x


def test_parameters_have_names_and_are_loaded_by_them() -> None:
    block = Block()
    assert [name for name, _ in block.named_parameters()] == ["scale", "parts.0.weight", "parts.0.bias"]
    assert len(block.parameters()) == 3
    block.load_state_dict({**block.state_dict(), "scale": np.asarray([3.0])})
    assert block.scale.tolist() == [3.0]
    with pytest.raises(ShapeError, match=r"scale has shape \[1\], got \[2\]"):
        block.load_state_dict({**block.state_dict(), "scale": np.ones(2)})
    with pytest.raises(KeyError):
        block.load_state_dict({})


def test_a_model_changes_its_type() -> None:
    block = Block().half()
    assert {parameter.dtype.name for parameter in block.parameters()} == {"float16"}
    assert block(hidet.randn([2, 4], "float16")).dtype.name == "float16"
    assert block.float().cpu().scale.dtype.name == "float32"


def test_the_graph_of_a_model_gives_what_the_model_gives() -> None:
    block, x = Block(), hidet.randn([2, 4])
    graph = block.flow_graph_for([x])
    assert [node.name for node in graph.nodes] == ["matmul", "add", "relu", "mul", "add"]
    np.testing.assert_allclose(graph(x).numpy(), block(x).numpy(), rtol=1e-5, atol=1e-6)


def test_a_model_shows_its_parts() -> None:
    assert repr(Block()) == (
        "Block(\n  (parts): Sequential(\n    (0): Linear(in_features=4, out_features=4)\n    (1): Relu()\n  )\n)"
    )
    listed = nn.ModuleList([nn.Relu()])
    listed.append(nn.Tanh())
    assert len(listed) == 2 and isinstance(listed[1], nn.Tanh)
    with pytest.raises(NotImplementedError):
        listed(hidet.ones([1]))


@pytest.mark.parametrize(("name", "count"), [("resnet18", 102), ("resnet50", 267)])
def test_residual_networks_have_the_parameters_of_their_names(name, count) -> None:
    model = getattr(models, name)(num_classes=10)
    assert len(model.parameters()) == count
    graph = model.flow_graph_for([hidet.symbol([1, 3, 32, 32])])
    assert tuple(graph.outputs[0].shape) == (1, 10)

"""`hidet.compile` with sizes that differ between calls: of exported programs, and with `dynamic_shapes`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import hidet
from hidet.errors import ImportFailed, ShapeError
from hidet.graph import GraphBuilder, TensorType
from hidet.plugins.host import load_registry

R = torch.randn


class Mixer(nn.Module):
    """Rows of any number: products, a reduction over them, a slice, a view, a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.inner(x)
        return y, y.sum(0), y[:, 1:] + 1, y.view(x.shape[0] * 2, 4).transpose(0, 1), (y @ y.t()).softmax(-1)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "a product": (lambda: nn.Linear(8, 5), (8,)),
    "rows": (Mixer, (8,)),
    "a convolution": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)), (2, 6, 6)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (5, 8)),
    "normalisation": (lambda: nn.Sequential(nn.LayerNorm(8), nn.GELU(), nn.Flatten(), nn.Softmax(-1)), (3, 8)),
}


def _agree(made: Any, expected: Any) -> None:
    items = expected if isinstance(expected, tuple) else (expected,)
    for got, want in zip(made if isinstance(made, list | tuple) else [made], items, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("make", "shape"), MODULES.values(), ids=MODULES)
@pytest.mark.thorough(every=2)
def test_an_exported_program_takes_all_sizes_of_its_range(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    """defects.md C3, user-walk.md bug 4, user-walk.md section 6, row 4: 0 and 1, too, which tracing leaves out."""
    module = make().eval()
    with torch.no_grad():
        program = torch.export.export(module, (R(4, *shape),), dynamic_shapes=({0: Dim("batch", min=0, max=64)},))
        compiled = hidet.compile(program)
        for batch in (4, 1, 2, 64, 0):
            x = R(batch, *shape)
            _agree(compiled(x), program.module()(x))


def test_sizes_outside_of_the_range_of_a_program_are_refused() -> None:
    """defects.md C3."""
    program = torch.export.export(nn.Linear(8, 5), (R(4, 8),), dynamic_shapes=({0: Dim("batch", min=1, max=64)},))
    compiled = hidet.compile(program)
    for batch in (0, 65):
        with pytest.raises(ShapeError, match=r"expected 1 <= .* <= 64"):
            compiled(R(batch, 8))


FORMS: dict[str, Any] = {
    "a tuple": ({0: Dim("batch")},),
    "by name": {"x": {0: Dim("batch", max=32)}},
    "dynamic": {"x": {0: Dim.DYNAMIC}},
    "automatic": {"x": (Dim.AUTO, None)},
}


@pytest.mark.parametrize("dynamic_shapes", FORMS.values(), ids=FORMS)
@pytest.mark.thorough(every=2)
def test_dynamic_shapes_as_torch_export_takes_them(dynamic_shapes: Any) -> None:
    """user-walk.md section 10, 5."""
    module = Mixer().eval()
    compiled = hidet.compile(module, (R(4, 8),), dynamic_shapes=dynamic_shapes)
    with torch.no_grad():
        for batch in (4, 2, 17):
            x = R(batch, 8)
            _agree(compiled(x), module(x))


def test_dynamic_shapes_of_arguments_by_name_and_inside_of_containers() -> None:
    class Sums(nn.Module):
        def forward(self, pair: list[torch.Tensor], scale: torch.Tensor) -> torch.Tensor:
            return (pair[0] + pair[1]) * scale

    batch = Dim("batch")
    example = {"pair": [R(3, 2), R(3, 2)], "scale": R(2)}
    compiled = hidet.compile(Sums(), example, dynamic_shapes={"pair": [{0: batch}, {0: batch}], "scale": None})
    for n in (3, 7):
        pair, scale = [R(n, 2), R(n, 2)], R(2)
        _agree(compiled(pair=pair, scale=scale), Sums()(pair, scale))
    with pytest.raises(ShapeError):
        compiled(pair=[R(3, 2), R(4, 2)], scale=R(2))


def test_a_saved_graph_keeps_its_dynamic_shapes(tmp_path: Path) -> None:
    module = nn.Linear(8, 5)
    hidet.compile(module, (R(4, 8),), dynamic_shapes=({0: Dim("batch")},)).save(tmp_path / "m.hidet")
    loaded = hidet.load(tmp_path / "m.hidet")
    with torch.no_grad():
        for batch in (1, 9):
            x = R(batch, 8)
            _agree(loaded(x), module(x))


def test_other_sizes_than_those_of_the_example_say_what_to_do(tmp_path: Path) -> None:
    """user-walk.md section 6, row 3."""
    compiled = hidet.compile(nn.Linear(8, 5), (R(4, 8),))
    compiled.save(tmp_path / "m.hidet")
    for callable_ in (compiled, hidet.load(tmp_path / "m.hidet")):
        with pytest.raises(ShapeError, match="sizes are fixed by the example inputs; pass dynamic_shapes=") as caught:
            callable_(R(3, 8))
        assert "has shape [3, 8], expected [4, 8]" in str(caught.value)
        with pytest.raises(ShapeError) as caught:
            callable_(R(8))
        assert caught.value.hint is None
    program = torch.export.export(nn.Linear(8, 5), (R(4, 8),))
    with pytest.raises(ShapeError, match=r"fixed by the exported program; pass dynamic_shapes=... to torch.export"):
        hidet.compile(program)(R(3, 8))


def test_dynamic_shapes_that_have_no_place_are_refused(tmp_path: Path) -> None:
    program = torch.export.export(nn.Linear(8, 5), (R(4, 8),))
    with pytest.raises(ImportFailed, match="an exported program was given with dynamic_shapes"):
        hidet.compile(program, dynamic_shapes=({0: Dim("batch")},))
    builder = GraphBuilder(load_registry().operators, "g")
    graph = builder.build([builder.emit("relu", builder.input(TensorType(hidet.dtypes.f32, (2,))))])
    with pytest.raises(ImportFailed, match="a graph was given with dynamic_shapes"):
        hidet.compile(graph, dynamic_shapes={})
    (tmp_path / "g.hir").write_text(str(graph))
    with pytest.raises(ImportFailed, match="a model of front-end text was given with dynamic_shapes"):
        hidet.compile(tmp_path / "g.hir", dynamic_shapes={})


def test_sizes_that_a_module_fixes_cannot_be_dynamic() -> None:
    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.ones(4, 8)

    with pytest.raises(ImportFailed, match=r"torch.export refuses Fixed with these dynamic_shapes"):
        hidet.compile(Fixed(), (R(4, 8),), dynamic_shapes=({0: Dim("batch")},))

"""What `hidet.compile(module, example_inputs)` takes: what the module takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import SequenceKey

import hidet
from hidet.errors import DTypeError, ImportFailed, LaunchError
from hidet.torch.export import device_of_module

X = torch.arange(4.0)


class _Masked(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x - y


class _Scaled(nn.Module):
    def forward(self, x: torch.Tensor, k: int, *, bias: float = 0.5) -> torch.Tensor:
        return x * k + bias


class _Cached(nn.Module):
    """Nested tensors: a list of mappings."""

    def forward(self, x: torch.Tensor, cache: list[dict[str, torch.Tensor]]) -> torch.Tensor:
        return x + cache[0]["k"] - cache[1]["v"]


def _cache() -> list[dict[str, torch.Tensor]]:
    return [{"k": X * 2, "unread": X}, {"v": X}]


class _Terms(nn.Module):
    def forward(self, *terms: torch.Tensor) -> torch.Tensor:
        return sum(terms)


class _Optional(nn.Module):
    def forward(self, x: torch.Tensor, mask: Any = None, y: Any = None, kind: Any = torch.float32) -> torch.Tensor:
        total = x if y is None else x - y
        return (total if mask is None else total * mask).to(kind)


def test_a_tensor_that_nothing_reads_is_accepted_whatever_it_is() -> None:
    compiled = hidet.compile(_Masked(), (X, X, X))
    for mask in (X, X.long(), torch.ones(2, 2), None):
        assert compiled(X, mask, X).tolist() == [0, 0, 0, 0]


def test_messages_name_arguments_as_the_module_does() -> None:
    compiled = hidet.compile(_Masked(), (X, X, X))
    with pytest.raises(DTypeError, match=r"argument 2 \(y\) is int64, expected float32"):
        compiled(X, X, X.long())
    with pytest.raises(LaunchError, match=r"argument 2 \(y\) is missing: the compiled graph takes \(x, mask, y\)"):
        compiled(X, X)
    with pytest.raises(LaunchError, match=r"takes 3 arguments by position \(x, mask, y\), got 4"):
        compiled(X, X, X, X)
    with pytest.raises(LaunchError, match=r"no argument z: it takes \(x, mask, y\)"):
        compiled(X, X, X, z=X)
    with pytest.raises(LaunchError, match=r"argument 0 \(x\) is passed by position and by name"):
        compiled(X, X, X, x=X)


def test_a_tensor_that_the_example_has_twice_is_two_arguments() -> None:
    assert hidet.compile(_Masked(), (X, X, X))(X * 3, X, X).tolist() == (X * 2).tolist()


def test_arguments_are_passed_by_name_too() -> None:
    compiled = hidet.compile(_Masked(), (X, X, X))
    assert compiled(y=X, x=X * 2, mask=X).tolist() == X.tolist()


def test_a_number_of_the_example_is_fixed() -> None:
    compiled = hidet.compile(_Scaled(), (X, 3))
    assert compiled(X, 3).tolist() == _Scaled()(X, 3).tolist()
    assert compiled(X, k=3, bias=0.5).tolist() == _Scaled()(X, 3).tolist()
    for other in (4, 3.0, True):
        with pytest.raises(LaunchError, match=rf"argument 1 \(k\) was fixed to 3 when .* got {other}"):
            compiled(X, other)
    with pytest.raises(LaunchError, match=r"argument 2 \(bias\) was fixed to 0.5"):
        compiled(X, 3, bias=1.0)


def test_a_number_may_be_left_out_where_it_is_the_default() -> None:
    assert hidet.compile(_Scaled(), {"x": X, "k": 2, "bias": 0.5})(X, 2).tolist() == _Scaled()(X, 2).tolist()
    compiled = hidet.compile(_Scaled(), {"x": X, "k": 2, "bias": 0.25})
    with pytest.raises(LaunchError, match=r"argument 2 \(bias\) is missing"):
        compiled(X, 2)


def test_what_the_example_leaves_out_is_fixed_to_the_default() -> None:
    compiled = hidet.compile(_Optional(), {"x": X, "y": X})
    assert compiled(X, y=X).tolist() == compiled(X, None, X).tolist() == [0, 0, 0, 0]
    with pytest.raises(LaunchError, match=r"argument 1 \(mask\) was fixed to None when .* got a Tensor"):
        compiled(X, X)
    with pytest.raises(LaunchError, match="no argument kind"):
        compiled(X, None, X, kind=torch.float32)


def test_containers_of_tensors_are_passed_as_in_the_example() -> None:
    compiled = hidet.compile(_Cached(), (X, _cache()))
    assert compiled(X, _cache()).tolist() == (X * 2).tolist()
    with pytest.raises(DTypeError, match=r"argument 1 \(cache\[1\]\['v'\]\) is int64"):
        compiled(X, [_cache()[0], {"v": X.long()}])
    with pytest.raises(LaunchError, match=r"argument 1 \(cache\) is a list of 1, expected a list or tuple of 2"):
        compiled(X, _cache()[:1])
    with pytest.raises(LaunchError, match=r"argument 1 \(cache\[1\]\) is a dict with the keys \['w'\], expected"):
        compiled(X, [_cache()[0], {"w": X}])


def test_a_container_that_only_torch_knows_is_refused() -> None:
    class Pair:
        def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
            self.first, self.second = first, second

    class Sum(nn.Module):
        def forward(self, pair: Pair) -> torch.Tensor:
            return pair.first + pair.second

    torch.utils._pytree.register_pytree_node(
        Pair,
        lambda pair: ([pair.first, pair.second], None),
        lambda items, _: Pair(*items),
        flatten_with_keys_fn=lambda pair: ([(SequenceKey(0), pair.first), (SequenceKey(1), pair.second)], None),
    )
    with pytest.raises(ImportFailed, match="argument 0 is a Pair"):
        hidet.compile(Sum(), (Pair(X, X),))


def test_any_number_of_arguments_is_taken_as_in_the_example() -> None:
    class Sum(nn.Module):
        def forward(self, *terms: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
            return sum(terms) * more["factor"]

    compiled = hidet.compile(torch.export.export(Sum(), (X, X + 1), {"factor": X + 2}))
    assert compiled(X, X, factor=X).tolist() == (2 * X * X).tolist()
    first, second = X.clone(), X.clone()
    assert hidet.compile(_Terms(), (first, second))(X, X * 2).tolist() == (X * 3).tolist()


def test_a_saved_module_takes_the_same_arguments(tmp_path: Path) -> None:
    hidet.compile(_Cached(), (X, _cache())).save(tmp_path / "cached.hidet")
    hidet.compile(_Scaled(), (X, 3)).save(tmp_path / "scaled.hidet")
    cached, scaled = hidet.load(tmp_path / "cached.hidet"), hidet.load(tmp_path / "scaled.hidet")
    assert cached(X, cache=_cache()).tolist() == (X * 2).tolist()
    assert scaled(X.numpy(), 3).tolist() == _Scaled()(X, 3).tolist()
    with pytest.raises(LaunchError, match=r"argument 1 \(k\) was fixed to 3"):
        scaled(X, 4)


def test_random_numbers_are_no_arguments() -> None:
    compiled = hidet.compile(nn.Dropout(0.5).train(), (torch.ones(1000),))
    first, second = compiled(torch.ones(1000)), compiled(torch.ones(1000))
    assert set(first.tolist()) == {0.0, 2.0}
    assert not torch.equal(first, second)


def test_a_module_without_inputs_returns_tensors_of_torch() -> None:
    class Range(nn.Module):
        def forward(self) -> torch.Tensor:
            return torch.arange(3) * 2

    result = hidet.compile(Range(), ())()
    assert isinstance(result, torch.Tensor) and result.tolist() == [0, 2, 4]


def test_an_exported_program_is_compiled_as_its_module_is() -> None:
    program = torch.export.export(_Scaled(), (X, 3), {"bias": 1.0})
    compiled = hidet.compile(program)
    assert compiled(X, 3, bias=1.0).tolist() == _Scaled()(X, 3, bias=1.0).tolist()
    with pytest.raises(LaunchError, match=r"argument 1 \(k\) was fixed to 3"):
        compiled(X, 4, bias=1.0)
    with pytest.raises(ImportFailed, match="exported program was given with example inputs"):
        hidet.compile(program, (X, 3))


def test_sizes_that_an_exported_program_leaves_open_are_open() -> None:
    class Fill(nn.Module):
        def forward(self, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
            return x + torch.ones(like.shape[0], 1)

    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(Fill(), (X, torch.ones(3)), dynamic_shapes={"x": None, "like": {0: rows}})
    compiled = hidet.compile(program)
    for count in (3, 5):
        assert compiled(X, torch.zeros(count)).tolist() == Fill()(X, torch.zeros(count)).tolist()


def test_a_module_is_compiled_for_the_device_of_tensors_in_containers() -> None:
    with torch._subclasses.FakeTensorMode():
        assert device_of_module(nn.ReLU(), ([{"x": torch.empty(2, device="cuda:1")}],)) == "cuda:1"


def test_arrays_of_numpy_are_taken_in_containers() -> None:
    arrays = [{key: value.numpy() for key, value in entry.items()} for entry in _cache()]
    assert np.array_equal(hidet.compile(_Cached(), (X, _cache()))(X.numpy(), arrays), X.numpy() * 2)

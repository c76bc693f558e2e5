"""Where the values of symbols come from."""

import pytest

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.errors import CompileError
from hidet.graph.types import DimType, TensorType
from hidet.host.symbol_sources import require_sources, symbol_sources
from hidet.runtime.program import SymbolSource

S = dims.symbol("s")
T = dims.symbol("t")
QUARTERED = dims.symbol("q", divisor=4)


def _tensor(*shape: Dim) -> TensorType:
    return TensorType(dtypes.f32, shape)


def test_an_extent_that_is_the_symbol_is_its_source() -> None:
    assert symbol_sources([_tensor(3, S)]) == {"s": SymbolSource("s", 0, 1)}


def test_an_integer_argument_is_a_source() -> None:
    assert symbol_sources([DimType(S)]) == {"s": SymbolSource("s", 0, None)}


@pytest.mark.parametrize(
    ("extent", "solution"),
    [
        (S + 2, {"offset": 2}),
        (3 * S, {"divisor": 3}),
        (2 * S - 6, {"offset": -6, "divisor": 2}),
        (10 - S, {"offset": 10, "multiplier": -1}),
    ],
)
def test_an_extent_linear_in_one_symbol_is_solved(extent: Dim, solution: dict[str, int]) -> None:
    assert symbol_sources([_tensor(extent)]) == {"s": SymbolSource("s", 0, 0, **solution)}


def test_an_exact_quotient_is_multiplied_back() -> None:
    assert symbol_sources([_tensor(QUARTERED // 4)]) == {"q": SymbolSource("q", 0, 0, multiplier=4)}


def test_plain_extents_are_preferred_and_divisions_come_last() -> None:
    assert symbol_sources([_tensor(2 * S, S + 1)])["s"].axis == 1
    assert symbol_sources([_tensor(2 * S), _tensor(S + 1, S)])["s"] == SymbolSource("s", 1, 1)


def test_extents_of_several_symbols_or_rounded_ones_define_nothing() -> None:
    assert symbol_sources([_tensor(S + T, S * T, S // 2, S % 3)]) == {}


def test_a_symbol_without_a_source_is_named_with_the_places_it_occurs_in() -> None:
    inputs = {"x": _tensor(S * T, 4)}
    with pytest.raises(CompileError, match=r"size s cannot be told.*s\*t at axis 0 of input x"):
        require_sources([S + 1], symbol_sources(list(inputs.values())), inputs)


def test_a_symbol_that_nothing_uses_needs_no_source() -> None:
    require_sources([4, S], symbol_sources([_tensor(S)]), {"x": _tensor(S, T // 2)})

"""What a compiled graph accepts as arguments, and how it refuses others."""

from typing import Any

import numpy as np
import pytest

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.errors import DTypeError, LaunchError, ShapeError
from hidet.graph.types import DimType, TensorType, ValueType
from hidet.host.symbol_sources import symbol_sources
from hidet.runtime.arguments import MAX_KNOWN, ArgumentCheck
from hidet.runtime.program import HostProgram, InputSlot, OutputSlot, TensorSlot

ROWS = dims.symbol("rows", 1, 4096)
EVEN = dims.symbol("even", divisor=2)


def _check(*types: ValueType, mutates: int | None = None) -> ArgumentCheck:
    names = "xyz"
    inputs = tuple(
        InputSlot(None, size=type_.dim, name=names[n])
        if isinstance(type_, DimType)
        else InputSlot(_slot(type_, n), name=names[n])
        for n, type_ in enumerate(types)
    )
    outputs = () if mutates is None else (OutputSlot(inputs[mutates].tensor, mutates=mutates),)
    sources = tuple(symbol_sources(types).values())
    return ArgumentCheck(HostProgram(slots=3, inputs=inputs, outputs=outputs, steps=(), symbols=sources))


def _slot(type_: ValueType, number: int) -> TensorSlot:
    assert isinstance(type_, TensorType)
    return TensorSlot(number, type_.dtype, type_.shape, type_.element_strides)


def _f32(*shape: Dim, strides: tuple[Dim, ...] | None = None) -> TensorType:
    return TensorType(dtypes.f32, shape, strides)


def _zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def test_arguments_that_fit_are_passed_as_they_are() -> None:
    x = _zeros(3, 4)
    _, (argument,) = _check(_f32(ROWS, 4))([x])
    assert argument is x


def test_a_wrong_number_of_arguments_is_an_error() -> None:
    with pytest.raises(LaunchError, match="takes 1 arguments, got 2"):
        _check(_f32(4))([_zeros(4), _zeros(4)])


def test_a_wrong_element_type_names_the_argument_and_both_types() -> None:
    with pytest.raises(DTypeError, match=r"argument 1 \(y\) is float64, expected float32"):
        _check(_f32(4), _f32(4))([_zeros(4), np.zeros(4)])


@pytest.mark.parametrize("shape", [(4,), (4, 5), (1, 4, 4)])
def test_a_wrong_fixed_shape_names_the_argument_and_both_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"argument 0 \(x\) has shape \[.*\], expected \[rows, 4\]"):
        _check(_f32(ROWS, 4))([_zeros(*shape)])


@pytest.mark.parametrize("rows", [0, 4097])
def test_a_size_outside_of_its_range_is_refused(rows: int) -> None:
    with pytest.raises(ShapeError, match=rf"axis 0 of argument 0 \(x\) makes rows {rows}, expected 1 <= rows <= 4096"):
        _check(_f32(ROWS))([_zeros(rows)])


def test_a_size_that_is_no_multiple_of_its_divisor_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"makes even 3, expected .*a multiple of 2"):
        _check(_f32(EVEN))([_zeros(3)])


def test_a_repeated_size_that_differs_names_both_places() -> None:
    message = r"axis 0 of argument 1 \(y\) is 5, expected rows = 4: axis 0 of argument 0 \(x\) makes rows 4"
    with pytest.raises(ShapeError, match=message):
        _check(_f32(ROWS, 4), _f32(ROWS))([_zeros(4, 4), _zeros(5)])


def test_a_derived_size_that_differs_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"axis 0 of argument 1 \(y\) is 7, expected 2\*rows = 6"):
        _check(_f32(ROWS), _f32(2 * ROWS))([_zeros(3), _zeros(7)])


def test_a_size_known_only_through_a_multiple_must_divide() -> None:
    check = _check(_f32(2 * ROWS + 1))
    check([_zeros(7)])
    with pytest.raises(ShapeError, match="axis 0 of argument 0 is 8, which no value of rows gives"):
        check([_zeros(8)])


def test_integer_arguments_are_checked_against_the_sizes_they_are() -> None:
    check = _check(_f32(ROWS), DimType(ROWS + 1))
    _, arguments = check([_zeros(3), np.int64(4)])
    assert arguments[1] == 4 and type(arguments[1]) is int
    with pytest.raises(ShapeError, match=r"argument 1 \(y\) is 3, expected rows \+ 1 = 4"):
        check([_zeros(3), 3])
    with pytest.raises(LaunchError, match=r"argument 1 \(y\) is a float, expected an integer"):
        check([_zeros(3), 4.0])


def test_a_tensor_laid_out_otherwise_is_copied_into_the_expected_strides() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for given in (np.asfortranarray(x), x[::-1][::-1].copy(order="F"), np.broadcast_to(x[:1], (4, 3))):
        _, (argument,) = _check(_f32(ROWS, 3))([given])
        assert argument.strides == (12, 4)
        np.testing.assert_array_equal(argument, given)


def test_a_tensor_that_must_be_column_major_is_copied_when_it_is_not() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    check = _check(_f32(4, 3, strides=(1, 4)))
    assert check([x])[1][0].strides == (4, 16)
    columns = np.asfortranarray(x)
    assert check([columns])[1][0] is columns


def test_strides_of_axes_of_extent_one_do_not_matter() -> None:
    x = np.lib.stride_tricks.as_strided(_zeros(3), (1, 3), (4000, 4))
    assert _check(_f32(1, 3))([x])[1][0] is x


def test_elements_that_do_not_lie_at_multiples_of_their_size_are_copied() -> None:
    record = np.zeros(5, np.dtype([("tag", "u1"), ("value", "<f4")]))
    record["value"] = [1, 2, 3, 4, 5]
    _, (argument,) = _check(_f32(5))([record["value"]])
    assert argument.flags.aligned and argument.strides == (4,)
    np.testing.assert_array_equal(argument, [1, 2, 3, 4, 5])


def test_an_argument_that_is_overwritten_must_lie_as_expected_and_be_writable() -> None:
    check = _check(_f32(4, 3), mutates=0)
    with pytest.raises(ShapeError, match=r"argument 0 \(x\) is overwritten.*strides \[3, 1\]"):
        check([np.asfortranarray(np.ones((4, 3), np.float32))])
    frozen = _zeros(4, 3)
    frozen.flags.writeable = False
    with pytest.raises(LaunchError, match="is read-only"):
        check([frozen])


def test_what_numpy_can_read_is_taken() -> None:
    check = _check(_f32(3))
    _, (argument,) = check([memoryview(_zeros(3))])
    assert isinstance(argument, np.ndarray)


def test_kinds_of_arguments_are_remembered_up_to_a_bound() -> None:
    check = _check(_f32(ROWS))
    for rows in range(1, 3 * MAX_KNOWN):
        check([_zeros(rows)])
    assert len(check._known) <= MAX_KNOWN

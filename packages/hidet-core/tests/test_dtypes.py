"""The table of element types against numpy, ml_dtypes and torch, which define them."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy
import pytest

from hidet import dtypes
from hidet.dtypes import ALL_DTYPES, DType, dtype, from_numpy, promote
from hidet.errors import DTypeError

FLOATS = [entry for entry in ALL_DTYPES if entry.is_float and entry != dtypes.tf32]
WITHOUT_NUMPY = {f"{prefix}int{bits}" for prefix in ("", "u") for bits in (3, 5, 6, 7)}


def test_names_and_short_names_are_unique() -> None:
    spellings = [spelling for entry in ALL_DTYPES for spelling in {entry.name, entry.short}]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize("entry", ALL_DTYPES, ids=str)
def test_every_spelling_finds_its_type(entry: DType) -> None:
    assert dtype(entry.name) is entry
    assert dtype(entry.short) is entry
    assert dtype(entry) is entry


def test_common_types_are_module_attributes_under_their_short_names() -> None:
    integers = ["i4", "i8", "i16", "i32", "i64", "u4", "u8", "u16", "u32", "u64"]
    for short in [*integers, "f16", "bf16", "f32", "f64", "tf32", "f8e4m3", "f8e5m2", "c64", "c128"]:
        assert getattr(dtypes, short) is dtype(short)
    assert dtypes.boolean is dtype("bool")
    assert dtypes.string is dtype("str")


def test_all_onnx_types_are_known() -> None:
    names = [
        *("bool", "string", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"),
        *("int2", "int4", "int8", "int16", "int32", "int64", "uint2", "uint4", "uint8", "uint16", "uint32", "uint64"),
    ]
    assert [dtype(name).name for name in names] == names


def test_all_torch_types_are_known_except_bit_bags_and_quantised_ones() -> None:
    torch = pytest.importorskip("torch")
    names = {str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)}
    ours = {entry.name for entry in ALL_DTYPES}
    left_out = {name for name in names - ours if not name.startswith(("bits", "qint", "quint"))}
    assert left_out == {"float4_e2m1fn_x2"}


def test_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(DTypeError, match=r"unknown element type 'flaot32'[\s\S]*'float32'"):
        dtype("flaot32")


@pytest.mark.parametrize("entry", [e for e in ALL_DTYPES if e.name not in WITHOUT_NUMPY], ids=str)
def test_numpy_dtype_has_the_width_of_the_type(entry: DType) -> None:
    converted = entry.numpy()
    if entry == dtypes.string:
        assert converted == numpy.dtype(object)
    else:
        assert converted.itemsize == entry.nbytes
    if entry != dtypes.tf32:
        assert from_numpy(converted) is entry


@pytest.mark.parametrize("name", sorted(WITHOUT_NUMPY))
def test_types_that_numpy_lacks_say_so(name: str) -> None:
    with pytest.raises(DTypeError, match=f"{name} has no numpy equivalent"):
        dtype(name).numpy()


@pytest.mark.parametrize("foreign", [numpy.dtype("datetime64[s]"), numpy.dtype("i4,f4"), numpy.dtype(">f4")], ids=str)
def test_numpy_dtypes_without_an_element_type_are_refused(foreign: numpy.dtype[Any]) -> None:
    with pytest.raises(DTypeError, match="has no element type"):
        from_numpy(foreign)


@pytest.mark.parametrize("entry", FLOATS, ids=str)
def test_float_parameters_agree_with_ml_dtypes(entry: DType) -> None:
    info = ml_dtypes.finfo(entry.numpy())  # type: ignore[no-untyped-call]
    assert (entry.exponent_bits, entry.mantissa_bits) == (info.nexp, info.nmant)
    assert entry.epsilon == float(info.eps)
    assert entry.unit_roundoff == float(info.eps) / 2
    assert entry.max == float(info.max)
    assert entry.min == float(info.min)
    assert entry.smallest_normal == float(info.smallest_normal)
    assert entry.bits == info.bits == entry.exponent_bits + entry.mantissa_bits + entry.has_sign


@pytest.mark.parametrize("entry", FLOATS, ids=str)
def test_special_values_are_those_the_format_has(entry: DType) -> None:
    scalar = entry.numpy().type
    assert bool(numpy.isinf(scalar(float("inf")))) == entry.has_inf
    assert bool(numpy.isnan(scalar(float("nan")))) == entry.has_nan
    assert entry.is_signed == bool(numpy.float64(scalar(-1.0)) == -1.0)


@pytest.mark.parametrize("entry", [e for e in ALL_DTYPES if e.is_int and e.name not in WITHOUT_NUMPY], ids=str)
def test_integer_ranges_agree_with_numpy(entry: DType) -> None:
    info = ml_dtypes.iinfo(entry.numpy())  # type: ignore[no-untyped-call]
    assert (entry.min, entry.max) == (info.min, info.max)
    assert entry.is_signed == (info.min < 0)


def test_bool_ranges_from_zero_to_one() -> None:
    assert (dtypes.boolean.min, dtypes.boolean.max) == (0, 1)


def test_tf32_has_the_range_of_f32_and_the_precision_of_f16() -> None:
    assert dtypes.tf32.exponent_bits == dtypes.f32.exponent_bits
    assert dtypes.tf32.epsilon == dtypes.f16.epsilon
    assert dtypes.tf32.nbytes == 4


def test_questions_without_an_answer_are_refused() -> None:
    with pytest.raises(DTypeError, match="int32 has no epsilon: expected a type of kind float or complex"):
        _ = dtypes.i32.epsilon
    with pytest.raises(DTypeError, match="complex64 has no largest value"):
        _ = dtypes.c64.max
    with pytest.raises(DTypeError, match="string has no smallest value"):
        _ = dtypes.string.min


@pytest.mark.parametrize(
    ("entry", "count", "nbytes"),
    [
        (dtypes.i4, 7, 4),
        (dtypes.u1, 9, 2),
        (dtypes.i3, 8, 3),
        (dtypes.f4e2m1, 2, 1),
        (dtypes.f32, 3, 12),
        (dtypes.u4, 0, 0),
    ],
    ids=str,
)
def test_a_row_of_subbyte_elements_is_packed(entry: DType, count: int, nbytes: int) -> None:
    assert entry.packed_nbytes(count) == nbytes


def test_every_type_is_exactly_one_of_compute_storage_and_host() -> None:
    for entry in ALL_DTYPES:
        assert [entry.is_compute, entry.is_storage_only, entry.is_host_only].count(True) == 1
    assert [entry.short for entry in ALL_DTYPES if entry.is_host_only] == ["str"]
    assert all(entry.is_storage_only for entry in ALL_DTYPES if entry.is_subbyte or entry.is_complex)


def test_copies_through_pickle_stay_equal() -> None:
    for entry in ALL_DTYPES:
        copied = pickle.loads(pickle.dumps(entry))
        assert copied == entry
        assert hash(copied) == hash(entry)
    assert dtypes.f16 != dtypes.bf16


def test_promotion_is_torchs_for_every_pair_that_torch_has() -> None:
    torch = pytest.importorskip("torch")
    shared = [entry for entry in ALL_DTYPES if hasattr(torch, entry.name)]
    assert len(shared) == len(ALL_DTYPES) - len({"tfloat32", "string", "float4_e2m1fn"})

    def torchs(a: DType, b: DType) -> str:
        try:
            return str(torch.promote_types(getattr(torch, a.name), getattr(torch, b.name))).removeprefix("torch.")
        except (RuntimeError, TypeError):
            return "refused"

    def ours(a: DType, b: DType) -> str:
        try:
            return promote(a, b).name
        except DTypeError:
            return "refused"

    pairs = list(itertools.product(shared, repeat=2))
    assert {(a.name, b.name): ours(a, b) for a, b in pairs} == {(a.name, b.name): torchs(a, b) for a, b in pairs}


@pytest.mark.parametrize("lonely", [dtypes.tf32, dtypes.string, dtypes.f4e2m1], ids=str)
def test_types_that_torch_lacks_promote_only_with_themselves(lonely: DType) -> None:
    assert promote(lonely, lonely) is lonely
    with pytest.raises(DTypeError, match="do not promote"):
        promote(lonely, dtypes.f32)


def test_importing_the_table_imports_no_numeric_library() -> None:
    code = "import sys, hidet.dtypes; print([m for m in ('numpy', 'ml_dtypes', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

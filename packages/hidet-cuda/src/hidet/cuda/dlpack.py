"""Capsules of DLPack 0.8 (unversioned): memory that libraries share, described in C."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hidet.dtypes import DType
from hidet.dtypes import dtype as dtype_of
from hidet.errors import DTypeError
from hidet.runtime.frame import row_major

CUDA, MANAGED = 2, 13
"""DLPack's codes for memory of a CUDA device, and for what devices and the host share."""
_NAME, _USED_NAME = b"dltensor", b"used_dltensor"

# DLDataTypeCode by the kind of an element type; bf16 and 8-bit floats have codes of their own.
_CODES = {"int": 0, "uint": 1, "float": 2, "complex": 5, "bool": 6}
_OWN_CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13}


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    """DLTensor; strides in elements, NULL for row-major."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor. `context` is the Python object that keeps an exported array."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


@dataclass(frozen=True, slots=True)
class SharedTensor:
    """A tensor of a capsule. Strides in elements; owner: tells the giving library when nobody needs it any more."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    owner: object


class _Export:
    """What an exported tensor needs as long as the other library uses it."""

    def __init__(self, owner: object, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.owner = owner
        rank = max(len(shape), 1)
        self.shape = (ctypes.c_int64 * rank)(*shape)
        self.strides = (ctypes.c_int64 * rank)(*strides)
        self.managed = _Managed()


def make_capsule(
    owner: object, address: int, device: tuple[int, int], shape: Sequence[int], strides: Sequence[int], dtype: DType
) -> object:
    """A capsule over memory of CUDA that `owner` keeps. device: DLPack's code and number.

    BufferError for element types that DLPack has not.
    """
    export = _Export(owner, shape, strides)
    tensor = export.managed.tensor
    tensor.data = address
    tensor.device_type, tensor.device_id = device
    tensor.ndim = len(shape)
    tensor.dtype = _data_type(dtype)
    tensor.shape = export.shape
    tensor.strides = export.strides
    export.managed.context = id(export)
    export.managed.deleter = ctypes.cast(_forget, ctypes.c_void_p)
    _python.Py_IncRef(export)
    capsule: object = _python.PyCapsule_New(ctypes.addressof(export.managed), _NAME, _drop)
    return capsule


def take_capsule(capsule: object) -> SharedTensor:
    """The tensor of a capsule, which is used up by that. DTypeError for elements that hidet has no type for."""
    place = _python.PyCapsule_GetPointer(capsule, _NAME)
    managed = _Managed.from_address(place)
    tensor = managed.tensor
    dtype = _dtype_of(tensor.dtype)
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else row_major(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    _python.PyCapsule_SetName(capsule, _USED_NAME)
    return SharedTensor(address, shape, strides, dtype, _Import(managed, place))


class _Import:
    """Memory of another library, which is told when nobody needs it any more."""

    def __init__(self, managed: _Managed, place: int) -> None:
        if managed.deleter:
            weakref.finalize(self, _Deleter(managed.deleter), place).atexit = False


def _data_type(dtype: DType) -> _DataType:
    code = _OWN_CODES.get(dtype.name, _CODES.get(dtype.kind) if dtype.bits >= 8 or dtype.is_bool else None)
    if code is None or (dtype.bits == 8 and dtype.is_float and dtype.name not in _OWN_CODES):
        raise BufferError(f"DLPack has no {dtype.name}")
    return _DataType(code, 8 * dtype.nbytes, 1)


def _dtype_of(found: _DataType) -> DType:
    named = {code: name for name, code in _OWN_CODES.items()}
    kinds = {code: kind for kind, code in _CODES.items()}
    name = named.get(found.code) or f"{kinds.get(found.code)}{found.bits}"
    if found.lanes != 1 or (found.code not in named and found.code not in kinds):
        raise DTypeError(f"an array has elements of DLPack's type {found.code} with {found.lanes} lanes")
    return dtype_of("bool" if name.startswith("bool") else name)


def _let_go(place: int) -> None:
    """The other library is done with an exported tensor."""
    _python.Py_DecRef(ctypes.cast(_Managed.from_address(place).context, ctypes.py_object).value)


def _destroy(capsule: int) -> None:
    """A capsule goes; its tensor has to be forgotten if nobody took it."""
    if _destroyed.PyCapsule_IsValid(capsule, _NAME):
        _let_go(_destroyed.PyCapsule_GetPointer(capsule, _NAME))


_forget, _drop = _Deleter(_let_go), _Deleter(_destroy)


def _functions(capsule: Any) -> Any:
    """Functions of Python's C interface with their types set; capsules are passed as `capsule`."""
    library = ctypes.PyDLL(None)
    library.Py_IncRef.argtypes = library.Py_DecRef.argtypes = (ctypes.py_object,)
    library.Py_IncRef.restype = library.Py_DecRef.restype = None
    library.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, _Deleter)
    library.PyCapsule_New.restype = ctypes.py_object
    library.PyCapsule_GetPointer.argtypes = (capsule, ctypes.c_char_p)
    library.PyCapsule_GetPointer.restype = ctypes.c_void_p
    library.PyCapsule_IsValid.argtypes = (capsule, ctypes.c_char_p)
    library.PyCapsule_IsValid.restype = ctypes.c_int
    library.PyCapsule_SetName.argtypes = (capsule, ctypes.c_char_p)
    library.PyCapsule_SetName.restype = ctypes.c_int
    return library


_python = _functions(ctypes.py_object)
# A capsule that is being destroyed has no references any more: it is passed by its address.
_destroyed = _functions(ctypes.c_void_p)

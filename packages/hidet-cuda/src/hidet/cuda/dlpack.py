"""Arrays of a CUDA device shared with other libraries: DLPack 0.8 (unversioned capsules), CUDA array interface 3.

Work that the giving library has put into its stream is waited for by the taking library's stream, never by the host.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any

from hidet.cuda.arrays import DeviceArray, note_use
from hidet.cuda.memory import device_at
from hidet.cuda.streams import ExternalStream, Stream, current_stream
from hidet.dtypes import DType, from_numpy
from hidet.dtypes import dtype as dtype_of
from hidet.errors import DTypeError, LaunchError
from hidet.runtime.frame import row_major

if TYPE_CHECKING:
    from hidet.cuda.memory import Device

_CUDA, _MANAGED = 2, 13
_LEGACY_STREAM = 1
_NO_ORDER = -1
_NAME, _USED_NAME = b"dltensor", b"used_dltensor"
_DEVICE_ORDINAL = 9  # CUpointer_attribute

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


class _Export:
    """What an exported array needs as long as the other library uses it."""

    def __init__(self, array: DeviceArray) -> None:
        self.array = array
        rank = max(array.ndim, 1)
        self.shape = (ctypes.c_int64 * rank)(*array.shape)
        self.strides = (ctypes.c_int64 * rank)(*array.strides)
        self.managed = _Managed()


def export_array(array: DeviceArray, stream: int | None) -> object:
    """A capsule over an array's memory. stream: of the consumer, as DLPack counts them; None is the default stream."""
    if stream != _NO_ORDER:
        handle = 0 if stream in (None, _LEGACY_STREAM) else stream
        consumer = ExternalStream(handle or 0, array.on)
        _order(consumer, current_stream(array.on))
        note_use(array, consumer)
    export = _Export(array)
    tensor = export.managed.tensor
    tensor.data = array.address
    tensor.device_type, tensor.device_id = array.__dlpack_device__()
    tensor.ndim = array.ndim
    tensor.dtype = _data_type(array.dtype)
    tensor.shape = export.shape
    tensor.strides = export.strides
    export.managed.context = id(export)
    export.managed.deleter = ctypes.cast(_forget, ctypes.c_void_p)
    _python.Py_IncRef(export)
    capsule: object = _python.PyCapsule_New(ctypes.addressof(export.managed), _NAME, _drop)
    return capsule


def import_array(value: Any, device: Device) -> DeviceArray | None:
    """An array over the memory of another library's; None for a value that is not on a CUDA device.

    device: where one without elements is taken to be. Its library's work is waited for by the current stream.
    """
    if isinstance(value, DeviceArray):
        return value
    if hasattr(value, "__dlpack_device__"):
        kind, index = value.__dlpack_device__()
        if int(kind) not in (_CUDA, _MANAGED):
            return None
        on = device if index == device.index else device_at(int(index))
        return _from_dlpack(value, on)
    interface = getattr(value, "__cuda_array_interface__", None)
    return None if interface is None else _from_interface(value, interface, device)


def _from_dlpack(value: Any, device: Device) -> DeviceArray:
    capsule = value.__dlpack__(stream=current_stream(device).handle or _LEGACY_STREAM)
    place = _python.PyCapsule_GetPointer(capsule, _NAME)
    managed = _Managed.from_address(place)
    tensor = managed.tensor
    dtype = _dtype_of(tensor.dtype)
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else row_major(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    _python.PyCapsule_SetName(capsule, _USED_NAME)
    return DeviceArray(device, address, shape, strides, dtype, _Import(managed, place))


class _Import:
    """Memory of another library, which is told when nobody needs it any more."""

    def __init__(self, managed: _Managed, place: int) -> None:
        if managed.deleter:
            weakref.finalize(self, _Deleter(managed.deleter), place).atexit = False


def _from_interface(value: Any, interface: dict[str, Any], device: Device) -> DeviceArray:
    import numpy

    if interface.get("mask") is not None:
        raise LaunchError(f"a {type(value).__name__} has a mask, which compiled code does not look at")
    address, is_readonly = interface["data"]
    kind = numpy.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    given = interface.get("strides")
    strides = row_major(shape) if given is None else tuple(stride // kind.itemsize for stride in given)
    if given is not None and any(stride % kind.itemsize for stride in given):
        raise LaunchError(f"strides {given} of a {type(value).__name__} are no multiples of {kind.itemsize} bytes")
    found = device.driver.number("cuPointerGetAttribute", _DEVICE_ORDINAL, address) if address else device.index
    if found != device.index:
        device = device_at(found)
    if interface.get("stream"):
        handle = interface["stream"]
        producer = ExternalStream(0 if handle == _LEGACY_STREAM else handle, device)
        _order(current_stream(device), producer)
    return DeviceArray(device, address or 0, shape, strides, from_numpy(kind), value, not is_readonly)


def _order(later: Stream, earlier: Stream) -> None:
    """Let work that is put into one stream from now on wait for what is in another one."""
    if later.handle != earlier.handle:
        later.wait_stream(earlier)


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
    """The other library is done with an exported array."""
    _python.Py_DecRef(ctypes.cast(_Managed.from_address(place).context, ctypes.py_object).value)


def _destroy(capsule: int) -> None:
    """A capsule goes; its array has to be forgotten if nobody took it."""
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

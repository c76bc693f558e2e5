"""Types of the parameters of the CUDA driver's functions, by name (CUDA driver API 13.0). All of them return an int."""

from __future__ import annotations

import ctypes
from typing import Any

_pointer = ctypes.c_void_p
_int = ctypes.c_int
_uint = ctypes.c_uint
_address = ctypes.c_uint64
_size = ctypes.c_size_t

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_uint,),
    "cuDriverGetVersion": (_pointer,),
    "cuGetErrorString": (_int, _pointer),
    "cuGetErrorName": (_int, _pointer),
    # devices and contexts
    "cuDeviceGetCount": (_pointer,),
    "cuDeviceGet": (_pointer, _int),
    "cuDeviceGetName": (_pointer, _int, _int),
    "cuDeviceGetAttribute": (_pointer, _int, _int),
    "cuDeviceTotalMem_v2": (_pointer, _int),
    "cuDevicePrimaryCtxRetain": (_pointer, _int),
    "cuCtxGetCurrent": (_pointer,),
    "cuCtxSetCurrent": (_pointer,),
    "cuCtxPushCurrent_v2": (_pointer,),
    "cuCtxPopCurrent_v2": (_pointer,),
    "cuCtxGetDevice": (_pointer,),
    "cuCtxSynchronize": (),
    # code
    "cuLibraryLoadData": (_pointer, ctypes.c_char_p, _pointer, _pointer, _uint, _pointer, _pointer, _uint),
    "cuLibraryUnload": (_pointer,),
    "cuLibraryGetKernel": (_pointer, _pointer, ctypes.c_char_p),
    "cuKernelGetAttribute": (_pointer, _int, _pointer, _int),
    "cuKernelSetAttribute": (_int, _int, _pointer, _int),
    # memory
    "cuMemGetInfo_v2": (_pointer, _pointer),
    "cuPointerGetAttribute": (_pointer, _int, _address),
    "cuMemAlloc_v2": (_pointer, _size),
    "cuMemFree_v2": (_address,),
    "cuMemPoolCreate": (_pointer, _pointer),
    "cuMemPoolDestroy": (_pointer,),
    "cuMemPoolSetAttribute": (_pointer, _int, _pointer),
    "cuMemPoolGetAttribute": (_pointer, _int, _pointer),
    "cuMemPoolTrimTo": (_pointer, _size),
    "cuMemAllocFromPoolAsync": (_pointer, _size, _pointer, _pointer),
    "cuMemFreeAsync": (_address, _pointer),
    "cuMemcpyHtoD_v2": (_address, _pointer, _size),
    "cuMemcpyDtoH_v2": (_pointer, _address, _size),
    "cuMemcpyHtoDAsync_v2": (_address, _pointer, _size, _pointer),
    "cuMemcpyDtoHAsync_v2": (_pointer, _address, _size, _pointer),
    "cuMemcpyDtoDAsync_v2": (_address, _address, _size, _pointer),
    "cuMemcpy": (_address, _address, _size),
    "cuProfilerStart": (),
    "cuProfilerStop": (),
    "cuMemsetD8Async": (_address, ctypes.c_ubyte, _size, _pointer),
    "cuMemsetD32Async": (_address, _uint, _size, _pointer),
    # streams and events
    "cuStreamCreateWithPriority": (_pointer, _uint, _int),
    "cuStreamDestroy_v2": (_pointer,),
    "cuStreamSynchronize": (_pointer,),
    "cuStreamQuery": (_pointer,),
    "cuStreamWaitEvent": (_pointer, _pointer, _uint),
    "cuEventCreate": (_pointer, _uint),
    "cuEventDestroy_v2": (_pointer,),
    "cuEventRecord": (_pointer, _pointer),
    "cuEventQuery": (_pointer,),
    "cuEventSynchronize": (_pointer,),
    "cuEventElapsedTime_v2": (_pointer, _pointer, _pointer),
    # graphs
    "cuStreamIsCapturing": (_pointer, _pointer),
    "cuStreamBeginCapture_v2": (_pointer, _int),
    "cuStreamEndCapture": (_pointer, _pointer),
    "cuGraphInstantiateWithFlags": (_pointer, _pointer, ctypes.c_ulonglong),
    "cuGraphGetNodes": (_pointer, _pointer, _pointer),
    "cuGraphLaunch": (_pointer, _pointer),
    "cuGraphExecDestroy": (_pointer,),
    "cuGraphDestroy": (_pointer,),
    "cuStreamGetCaptureInfo_v3": (_pointer,) * 7,
    "cuUserObjectCreate": (_pointer, _pointer, _pointer, _uint, _uint),
    "cuGraphRetainUserObject": (_pointer, _pointer, _uint, _uint),
    "cuUserObjectRelease": (_pointer, _uint),
    # called by compiled code alone
    "cuLaunchKernel": (_pointer, *(_uint,) * 7, _pointer, _pointer, _pointer),
    "cuLaunchKernelEx": (_pointer, _pointer, _pointer, _pointer),
    "cuTensorMapEncodeTiled": (_pointer, _int, _uint, *(_pointer,) * 5, *(_int,) * 4),
    "cuTensorMapEncodeIm2col": (_pointer, _int, _uint, *(_pointer,) * 5, _uint, _uint, _pointer, *(_int,) * 4),
}

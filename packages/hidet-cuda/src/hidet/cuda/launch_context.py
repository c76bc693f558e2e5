"""What compiled host functions and the loader agree on: functions of the driver, cells of kernels, and the words of the
launch context."""

from __future__ import annotations

LAUNCH = "cuLaunchKernel"
LAUNCH_EX = "cuLaunchKernelEx"
CELL = "hidet_kernel_"
"""Begins the name of the cell in which the loader leaves the handle of a kernel."""

GET_CURRENT = "cuCtxGetCurrent"
PUSH_CURRENT = "cuCtxPushCurrent_v2"
POP_CURRENT = "cuCtxPopCurrent_v2"
FUNCTIONS = (LAUNCH, LAUNCH_EX, GET_CURRENT, PUSH_CURRENT, POP_CURRENT)
"""What host code calls of the driver."""

ENCODE = "cuTensorMapEncodeTiled"
ENCODE_COLUMNS = "cuTensorMapEncodeIm2col"
ENCODERS = (ENCODE, ENCODE_COLUMNS)
"""What it calls besides, where it makes tensor maps."""

STREAM, DEVICE, ERROR, FAILED, LAUNCHED, WAITS, INDEPENDENT, ASKED = range(8)
"""Words of the launch context. LAUNCHED: 1 once the call has launched a kernel, else 0. WAITS: 1 once something was
launched since the last call that is not independent of those before it began, else 0. INDEPENDENT: 1 while what is
launched next may run beside what was launched since then, else 0. From ASKED on extents of the grid and of a block, and
bytes of shared memory of the launch that failed."""
CONTEXT_WORDS = ASKED + 7

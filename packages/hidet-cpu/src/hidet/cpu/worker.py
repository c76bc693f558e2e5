"""Child process that compiles LLVM IR modules: `python -m hidet.cpu.worker`, driven by `hidet.cpu.workers`.

Requests come in on standard input and answers go out on what was standard output, both as length-framed bytes. The
child imports the LLVM binding and nothing of the compiler, and ends when its input does.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
from typing import IO

REQUEST = struct.Struct("<IQ")  # optimisation level, bytes of UTF-8 text that follow
REPLY = struct.Struct("<BQ")  # COMPILED or REFUSED, bytes that follow
COMPILED = 0  # an object file follows
REFUSED = 1  # a JSON object {"message", "hint"} of a CompileError follows


def read_exactly(stream: IO[bytes], size: int) -> bytes | None:
    """The next `size` bytes; None if the stream ends before."""
    data = stream.read(size)
    return data if len(data) == size else None


def read_frame(stream: IO[bytes], head: struct.Struct) -> tuple[int, bytes] | None:
    """The next (first field, body) whose head is (field, body size); None at the end of the stream."""
    prefix = read_exactly(stream, head.size)
    if prefix is None:
        return None
    field, size = head.unpack(prefix)
    body = read_exactly(stream, size)
    return None if body is None else (field, body)


def write_frame(stream: IO[bytes], head: struct.Struct, field: int, body: bytes) -> None:
    """Inverse of `read_frame`."""
    stream.write(head.pack(field, len(body)))
    stream.write(body)
    stream.flush()


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests until they end. The first one carries the architecture: JSON of CpuArch's fields."""
    from hidet.cpu.arch import CpuArch
    from hidet.cpu.toolchain import compile_object
    from hidet.errors import CompileError

    first = read_frame(requests, REQUEST)
    if first is None:
        return
    arch = CpuArch(**json.loads(first[1]))
    while (request := read_frame(requests, REQUEST)) is not None:
        opt_level, text = request
        try:
            status, body = COMPILED, compile_object(text.decode(), arch, opt_level)
        except CompileError as error:
            status, body = REFUSED, json.dumps({"message": error.message, "hint": error.hint}).encode()
        write_frame(replies, REPLY, status, body)


def main() -> None:
    """Serve on the standard streams. Whatever libraries print goes to standard error, not between the frames."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()

"""Child process that compiles LLVM IR modules: `python -m hidet.cpu.worker`, driven by `hidet.cpu.workers`.

Requests come in on standard input and answers go out on what was standard output, both as length-framed bytes. The
child imports the LLVM binding and nothing of the compiler, and ends when its input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import IO

from hidet.cpu.arch import CpuArch
from hidet.cpu.frames import COMPILED, REFUSED, REPLY, REQUEST, read_frame, write_frame
from hidet.cpu.toolchain import compile_object
from hidet.errors import CompileError


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests until they end. The first one carries the architecture: JSON of CpuArch's fields."""
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

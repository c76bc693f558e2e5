"""`hidet.utils.Timer`: how long a block takes."""

from __future__ import annotations

import time
from types import TracebackType


class Timer:
    """For `with`: prints what took how long. msg: before the time; None prints nothing. verbose: False does neither."""

    def __init__(
        self, msg: str | None = None, file: str | None = None, verbose: bool = True, stdout: bool = True
    ) -> None:
        self.msg = msg
        self.file = file
        self.verbose = verbose and stdout
        self.start_time = self.end_time = 0.0

    def __enter__(self) -> Timer:
        self.start_time = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end_time = time.perf_counter()
        if self.msg is None:
            return
        line = f"{self.msg} {self.time2str(self.elapsed_seconds())}"
        if self.verbose:
            print(line)
        if self.file is not None:
            with open(self.file, "a") as file:
                file.write(f"{line}\n")

    def elapsed_seconds(self) -> float:
        """Seconds of the block, or since it began."""
        return (self.end_time or time.perf_counter()) - self.start_time

    @staticmethod
    def time2str(seconds: float) -> str:
        """A time with a unit that suits it."""
        for unit, size in (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0)):
            if seconds >= size:
                return f"{seconds / size:.1f} {unit}"
        return f"{1e3 * seconds:.1f} milliseconds"

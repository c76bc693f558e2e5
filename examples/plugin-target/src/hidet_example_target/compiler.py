"""The C compiler of the machine: the `cc` on the PATH."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from hidet.errors import CompileError

# -fwrapv: signed numbers wrap around. -fno-strict-aliasing: memory is read in whatever type a pointer has.
_OPTIONS = ("-std=gnu11", "-fPIC", "-fwrapv", "-fno-strict-aliasing", "-fno-math-errno", "-ffp-contract=off")


def find_compiler() -> str:
    """The path of the compiler. CompileError where there is none."""
    found = shutil.which("cc")
    if found is None:
        raise CompileError("there is no C compiler: no `cc` on the PATH", hint="install gcc or clang")
    return found


@functools.cache
def describe_compiler(option: str) -> str:
    """The first line of what the compiler says of itself: its "--version", or the machine ("-dumpmachine")."""
    return _run([option]).splitlines()[0]


def compile_object(source: str, effort: int, output: Path) -> None:
    """Make an object file of C. effort: an optimisation level from 0 to 3."""
    _run([*_OPTIONS, f"-O{effort}", "-x", "c", "-c", "-", "-o", str(output)], source)


def compile_assembly(source: str, effort: int) -> str:
    """The machine's assembly of C."""
    return _run([*_OPTIONS, f"-O{effort}", "-x", "c", "-S", "-", "-o", "-"], source)


def link_library(objects: Sequence[Path], output: Path) -> None:
    """Make a library of object files, with what Python calls them through."""
    with as_file(files("hidet_example_target") / "support.c") as support:
        _run([*_OPTIONS, "-O2", "-shared", str(support), *map(str, objects), "-lm", "-o", str(output)])


def _run(arguments: Sequence[str], text: str = "") -> str:
    command = [find_compiler(), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"the C compiler failed: {done.stderr[:2000]}", hint=f"it ran as {' '.join(command)}")
    return done.stdout

"""Scripts from other places than files: exec, `python -c`, standard input, interactive prompts."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hidet import lang
from hidet.errors import ScriptError
from hidet.ir.printer import print_module
from hidet.lang import f32, script
from hidet.lang.module import module_of

TEXT = """
import numpy
import hidet
from hidet.ir.interpret import run_module
from hidet.lang import f32


@hidet.script
def double(x: f32[2]):
    for i in range(2):
        x[i] = x[i] * 2.0

x = numpy.ones(2, numpy.float32)
with hidet.script_module() as module:
    module.add(double)
run_module(module.ir_module(), [x])
print(x.tolist())
"""
ENVIRONMENT = {**os.environ, "HIDET_PLUGINS": ""}


def test_everything_may_be_imported_at_once_and_pythons_names_stay():
    scope = {}
    exec("from hidet.lang import *\nfrom hidet.lang.cuda import *", scope)
    assert {"f32", "grid", "printf", "spatial", "attrs", "threadIdx", "syncthreads", "mma"} <= scope.keys()
    assert [name for name in scope if hasattr(builtins, name)] == []
    for package in (lang, lang.cuda):
        assert len(package.__all__) == len(set(package.__all__)) and set(package.__all__) <= set(dir(package))


def test_text_that_exec_got_is_found_in_the_caller():
    text = "def lost(x: f32[4]):\n    x[0] = 2.0\n"
    scope = {"f32": f32, "script": script}
    exec(text + "made = script(lost)\n", scope)
    scope["lost"].__name__ = "lost"
    assert "x[0] = 2.0" in print_module(module_of([scope["made"]]))


def test_errors_show_lines_of_such_text():
    text = "\n\ndef wrong(x: f32[4]):\n    x[0] = nothing\n"
    scope = {"f32": f32}
    exec(text, scope)
    with pytest.raises(ScriptError, match="name 'nothing' is not defined") as caught:
        script(scope["wrong"])
    assert caught.value.loc.file.startswith("<string ")
    assert (caught.value.loc.line, caught.value.loc.column) == (4, 12)
    assert "4 |     x[0] = nothing" in str(caught.value)


def test_text_that_nobody_holds_is_refused():
    scope = {"f32": f32}
    exec("def gone" + "(x: f32):\n    pass\n" * (len(scope) > 0), scope)
    del scope["__builtins__"]
    with pytest.raises(ScriptError, match="source of script gone cannot be read") as caught:
        script(scope["gone"])
    assert "in a file or a notebook" in caught.value.hint


def test_text_that_differs_is_not_taken_for_the_source():
    scope = {"f32": f32}
    other = "def close(x: f32[4]):\n    x[0] = 3.0\n"
    exec("".join(("def close(x: f32[4]):\n    x[0] = ", "2.0\n")), scope)
    with pytest.raises(ScriptError, match="cannot be read"):
        script(scope["close"])
    assert other


def test_the_command_line_is_source():
    done = subprocess.run([sys.executable, "-c", TEXT], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.stdout == "[2.0, 2.0]\n", done.stderr


def test_standard_input_that_is_a_file_is_source(tmp_path: Path):
    (tmp_path / "script.py").write_text(TEXT)
    with (tmp_path / "script.py").open() as file:
        done = subprocess.run([sys.executable], stdin=file, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.stdout == "[2.0, 2.0]\n", done.stderr


def test_lines_typed_at_a_prompt_are_source():
    session = (
        "import hidet, numpy",
        "from hidet.ir.interpret import run_module",
        "from hidet.lang import f32",
        "module = hidet.script_module()",
        "@hidet.script",
        "def half(x: f32[2]):",
        "    for i in range(2):",
        "        x[i] = x[i] / 2.0",
        "",
        "module.add(half)",
        "x = numpy.ones(2, numpy.float32)",
        "run_module(module.ir_module(), [x])",
        "print(x.sum(), 'is the sum')",
        "exit()",
    )
    terminal, inner = pytest.importorskip("pty").openpty()
    environment = {**ENVIRONMENT, "PYTHON_BASIC_REPL": "1", "TERM": "dumb"}
    process = subprocess.Popen([sys.executable, "-q"], stdin=inner, stdout=inner, stderr=inner, env=environment)
    os.close(inner)
    os.write(terminal, "".join(f"{line}\n" for line in session).encode())
    shown = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # how Linux tells that the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(terminal)
    process.wait()
    assert b"1.0 is the sum" in shown, shown.decode()

"""Signals while compiled code of a script runs: handlers run within a second, and what they raise ends the call."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import hidet
from hidet.ir.polls import PART, with_polls
from hidet.ir.printer import print_module
from hidet.lang import attrs, f32, grid, i32, i64

CHILD = textwrap.dedent(
    """
    import os, signal, sys, threading, time
    import numpy
    import hidet
    from hidet.lang import attrs, f32, grid, i64

    with hidet.script_module() as module:

        @hidet.script
        def endless(x: f32[4]):
            attrs.func_kind = "public"
            while True:
                x[0] = x[0] + 1.0

        @hidet.script
        def counted(x: f32[4], n: i64):
            attrs.func_kind = "public"
            for i in range(n):
                x[i % 4] = x[(i * 7 + 3) % 4] * 1.5

        @hidet.script
        def nested(x: f32[4], n: i64):
            attrs.func_kind = "public"
            for i in range(n):
                for j in range(n):
                    x[0] = x[0] * 0.5 + f32(j)

        @hidet.script
        def walk(x: f32[4]) -> f32:
            attrs.func_kind = "device"
            while x[0] > -1.0:
                x[0] = x[0] * 0.5
            return x[0]

        @hidet.script
        def calling(x: f32[4]):
            attrs.func_kind = "public"
            x[1] = walk(x)

        @hidet.script
        def launching(x: f32[4], n: i64):
            attrs.func_kind = "public"
            for i in range(n):
                for k in grid(4, attrs="p"):
                    x[k] = x[k] + 1.0

    built = module.build("cpu")
    x = numpy.zeros(4, numpy.float32)

    def interrupted(name, *arguments):
        sent = []

        def send():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.3, send)
        timer.start()
        try:
            built[name](x, *arguments)
            print(name, "ended")
        except BaseException as error:
            print(name, type(error).__name__, "soon" if time.monotonic() - sent[0] < 1.0 else "late")
        timer.join()

    interrupted("endless")
    interrupted("counted", 1 << 60)
    interrupted("nested", 1 << 40)
    interrupted("calling")
    interrupted("launching", 1 << 40)
    built["counted"](x, 10)

    # The handler of a user that raises nothing lets the call go on, one that raises ends it with its own exception.
    heard = []

    def handler(number, frame):
        heard.append(number)
        if len(heard) == 2:
            raise LookupError("heard twice")
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    signal.signal(signal.SIGINT, handler)
    interrupted("endless")
    print("heard", len(heard))

    # Python's main thread goes on while another thread computes.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=built["endless"], args=(numpy.zeros(4, numpy.float32),), daemon=True)
    thread.start()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    except KeyboardInterrupt:
        print("main", thread.is_alive())
    sys.stdout.flush()
    os._exit(0)
    """
)


def test_a_signal_ends_loops_of_compiled_code_within_a_second(tmp_path):
    """red-team.md finding 11."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout.splitlines() == [
        "endless KeyboardInterrupt soon",
        "counted KeyboardInterrupt soon",
        "nested KeyboardInterrupt soon",
        "calling KeyboardInterrupt soon",
        "launching KeyboardInterrupt soon",
        "endless LookupError soon",
        "heard 2",
        "main True",
    ], ran.stderr


n = hidet.dims.symbol("n")

with hidet.script_module() as module:

    @hidet.script
    def kernel(x: f32[n], k: i32):
        attrs.func_kind = "kernel"
        attrs.cuda.grid_dim = 2
        attrs.cuda.block_dim = 32
        for i in range(k):
            x[i] = 1.0

    @hidet.script
    def few(x: f32[n]):
        attrs.func_kind = "public"
        for i in range(8):
            for j in range(8):
                x[i * 8 + j] = 1.0
        for i in grid(n, attrs="p"):
            for _ in range(n):
                x[i] = x[i] + 1.0


def test_loops_of_kernels_and_those_of_few_turns_do_not_poll():
    given = module.ir_module()
    for in_kernels in (True, False):
        polling = with_polls(given, in_kernels=in_kernels)
        assert all(new is old for new, old in zip(polling.functions, given.functions, strict=True))
    assert "poll" not in module.build("cpu").source()


def test_an_innermost_loop_keeps_its_body_and_polls_between_parts():
    @hidet.script
    def fill(x: f32[n], k: i64):
        for i in range(k):
            x[i] = 1.0

    polling = with_polls(hidet.lang.module.module_of([fill]), in_kernels=True)
    text = print_module(polling)
    assert text.count("poll") == 1
    assert f"min({PART}, " in text
    inner = text[text.index(f"min({PART}, ") :]
    assert "poll" not in inner


def test_loops_in_parts_take_every_turn():
    import numpy as np

    @hidet.script
    def count(x: i64[3], start: i64, stop: i64):
        for i in range(start, stop, 3):
            x[0] += 1
            x[1] += i
            x[2] = i

    for stop in (7, 3 * PART - 1, 3 * PART + 9, 6 * PART + 10):
        x = np.zeros(3, np.int64)
        count(x, 7, stop)
        turns = range(7, stop, 3)
        assert x.tolist() == [len(turns), sum(turns), turns[-1] if turns else 0]


def test_the_interpreter_passes_polls_over():
    from hidet.ir.interpret import run_module

    @hidet.script
    def halve(x: f32[1]):
        while x[0] > 1.0:
            x[0] = x[0] * 0.5

    import numpy as np

    x = np.array([1e6], np.float32)
    run_module(with_polls(hidet.lang.module.module_of([halve]), in_kernels=True), [x])
    assert x[0] == pytest.approx(1e6 / 2**20)

"""Definitions of tasks in files, which run nothing when they are opened."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

import hidet
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.ir.compute import arg_reduce, compute, reduce, tensor_input
from hidet.ir.expr import cast, if_then_else
from hidet.ir.primitives import exp


def softmax():
    n = hidet.symbol_var("n")
    a = tensor_input("a", "float32", [n, 5])
    largest = compute("largest", [n], lambda i: reduce([5], lambda j: a[i, j], "max"))
    place = compute("place", [n], lambda i: arg_reduce(5, lambda j: a[i, j], "max"))
    powers = compute("powers", [n, 5], lambda i, j: exp(a[i, j] - largest[i]))
    sums = compute("sums", [n], lambda i: reduce([5], lambda j: powers[i, j], "sum"))
    marked = compute(
        "c", [n, 5], lambda i, j: powers[i, j] / sums[i] + if_then_else(cast(j, "int64") == place[i], 1, 0)
    )
    return hidet.Task("softmax", [a], [marked, place], attributes={"axis": 1})


@pytest.mark.filterwarnings("ignore::hidet.errors.FallbackWarning")  # two results of one kind of rows
def test_a_task_is_the_same_when_it_comes_back(tmp_path) -> None:
    task = softmax()
    hidet.save_task(task, tmp_path / "task")
    found = hidet.load_task(tmp_path / "task")
    assert str(found) == str(task) and found.attributes == {"axis": 1}
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    for one, other in zip(*(made.build("cpu").run_async([hidet.asarray(x)]) for made in (task, found)), strict=True):
        assert one.tolist() == other.tolist()


def test_a_task_with_a_program_of_its_own_stays_python(tmp_path) -> None:
    class Own(hidet.Task):
        def implement_cpu(self, working_dir):
            raise NotImplementedError

    given = softmax()
    own = Own("own", given.inputs, given.outputs)
    with pytest.raises(UnsupportedOp, match="task own has programs of its own") as refused:
        hidet.save_task(own, tmp_path / "task")
    assert "save" in refused.value.hint


def test_a_file_that_names_a_function_is_refused_and_runs_nothing(tmp_path) -> None:
    class Attack:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    (tmp_path / "bad").write_bytes(b"hidet task 1\n" + pickle.dumps(Attack()))
    with pytest.raises(ImportFailed, match=r"mkdir is no part of a definition"):
        hidet.load_task(tmp_path / "bad")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("data", [b"", b"something else", b"hidet task 1\n\x80\x04N.", b"hidet task 1\n\x80"])
def test_other_files_are_refused(data, tmp_path) -> None:
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(ImportFailed):
        hidet.load_task(tmp_path / "bad")

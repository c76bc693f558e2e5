"""Run damaged TFLite files and SavedModels in processes of their own and say how each ended.

    python -m tests.fuzz.tensorflow_files --count 1000 --jobs 2 --kinds tflite saved_model

TensorFlow makes the files. Good ends are an error of hidet, and a run whose outputs agree with TensorFlow's where that
runs the file, too. Damage may end a process inside of TensorFlow's own interpreter, which therefore has one of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.children import End, ends, in_batches, report, serve

MODULE = "tests.fuzz.tensorflow_files"
KINDS = ("tflite", "saved_model")
NUMBERS = (0, 1, 2, 3, 7, 16, 127, 255, 1 << 15, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
MAX_ELEMENTS = 1 << 20

Array = np.ndarray[Any, np.dtype[Any]]


# --- files -----------------------------------------------------------------------------------------------------------


def make_files(folder: Path) -> list[tuple[str, Path]]:
    """Small models of all kinds of operators as files in a folder: "tflite/…" and "saved_model/…" with their paths."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    found: list[tuple[str, Path]] = []
    for name, (function, shape) in _functions(tf).items():
        wrapped = _wrapped(tf, function, shape)
        module = tf.Module()
        module.call = wrapped
        saved = folder / f"saved_{name}"
        tf.saved_model.save(module, str(saved), signatures={"serving_default": wrapped})
        found.append((f"saved_model/{name}", saved))
        converter = tf.lite.TFLiteConverter.from_concrete_functions([wrapped.get_concrete_function()], module)
        found.append((f"tflite/{name}", _written(folder / f"{name}.tflite", converter)))
        if name == "images":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = partial(_samples, shape)
            found.append((f"tflite/{name} of codes", _written(folder / f"{name}_codes.tflite", converter)))
    return found


def _wrapped(tf: Any, function: Callable[[Any], Any], shape: tuple[int, ...]) -> Any:
    return tf.function(lambda x: {"y": function(x)}, input_signature=[tf.TensorSpec(shape, name="x")])


def _samples(shape: tuple[int, ...]) -> Iterator[list[Array]]:
    for seed in range(5):
        yield [np.random.default_rng(seed).random(shape, np.float32)]


def _written(path: Path, converter: Any) -> Path:
    path.write_bytes(converter.convert())
    return path


def _functions(tf: Any) -> dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]]:
    rng = np.random.default_rng(0)
    kernel = tf.constant(rng.standard_normal((3, 3, 3, 4)).astype(np.float32))
    weight = tf.constant(rng.standard_normal((4, 5)).astype(np.float32))

    def images(x: Any) -> Any:
        made = tf.nn.relu(tf.nn.conv2d(x, kernel, 2, "SAME"))
        pooled = tf.nn.max_pool2d(made, 2, 2, "VALID") + tf.nn.avg_pool2d(made, 2, 2, "VALID")
        return tf.nn.softmax(tf.reduce_mean(tf.pad(pooled, [[0, 0], [1, 1], [0, 0], [0, 0]]), [1, 2]) @ weight)

    def moves(x: Any) -> Any:
        parts = tf.split(tf.transpose(x), 2)
        joined = tf.concat([parts[1], parts[0][:, ::-1]], 0)
        return tf.reshape(tf.gather(joined, [3, 0, 2]), [-1, 2]) + tf.cast(tf.argmax(x, 1)[0], tf.float32)

    def loop(x: Any) -> Any:
        made = tf.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, tf.tanh(a) * 0.5 + x), (0, x))[1]
        return tf.cond(tf.reduce_sum(made) > 0, lambda: made + 1, lambda: made * 2)

    def boxes(x: Any) -> Any:
        kept = tf.image.non_max_suppression_padded(x[:, :4], x[:, 4], 4, 0.5, pad_to_max_output_size=True)[0]
        return tf.gather(x, kept) + tf.math.top_k(x, 2).values[:4, :1]

    return {
        "images": (images, (1, 9, 9, 3)),
        "moves": (moves, (4, 6)),
        "loop": (loop, (2, 3)),
        "boxes": (boxes, (6, 5)),
    }


# --- damage ----------------------------------------------------------------------------------------------------------


def changed_bytes(data: bytes, source: random.Random) -> bytes:
    """The bytes with one to three changes: bits, bytes, numbers of four bytes, parts that are gone or stand twice."""
    made = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        if len(made) < 8:
            break
        at = source.randrange(len(made) - 4)
        kind = source.random()
        if kind < 0.35:
            made[at] ^= 1 << source.randrange(8)
        elif kind < 0.92:
            at -= at % 4
            (old,) = struct.unpack_from("<I", made, at)
            number = source.choice((*NUMBERS, old + 1, old - 1, old * 2)) & 0xFFFFFFFF
            struct.pack_into("<I", made, at, number)
        elif kind < 0.94:
            del made[at:]
        elif kind < 0.97:
            del made[at : at + source.randint(1, 16)]
        else:
            made[at:at] = made[at : at + source.randint(1, 16)]
    return bytes(made)


def damaged(path: Path, seed: int, into: Path) -> Path:
    """A copy of a file, or of a folder, with damage that is the same for equal seeds."""
    source = random.Random(seed)
    if path.is_file():
        target = into / "damaged.tflite"
        target.write_bytes(changed_bytes(path.read_bytes(), source))
        return target
    target = into / "damaged"
    shutil.copytree(path, target)
    part = target / "saved_model.pb"
    if source.random() < 0.3:
        part.write_bytes(changed_bytes(part.read_bytes(), source))
    else:
        part.write_bytes(_changed_message(part.read_bytes(), source))
    return target


def _changed_message(data: bytes, source: random.Random) -> bytes:
    """A SavedModel with one to three nodes that have other operands, operators or attributes."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    message = SavedModel()
    message.ParseFromString(data)
    graph = message.meta_graphs[0].graph_def
    functions = [function for function in graph.library.function if function.node_def]
    for _ in range(source.randint(1, 3)):
        nodes = source.choice(functions).node_def
        node = source.choice(nodes)
        kind = source.random()
        if kind < 0.3 and node.input:
            node.input[source.randrange(len(node.input))] = source.choice((source.choice(nodes).name, "x:y:0", ""))
        elif kind < 0.4 and node.input:
            del node.input[-1]
        elif kind < 0.55:
            node.op = source.choice((source.choice(nodes).op, "Nothing", "MatMul", "While"))
        elif node.attr:
            attribute = node.attr[source.choice(sorted(node.attr))]
            _change(attribute, source)
    made: bytes = message.SerializeToString()
    return made


def _change(attribute: Any, source: random.Random) -> None:
    kind = attribute.WhichOneof("value")
    if kind == "i":
        attribute.i = source.choice((-1, 0, 1, 2, 1 << 31, -(1 << 40)))
    elif kind == "b":
        attribute.b = not attribute.b
    elif kind == "s":
        attribute.s = source.choice((b"", b"NCHW", b"SAME", b"\xff"))
    elif kind == "type":
        attribute.type = source.randrange(32)
    elif kind == "tensor":
        content = bytearray(attribute.tensor.tensor_content)
        if content:
            content[source.randrange(len(content))] ^= 1 << source.randrange(8)
            attribute.tensor.tensor_content = bytes(content)
        elif attribute.tensor.int_val:
            attribute.tensor.int_val[0] = source.choice((-1, 0, 1, 5, (1 << 31) - 1))
    elif kind == "func":
        attribute.func.name = source.choice(("", "nothing", attribute.func.name + "x"))
    elif kind == "list" and attribute.list.i:
        attribute.list.i[source.randrange(len(attribute.list.i))] = source.choice((-1, 0, 1, 2, 1 << 31))


# --- one file --------------------------------------------------------------------------------------------------------


def end_of(base: str, path: str, seed: int) -> End:
    """Damage a file, and run what comes of it in this process."""
    import hidet
    import hidet.tensorflow
    from hidet.errors import HidetError

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = damaged(Path(path), seed, Path(folder))
        try:
            read = hidet.tensorflow.from_tflite if target.is_file() else hidet.tensorflow.from_saved_model
            model = read(target)
            compiled = hidet.compile(model, options={"threads": 1})
            inputs = [_input(value.type, seed) for value in model.graph.inputs]
            if any(array is None for array in inputs):
                return End(base, seed, "ran", "imported; its inputs are not tensors of known size")
            outputs = compiled(*inputs)
        except HidetError as error:
            return End(base, seed, "refused", type(error).__name__)
        except BaseException as error:  # noqa: BLE001 - every other exception is what this looks for
            return End(base, seed, "uncaught", f"{type(error).__name__}: {str(error)[:200]}")
        return End(base, seed, *_judged(target, inputs, outputs))


def _input(entry: Any, seed: int) -> Array | None:
    shape = [extent if isinstance(extent, int) else 3 for extent in entry.shape]
    if np.prod([float(extent) for extent in shape]) > MAX_ELEMENTS:
        return None
    dtype = np.dtype(entry.dtype.numpy())
    rng = np.random.default_rng(seed)
    made = rng.random(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
    return made.astype(dtype)


class _Reference:
    """A process that runs files in TensorFlow, a line each; damage may end it, and another one takes its place."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, path: Path, inputs: Path) -> bool:
        """Whether TensorFlow ran the file; its results are in "outputs.npz" beside it."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, "--reference"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(path), str(inputs)]) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip() == "ran"


_REFERENCE = _Reference()


def _judged(path: Path, inputs: Sequence[Any], outputs: Any) -> tuple[str, str]:
    """("ran", …) where TensorFlow gives the same, or nothing."""
    given = path.parent / "inputs.npz"
    np.savez(given, *inputs)
    target = path.parent / "outputs.npz"
    if not _REFERENCE.run(path, given):
        return "ran", "no reference"
    made = list(outputs.values()) if isinstance(outputs, dict) else [outputs]
    with np.load(target) as expected:
        theirs = [expected[name] for name in expected.files]
    for number, (mine, other) in enumerate(zip(made, theirs, strict=False)):
        if np.shape(mine) != other.shape:
            return "wrong", f"output {number} has shape {list(np.shape(mine))}, TensorFlow's {list(other.shape)}"
        if other.dtype.kind in "iu":
            alike = np.array_equal(mine, other)
        else:
            alike = np.allclose(np.asarray(mine, float), other.astype(float), rtol=1e-3, atol=1e-4, equal_nan=True)
        if not alike:
            return "wrong", f"output {number} differs from TensorFlow's"
    return "ran", "compared with TensorFlow"


def serve_references() -> None:
    """What the process of a `_Reference` does: a file a line, until there are no more."""
    for line in sys.stdin:
        path, inputs = json.loads(line)
        try:
            write_reference(path, inputs)
            print("ran", flush=True)
        except Exception as error:  # noqa: BLE001 - where TensorFlow fails there is nothing to compare with
            print(type(error).__name__, flush=True)


def write_reference(path: str, inputs: str) -> None:
    """What TensorFlow makes of a file, beside it."""
    with np.load(inputs) as held:
        arrays = [held[name] for name in held.files]
    if path.endswith(".tflite"):
        import tensorflow as tf

        interpreter = tf.lite.Interpreter(path)
        details = interpreter.get_input_details()
        for entry, array in zip(details, arrays, strict=True):
            interpreter.resize_tensor_input(entry["index"], array.shape)
        interpreter.allocate_tensors()
        for entry, array in zip(details, arrays, strict=True):
            interpreter.set_tensor(entry["index"], array)
        interpreter.invoke()
        results = [interpreter.get_tensor(entry["index"]) for entry in interpreter.get_output_details()]
    else:
        import tensorflow as tf

        made = tf.saved_model.load(path).signatures["serving_default"](*map(tf.constant, arrays))
        results = [value.numpy() for value in made.values()]
    np.savez(Path(path).parent / "outputs.npz", *results)


# --- many files ------------------------------------------------------------------------------------------------------


def run(files: Sequence[tuple[str, Path]], count: int, jobs: int, first_seed: int = 0) -> list[End]:
    """Damage and run `count` files, `jobs` at a time."""
    seeds = range(first_seed, first_seed + count)
    return ends(MODULE, [(files[n % len(files)][0], str(files[n % len(files)][1]), n) for n in seeds], jobs)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--reference", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        serve(end_of)
    elif arguments.reference:
        serve_references()
    else:
        with tempfile.TemporaryDirectory() as folder:
            files = [entry for entry in make_files(Path(folder)) if entry[0].partition("/")[0] in arguments.kinds]
            jobs, seed = arguments.jobs, arguments.seed
            print(json.dumps([name for name, _ in files]))
            report(in_batches(arguments.count, lambda many, first: run(files, many, jobs, seed + first), most=50))


if __name__ == "__main__":
    main()

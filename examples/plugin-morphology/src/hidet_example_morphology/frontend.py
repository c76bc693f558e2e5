"""The front-end: a text file with an image and a step a line becomes a graph.

image u8 [1, 3, h, w]     element type and shape; a name is a size that each call may choose
dilate 5                  the greatest of 5 x 5 pixels; `erode 5`: the least
threshold 128             whether pixels are at least so great
label_regions             numbers of connected regions
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hidet import dtypes
from hidet.context import CompileContext
from hidet.errors import ImportFailed, UnsupportedOp, suggestion
from hidet.frontend import Emitter, Handler, NodeFacts, SizeNames, identifier, plugin_handlers
from hidet.graph import Graph, GraphBuilder, TensorType, Value
from hidet.loc import Loc

IMAGES = {"u8": dtypes.u8, "f32": dtypes.f32}


def _dilate(e: Emitter, image: Value, size: str) -> Value:
    return e.emit("dilate", image, size=int(size))


def _erode(e: Emitter, image: Value, size: str) -> Value:
    flip = "bitwise_not" if image.tensor.dtype is dtypes.u8 else "neg"
    return e.emit(flip, _dilate(e, e.emit(flip, image), size))


def _threshold(e: Emitter, image: Value, level: str) -> Value:
    return e.emit("greater_equal", image, e.constant(float(level), image.tensor.dtype))


def _label_regions(e: Emitter, mask: Value) -> Value:
    return e.emit("label_regions", mask)


STEPS: Mapping[str, Handler] = {
    "dilate": _dilate,
    "erode": _erode,
    "threshold": _threshold,
    "label_regions": _label_regions,
}


def import_recipe(path: str | os.PathLike[str], example_inputs: Any, ctx: CompileContext) -> Graph:
    """The graph of a recipe. ImportFailed and UnsupportedOp name its line."""
    lines = [line.partition("#")[0].split(maxsplit=1) for line in Path(path).read_text().splitlines()]
    builder = GraphBuilder(ctx.registry.operators, name=identifier(Path(path).stem))
    e = Emitter(builder)
    others = plugin_handlers("morphology", STEPS, ctx.registry)
    steps = {**STEPS, **{name: rows[0][1] for name, rows in others.items()}}
    image: Value | None = None
    for number, words in enumerate(lines, 1):
        with builder.at(Loc(str(path), number, name=" ".join(words))):
            if not words:
                continue
            if image is None:
                image = builder.input(_image_type(words, builder.loc), "image")
                continue
            if words[0] not in steps:
                raise UnsupportedOp(f"step {words[0]!r} is unknown", loc=builder.loc, hint=suggestion(words[0], steps))
            e.facts = NodeFacts(words[0], read=(True,))
            try:
                image = steps[words[0]](e, image, *" ".join(words[1:]).split())
            except (TypeError, ValueError) as error:
                raise ImportFailed(f"step {' '.join(words)!r}: {error}", loc=builder.loc) from error
    if image is None:
        raise ImportFailed(f"{path} describes no image", hint="begin with `image u8 [1, 3, h, w]`")
    return builder.build([image])


def _image_type(words: list[str], loc: Loc | None) -> TensorType:
    kind, _, shape = words[1].partition(" ") if len(words) == 2 else ("", "", "")
    extents = [extent.strip() for extent in shape.strip("[] ").split(",")]
    if words[0] != "image" or kind not in IMAGES or len(extents) != 4:
        raise ImportFailed("the first line is not an image", loc=loc, hint="write `image u8 [1, 3, h, w]`")
    sizes = SizeNames()
    return TensorType(IMAGES[kind], tuple(int(n) if n.isdecimal() else sizes.named(n) for n in extents))

"""`ctc_beam_search`: the most probable labels of a sequence, by a search over prefixes (Graves, "Supervised Sequence
Labelling with Recurrent Neural Networks", 2012, section 7.5).

A beam is a prefix of labels with three numbers, logarithms of probabilities: of all ways to spell it with the steps so
far (`total`), of those that end in a blank, and of those that end in its last label. TensorFlow's decoder goes over the
beams in their order and gives the worst up as soon as it finds a better one. A beam that was given up may be found
again in the same step, or be refused, and only one that was refused does not grow. Which labels come out of a narrow
search depends on all that, so it is a part of what this operator means. Among beams of the same probability
TensorFlow's order is that of its heap; ours is that in which they were found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, Routine
from hidet.compute.routine import RoutineSpec
from hidet.errors import DTypeError, ShapeError
from hidet.graph.operator import Attribute, OperatorSpec

ROUTINE = RoutineSpec(
    name="tensorflow.ctc_beam_search",
    operands=("scores", "lengths"),
    results=("labels", "probable"),
    attributes=(("width", 100), ("paths", 1)),
    reference="hidet.tensorflow.beam_search:search",
    program="hidet.tensorflow.beam_program:search_program",
    doc="The `paths` most probable labels of each utterance that a search with `width` beams finds.",
)


def _define(scores: Operand, lengths: Operand, *, width: int, paths: int) -> Definition:
    name = "tensorflow.ctc_beam_search"
    if scores.dtype not in (dtypes.f32, dtypes.f64) or lengths.dtype is not dtypes.i64:
        raise DTypeError(
            f"operator {name} takes f32 or f64 scores and i64 lengths, got {scores.dtype}, {lengths.dtype}"
        )
    if scores.rank != 3 or lengths.rank != 1:
        raise ShapeError(f"operator {name} takes scores[time, batch, classes] and lengths[batch]")
    if not 0 < paths <= width:
        raise ShapeError(f"operator {name}: {paths} paths of {width} beams")
    time, batch, _ = scores.shape
    labels = Operand("labels", dtypes.i64, (batch, paths, time))
    probable = Operand("probable", scores.dtype, (batch, paths))
    attributes = (("width", width), ("paths", paths))
    stage = Routine(ROUTINE, (scores, lengths), (labels, probable), attributes)
    return Definition((scores, lengths), (stage,), (labels, probable), equal=((batch, lengths.shape[0]),))


SPEC = OperatorSpec(
    name="tensorflow.ctc_beam_search",
    inputs=("scores", "lengths"),
    attributes=(Attribute("width", 100, "how many beams a step keeps"), Attribute("paths", 1, "how many are results")),
    kind="routine",
    define=_define,
    doc="Of scores[time, batch, classes], logarithms of probabilities with the blank as the last class, and "
    "lengths[batch]: the best labels, i64[batch, paths, time], -1 behind their end, and the logarithms of their "
    "probabilities [batch, paths], best first. Where fewer beams are found than paths are asked for, the others have "
    "no labels and -inf. TensorFlow's CTCBeamSearchDecoder.",
)


@dataclass(frozen=True, slots=True)
class _Beam:
    prefix: tuple[int, ...]
    blank: Any
    label: Any
    total: Any


def search(arrays: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
    """The reference of the routine."""
    import numpy as np

    scores, lengths = arrays
    time, batch, _ = scores.shape
    labels = np.full((batch, attributes["paths"], time), -1, np.int64)
    probable = np.full((batch, attributes["paths"]), -math.inf, scores.dtype)
    nothing = scores.dtype.type(-math.inf)
    for utterance in range(batch):
        beams = [_Beam((), scores.dtype.type(0), nothing, scores.dtype.type(0))]
        for said in scores[: max(int(lengths[utterance]), 0), utterance]:
            beams = _step(beams, said, attributes["width"])
        for path, beam in enumerate(beams[: attributes["paths"]]):
            labels[utterance, path, : len(beam.prefix)] = beam.prefix
            probable[utterance, path] = beam.total
    return [labels, probable]


def _step(beams: Sequence[_Beam], said: Any, width: int) -> list[_Beam]:
    """The beams behind one more step, best first. said: [classes]."""
    import numpy as np

    nothing = said.dtype.type(-math.inf)
    after: list[_Beam] = []
    before = {beam.prefix: beam for beam in beams}
    active = set(before)

    def is_candidate(total: Any) -> bool:
        return bool(total > nothing and (len(after) < width or total > after[-1].total))

    def keep(beam: _Beam) -> None:
        if len(after) == width:
            active.discard(after.pop().prefix)
        place = next((n for n, other in enumerate(after) if other.total < beam.total), len(after))
        after.insert(place, beam)
        active.add(beam.prefix)

    for beam in beams:
        label = beam.label
        if beam.prefix:
            parent = beam.prefix[:-1]
            if parent in active:
                label = np.logaddexp(label, _passed(before[parent], beam.prefix[-1]))
            label = label + said[beam.prefix[-1]]
        blank = beam.total + said[-1]
        total = np.logaddexp(blank, label)
        active.discard(beam.prefix)
        if total > nothing:
            keep(_Beam(beam.prefix, blank, label, total))
    refused: set[tuple[int, ...]] = set()
    for beam in beams:
        if beam.prefix in refused or not is_candidate(beam.total):
            continue
        for added, score in enumerate(said[:-1]):
            total = score + _passed(beam, added)
            prefix = (*beam.prefix, added)
            if prefix not in active:
                if is_candidate(total):
                    keep(_Beam(prefix, nothing, total, total))
                else:
                    refused.add(prefix)
    return after


def _passed(beam: _Beam, label: int) -> Any:
    """What a beam passes on to itself with one more label: the same label again is another one behind a blank alone."""
    return beam.blank if beam.prefix[-1:] == (label,) else beam.total

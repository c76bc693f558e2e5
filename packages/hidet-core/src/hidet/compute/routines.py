"""Core's routines, as data: what each takes, gives and means, and the thread IR that serves every target."""

from __future__ import annotations

from hidet.compute.routine import RoutineSpec

SORT = RoutineSpec(
    name="sort",
    operands=("x",),
    results=("values", "indices"),
    attributes=(("axis", -1), ("descending", False)),
    reference="hidet.compute.routine_references:sort",
    program="hidet.schedule.routines.sorting:sort_program",
    doc="x sorted stably along an axis, NaN as the largest value, and where each element came from.",
)
ARGSORT = RoutineSpec(
    name="argsort",
    operands=("x",),
    results=("indices",),
    attributes=(("axis", -1), ("descending", False)),
    reference="hidet.compute.routine_references:argsort",
    program="hidet.schedule.routines.sorting:sort_program",
    doc="The second result of sort alone.",
)
TOPK = RoutineSpec(
    name="topk",
    operands=("x",),
    results=("values", "indices"),
    attributes=(("k", 1), ("axis", -1), ("largest", True)),
    reference="hidet.compute.routine_references:topk",
    program="hidet.schedule.routines.sorting:topk_program",
    doc="The k largest (or smallest) elements along an axis, best first; among equals the earlier one first.",
)
NONZERO = RoutineSpec(
    name="nonzero",
    operands=("x",),
    results=("indices",),
    reference="hidet.compute.routine_references:nonzero",
    doc="Indices of the elements that are not zero, in row-major order: i64[count, rank of x].",
)
MASKED_SELECT = RoutineSpec(
    name="masked_select",
    operands=("x", "mask"),
    results=("values",),
    reference="hidet.compute.routine_references:masked_select",
    doc="The elements of x where the bool mask is true, in row-major order; x and mask broadcast.",
)
UNIQUE = RoutineSpec(
    name="unique",
    operands=("x",),
    results=("values", "inverse", "counts"),
    attributes=(("axis", None),),
    reference="hidet.compute.routine_references:unique",
    doc="Distinct elements in ascending order (slices along `axis` if given), where each element of x is among "
    "them, and how often each occurs. NaN differs from NaN.",
)
COMMON_DIVISOR = RoutineSpec(
    name="common_divisor",
    operands=("a", "b"),
    results=("divisors",),
    reference="hidet.compute.routine_references:common_divisor",
    program="hidet.schedule.routines.common_divisor:common_divisor_program",
    doc="Greatest common divisors of integers, not negative; a and b broadcast.",
)
DETERMINANT = RoutineSpec(
    name="determinant",
    operands=("x",),
    results=("determinants",),
    reference="hidet.compute.routine_references:determinant",
    program="hidet.schedule.routines.determinant:determinant_program",
    doc="Determinants of the square matrices x[..., n, n], in the arithmetic type.",
)
ASSERT_POSITIONS = RoutineSpec(
    name="assert_positions",
    operands=("positions",),
    results=("token",),
    attributes=(("extent", 1), ("wraps", True), ("what", "")),
    reference="hidet.compute.routine_references:assert_positions",
    program="hidet.schedule.routines.assert_positions:assert_positions_program",
    doc="True, and an error that begins with `what` unless all positions lie on an axis of `extent`; negative ones "
    "count from its end when `wraps`.",
)
SUPPRESS = RoutineSpec(
    name="suppress",
    operands=("boxes", "scores", "most", "threshold", "least"),
    results=("kept",),
    attributes=(("centred", False),),
    reference="hidet.compute.overlap:suppress",
    program="hidet.schedule.routines.overlap:suppress_program",
    doc="For scores[image, class, box] the boxes kept, best score first, then -1: those that overlap no better "
    "kept one by more than `threshold`, with a score above `least`, at most `most`. boxes[image, box, 4] are "
    "opposite corners, or centres and sizes when `centred`.",
)

ROUTINES = (
    SORT,
    ARGSORT,
    TOPK,
    NONZERO,
    MASKED_SELECT,
    UNIQUE,
    COMMON_DIVISOR,
    DETERMINANT,
    ASSERT_POSITIONS,
    SUPPRESS,
)
"""All of them, which core's own plug-in module offers."""

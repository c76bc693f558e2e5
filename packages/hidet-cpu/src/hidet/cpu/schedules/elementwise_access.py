"""Where the elements of a region's tensors lie, as affine functions of few loops: those that remain when axes which all
tensors walk as one are merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hidet import dims
from hidet.compute.definition import Operand
from hidet.cpu.schedules.elementwise_region import Region
from hidet.cpu.schedules.gemm_program import parameter
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Access, Binary, Expr, Select, Var
from hidet.ir.node import IRNode
from hidet.ir.stmt import Stmt, Store
from hidet.ir.visit import accesses
from hidet.schedule.affine import Affine, affine_index, affine_offset, collapse_axes, other_variables
from hidet.schedule.lowering import KernelScope, Lowering

Read = Callable[[Access], "Expr | None"]


class RegionAccess:
    """The loops of a region and its tensors, inside a kernel whose parameters `scope` collects.

    is_part: the region is one of several of a result, which should share kernels.
    loops, sizes: merged axes, outermost first, and their extents. maps: offset of every access that is affine in them.
    """

    def __init__(
        self, region: Region, strides: Mapping[Operand, Sequence[Dim]], result: DType, is_part: bool = False
    ) -> None:
        self.region = region
        self.is_part = is_part
        self.maps: dict[Access, Affine] = {}
        found = accesses(region.value)
        for access in found:
            offset = affine_offset(access.indices, strides[access.operand])
            if offset is not None and set(offset.coefficients) <= set(region.axes):
                self.maps[access] = offset
        self.result_map = Affine(dict(zip(region.axes, region.strides, strict=True)), region.offset)
        pinned = other_variables(region.value, self.maps)
        groups = collapse_axes(region.axes, region.extents, [*self.maps.values(), self.result_map], pinned)
        self.loops = [region.axes[group[-1]] for group in groups]
        self.sizes = [dims.product([region.extents[position] for position in group]) for group in groups]
        self.scope = KernelScope()
        self.operands = tuple(dict.fromkeys(access.operand for access in found))
        self.pointers = {operand: self.scope.pointer(operand.name, operand.dtype) for operand in self.operands}
        self.result = self.scope.pointer("result", result)
        self._lowering = Lowering(self.scope, {})
        for operand in self.operands:
            if any(access.operand is operand and access not in self.maps for access in found):
                self._lowering.buffer(operand, self.pointers[operand], strides[operand])
        self._zeros: dict[Var, Expr] = {axis: build.index(0) for axis in region.axes if axis not in self.loops}
        self._sizes = {loop: self.scope.size(size, "n") for loop, size in zip(self.loops, self.sizes, strict=True)}
        maps = {access: self._parameters(offset) for access, offset in self.maps.items()}
        self._places = maps
        self._result_place = self._parameters(self.result_map)

    def size(self, loop: Var) -> Expr:
        """The extent of a loop inside the kernel."""
        return self._sizes[loop]

    def offset_of(self, access: Access, at: Mapping[Var, Expr]) -> Expr:
        """Offset of an access of `maps` where loops have the values `at` (themselves by default)."""
        return _place(self._places[access], at)

    def stride_of(self, access: Access, loop: Var) -> Expr:
        """Elements between neighbours along a loop, of an access of `maps`."""
        return _stride(self._places[access], loop)

    def result_stride(self, loop: Var) -> Expr:
        """Elements of the result between neighbours along a loop."""
        return _stride(self._result_place, loop)

    def result_offset(self, at: Mapping[Var, Expr]) -> Expr:
        """Offset of the result's element."""
        return _place(self._result_place, at)

    def compute(self, read: Read | None = None, at: Mapping[Var, Expr] | None = None) -> list[Stmt]:
        """Statements that compute and store one element. `read` may replace how an access is read."""
        bound = at or {}
        reads: dict[Access, Expr] = {}
        for access in self.maps:
            given = None if read is None else read(access)
            if given is None:
                given = build.load(self.pointers[access.operand], self.offset_of(access, bound))
            reads[access] = given
        # Formulas of injective operators have no reductions, which would need statements before them.
        value = self._lowering.resolve(self.region.value, {**self._zeros, **bound}, reads)
        return [Store(self.result, (self.result_offset(bound),), value)]

    def _parameters(self, offset: Affine) -> _Form:
        # The first part of a result starts at 0 like no other, which does not deserve a kernel of its own.
        scope, constant = self.scope, offset.constant
        start = parameter(scope, constant, "offset") if self.is_part else scope.size(constant, "offset")
        return start, [(loop, self.scope.size(offset.coefficient(loop), "stride")) for loop in self.loops]


_Form = tuple[Expr, list[tuple[Var, Expr]]]


def _stride(form: _Form, loop: Var) -> Expr:
    return next(stride for var, stride in form[1] if var is loop)


def _place(form: _Form, at: Mapping[Var, Expr]) -> Expr:
    total, terms = form
    for loop, stride in terms:
        total = total + at.get(loop, loop) * stride
    return total


def unconditional(value: Expr) -> set[Access]:
    """Accesses that are performed whatever conditions say. Those under a condition may lie outside their operands."""
    found: set[Access] = set()
    stack: list[IRNode] = [value]
    seen: set[int] = set()
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, Access):
            found.add(current)
        if isinstance(current, Select):
            stack.append(current.condition)
        elif isinstance(current, Binary) and current.op in ("land", "lor"):
            stack.append(current.a)
        else:
            stack.extend(current.children())
    return found


def stays_inside(access: Access, region: Region) -> bool:
    """Whether an access lies inside its operand for every index of the region, as far as can be proved."""
    extents = dict(zip(region.axes, region.extents, strict=True))
    for index, limit in zip(access.indices, access.operand.shape, strict=True):
        form = affine_index(index)
        if form is None:
            return False
        low: Dim = form.constant
        high: Dim = form.constant
        for axis, coefficient in form.coefficients.items():
            if axis not in extents or not isinstance(coefficient, int):
                return False
            reach = (extents[axis] - 1) * coefficient
            low, high = (low, high + reach) if coefficient > 0 else (low + reach, high)
        if dims.prove_le(0, low) is not True or dims.prove_lt(high, limit) is not True:
            return False
    return True

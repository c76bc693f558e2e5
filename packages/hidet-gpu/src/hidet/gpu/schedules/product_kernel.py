"""The parameters of a kernel of a product, its matrices, and what it stores of a sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import Operand
from hidet.dims import Dim
from hidet.gpu.schedules.narrow import COUNT, narrow_divisions
from hidet.gpu.schedules.product import MatrixOperand, PatchOperand, Product, known_align, moved
from hidet.gpu.tile.templates.matmul import StepScales
from hidet.gpu.tile.tensors import Gathered, GTensor, Stacked
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.visit import accesses
from hidet.schedule.affine import affine_offset
from hidet.schedule.lowering import KernelScope, Lowering
from hidet.schedule.task import Task


class ProductKernel:
    """One kernel under construction.

    multiplies, finishes: whether it reads the matrices, and whether it writes the task's output; else it writes sums.
    operands: tensors of the task that it reads, the first parameters; a pointer to what it writes is the next one.
    outer: the index of blocks that counts matrices of the batch or, where sums are written, the splits of k of each;
    `split` is the one that a block sums. computed_from: the tensors that the right operand is computed from, where it
    is none itself.
    """

    def __init__(
        self,
        task: Task,
        product: Product,
        *,
        multiplies: bool,
        finishes: bool,
        splits: Dim = 1,
        computed_from: Sequence[Operand] = (),
    ) -> None:
        read: list[Operand] = []
        if multiplies:
            read += [tensor.operand for tensor in product.a.tensors]
            read += computed_from or [tensor.operand for right in product.rights for tensor in right.tensors]
            read += [] if product.scales is None else [product.scales.a.operand, product.scales.b.operand]
        if finishes:
            read += [access.operand for access in accesses(product.value)]
        self.operands = tuple(dict.fromkeys(read))
        self.scope = KernelScope()
        self._task, self._product = task, product
        self._pointers = {operand: self.scope.pointer(operand.name, operand.dtype) for operand in self.operands}
        dtype = product.result.dtype if finishes else product.total.dtype
        self._target = self.scope.pointer("result", dtype)
        self.outer = build.size_var("matrix")
        self._splits = self.scope.size(splits, "splits")
        number, self.split = self.outer // self._splits, self.outer % self._splits
        self._numbers: list[Expr] = []
        self._counts: list[Expr] = [self._splits]
        for extent in reversed(product.batches[1:]):
            size = self.scope.size(extent, "batch")
            self._counts.append(size)
            self._numbers.insert(0, number % size)
            number = number // size
        if product.batches:
            self._numbers.insert(0, number)

    def narrow(self, function: Function) -> Function:
        """The kernel, with the index of a matrix and of a split found by division in 32 bits: no grid has more."""
        divisors = [count for count in self._counts if isinstance(count, Var)]
        if not divisors:
            return function
        return narrow_divisions(function, {self.outer: (0, COUNT[1]), **dict.fromkeys(divisors, COUNT)})

    def source(
        self, operand: MatrixOperand | PatchOperand, align: int, *, is_small: bool
    ) -> GTensor | Gathered | Stacked:
        """A matrix, whose rows or taps start at multiples of `align` bytes. is_small: whether its `unproven_sizes` are
        small."""
        pointers = [self._pointers[tensor.operand] for tensor in operand.tensors]
        return operand.source(self.scope, pointers, self._numbers, align, is_small=is_small)

    def twin(self, align: int, *, is_small: bool) -> GTensor | Gathered | Stacked | None:
        """The second right matrix, as of `source`; None where there is one alone."""
        twin = self._product.twin
        return None if twin is None else self.source(twin, align, is_small=is_small)

    def result(self, align: int) -> GTensor:
        """The task's output as a matrix."""
        product, scope = self._product, self.scope
        place = moved(scope, self._target, self._numbers, product.batch_strides)
        m, n = scope.size(product.m, "m"), scope.size(product.n, "n")
        return GTensor(place, m, n, scope.size(product.row_stride, "row_stride"), align)

    def sums(self, align: int) -> GTensor:
        """Where the partial sums of a split are written: one of [batch, splits, m, n]."""
        m, n = self.scope.size(self._product.m, "m"), self.scope.size(self._product.n, "n")
        place = build.binary("add", self._target, self.outer * (m * n))
        return GTensor(place, m, n, n, align)

    def unfinished(self, total: Expr, row: Expr, column: Expr) -> Expr:
        """What is stored of a sum that others are added to."""
        return total

    def epilogue_operands(self, c: GTensor, *, is_aligned: bool) -> dict[Operand, GTensor]:
        """What the value of an element reads at the element's own place alone: matrices like the result `c`, or rows,
        columns or single elements of such.

        Neighbours that their alignment takes at once lie inside together. is_aligned: whether addresses of those that
        have neighbours along a row are known to be multiples of 16.
        """
        product, found = self._product, dict[Operand, GTensor]()
        for operand, own in own_places(self._task, product).items():
            align = nbytes = operand.dtype.nbytes
            if own.has_columns and is_aligned:
                align = known_align(nbytes, own.row_stride, *own.batch_strides, product.n)
            place = moved(self.scope, self._pointers[operand], self._numbers, own.batch_strides)
            columns = c.columns if own.has_columns else build.index(1)
            found[operand] = GTensor(place, c.rows, columns, self.scope.size(own.row_stride, "row_stride"), align)
        return found

    def pointer(self, operand: Operand) -> Expr:
        """Where one of the `operands` starts."""
        return self._pointers[operand]

    @property
    def weights(self) -> tuple[Var, ...]:
        """The parameters that point to weights."""
        of_task = {tensor.operand for tensor in self._task.inputs if tensor.is_weight}
        return tuple(pointer for operand, pointer in self._pointers.items() if operand in of_task)

    @property
    def repeated_weights(self) -> tuple[Var, ...]:
        """The parameters that point to weights of which each row of the result reads the same, an element a column."""
        places = own_places(self._task, self._product).items()
        rows = {o for o, own in places if own.has_columns and {own.row_stride, *own.batch_strides} <= {0}}
        repeated = {pointer for operand, pointer in self._pointers.items() if operand in rows}
        return tuple(pointer for pointer in self.weights if pointer in repeated)

    def step_scales(self, step: int) -> StepScales | None:
        """What products of `step` elements along k, a part of a block, are multiplied with; None for nothing."""
        product, scales = self._product, self._product.scales
        if scales is None:
            return None
        a, b, size = scales.a.operand, scales.b.operand, scales.size
        lowering, last = self.lowering((a, b)), self.scope.size(product.m, "m") - 1
        last_block = self.scope.size(dims.ceildiv(product.k, size), "blocks") - 1

        def read(scale: Operand, number: Expr, place: Expr, share: int) -> Expr:
            """A scale by the number of a step, and a row or column, of which so many have the same one."""
            # Numbers that a kernel knows make no divisions.
            block = build.minimum(number if step == size else number // (size // step), last_block)
            own = place if share == 1 else place // share
            axes = block_var, own_var = build.size_var("block"), build.size_var("own")
            element = scale[axes[::-1] if scale is a else axes]
            return lowering.resolve(build.cast(element, dtypes.f32), {block_var: block, own_var: own})

        def of_row(number: Expr, row: Expr) -> Expr:
            return read(a, number, build.minimum(row, last), scales.rows)

        def of_columns(number: Expr, column: Expr) -> Expr:
            return read(b, number, column, scales.columns)

        return StepScales(of_row, of_columns)

    def lowering(self, operands: Iterable[Operand]) -> Lowering:
        """Lowers expressions that read tensors of the task."""
        lowering = Lowering(self.scope, {})
        strides = {tensor.operand: tensor.type.element_strides for tensor in self._task.inputs}
        for operand in operands:
            lowering.buffer(operand, self._pointers[operand], strides[operand])
        return lowering

    def finish(self, c: GTensor, epilogue_operands: Sequence[Operand] = (), *, is_inside: bool) -> Callable[..., Expr]:
        """What is stored in the task's output `c`: a function of the sums of `Product.totals`, their row, their column,
        and the elements there of the `epilogue_operands`.

        is_inside: whether it is asked for places inside of `c` only.
        """
        product = self._product
        reads = dict.fromkeys(
            access.operand for access in accesses(product.value) if access.operand not in epilogue_operands
        )
        lowering = self.lowering(reads)

        def value(*given: Expr) -> Expr:
            count = len(product.totals)
            totals, (row, column, *elements) = given[:count], given[count:]
            for operand, element in zip(epilogue_operands, elements, strict=True):
                lowering.readers[operand] = _always(element)
            sums = dict(zip(product.totals, totals, strict=True))
            bindings = {**product.place(self._numbers, row, column, c.columns), **sums}
            result = lowering.resolve(product.value, bindings)
            if is_inside or not reads:
                return result
            # Parts of a tile beyond the matrix are computed like the others, but must not be read for.
            inside = build.logical_and(row < c.rows, column < c.columns)
            return build.select(inside, result, build.const(0, result.dtype))

        return value


@dataclass(frozen=True, slots=True)
class OwnPlace:
    """Where an operand has what belongs to an element of the result: strides of its rows, 0 for the same row again and
    again, and of axes of the batch. has_columns: whether columns are neighbours in memory; else all are one."""

    row_stride: Dim
    batch_strides: tuple[Dim, ...]
    has_columns: bool


def own_places(task: Task, product: Product) -> dict[Operand, OwnPlace]:
    """Operands that are read at the place of the element alone."""
    strides = {tensor.operand: tensor.type.element_strides for tensor in task.inputs}
    found: dict[Operand, OwnPlace] = {}
    excluded: set[Operand] = set()
    for access in accesses(product.value):
        offset = affine_offset(access.indices, strides[access.operand])
        is_own = offset is not None and set(offset.coefficients) <= set(product.axes) and offset.constant == 0
        if offset is None or not is_own or offset.coefficient(product.column_axis) not in (0, 1):
            excluded.add(access.operand)
            continue
        has_columns = offset.coefficient(product.column_axis) == 1
        batch = tuple(offset.coefficient(axis) for axis in product.batch_axes)
        batch = (product.n,) if has_columns and product.is_side_by_side else batch
        own = OwnPlace(offset.coefficient(product.row_axis), batch, has_columns)
        if found.setdefault(access.operand, own) != own:
            excluded.add(access.operand)
    return {operand: own for operand, own in found.items() if operand not in excluded}


def _always(element: Expr) -> Callable[[Sequence[Expr]], Expr]:
    return lambda indices: element

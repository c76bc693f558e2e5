"""Whether a host program from a file can be run: what it reads exists, is filled before that, and is large enough.

A program that this accepts makes the executor read and write inside of memory that it has, as far as that can be told
without the code of its segments, to which `hidet.runtime.identity` binds it. Sizes that are symbolic are held against
each other where that can be proved or refuted. Every rule that is broken raises VerifyError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from hidet.dims import Dim, last_place, prove_equal, prove_le, symbols
from hidet.dtypes import DType, boolean, i64
from hidet.errors import VerifyError
from hidet.runtime.program import (
    Branch,
    ForeignCall,
    HostProgram,
    InputSlot,
    Loop,
    ObjectSlot,
    OutputSlot,
    Place,
    PositionCheck,
    ReadSizes,
    Segment,
    Step,
    SubProgram,
    SymbolSource,
    TensorSlot,
    output_sizes,
    step_sizes,
    subprograms,
)
from hidet.runtime.signature import Entries, Fixed, Form, GraphInput, GraphOutput, Items, Signature
from hidet.runtime.stages import Stage, split_stages

MAX_SLOTS = 1 << 24
"""Slots of a table: far more than programs have, and not more than fits into memory."""

_LARGEST = 1 << 62  # sizes and addresses are numbers of 64 bits


def verify_program(program: HostProgram, constants: Sequence[Any], prepare_constants: Sequence[Any] = ()) -> None:
    """VerifyError for a program that cannot be run on these arrays: its constants, and those of its prepare program."""
    _Verifier(program, constants).run()
    if program.prepare is None:
        if program.prepared:
            _fail("slots are prepared, but there is no prepare program")
        return
    if program.prepare.prepare is not None:
        _fail("the prepare program has a prepare program")
    _Verifier(program.prepare, prepare_constants).run()
    _verify_prepare(program, program.prepare)


def verify_signature(signature: Signature | None, program: HostProgram) -> None:
    """VerifyError for a signature from whose arguments the inputs of the program do not follow, or that returns other
    results than the program has."""
    if signature is None:
        return
    names = [parameter.name for parameter in signature.parameters]
    if len(set(names)) != len(names):
        _fail("two parameters have one name")
    _require_between(signature.positional, 0, len(names), "the number of parameters by position")
    found: set[int] = set()
    for parameter in signature.parameters:
        numbers = {number for number in _leaves(parameter.form, GraphInput) if number is not None}
        if parameter.is_optional and numbers:
            _fail(f"parameter {parameter.name} may be left out, but is read")
        found |= numbers
    if found != set(range(len(program.inputs))):
        _fail(f"parameters tell inputs {sorted(found)} of {len(program.inputs)}")
    if signature.results is not None:
        count = sum(1 for output in program.outputs if output.mutates is None)
        for number in _leaves(signature.results, GraphOutput):
            assert isinstance(number, int)
            _require_between(number, 0, count - 1, "the number of a result")


def _leaves(form: Form, kind: type[GraphInput | GraphOutput]) -> Iterable[int | None]:
    """Numbers of the inputs, or of the results, that a form is made of."""
    if isinstance(form, GraphInput | GraphOutput):
        if not isinstance(form, kind):
            _fail(f"{form} stands where a {kind.__name__} is expected")
        if form.number is not None or kind is GraphOutput:
            _require_int(form.number, "the number of an input or result")
        yield form.number
    elif isinstance(form, Fixed):
        if not (form.value is None or isinstance(form.value, bool | int | float | str)):
            _fail(f"{form.value!r} is no number")
    elif isinstance(form, Items):
        for item in form.items:
            yield from _leaves(item, kind)
    else:
        assert isinstance(form, Entries)
        if not all(isinstance(key, str | int) for key, _ in form.entries):
            _fail("a key of a mapping is neither a text nor a number")
        for _, item in form.entries:
            yield from _leaves(item, kind)


class _Verifier:
    """Follows one program through its stages.

    nbytes: of the memory at each slot that is filled so far; None where a tensor was made there. objects: slots of host
    values that are there so far. owned: slots that something fills. written: slots that steps besides segments write.
    """

    def __init__(self, program: HostProgram, constants: Sequence[Any]) -> None:
        self.program = program
        self.constants = constants
        self.nbytes: dict[int, Dim | None] = {}
        self.objects: set[int] = set()
        self.owned: set[int] = set()
        calls = [step for step in program.steps if isinstance(step, ForeignCall)]
        self.written = {result.slot for step in calls for result in step.results}
        self.has_code = any(isinstance(step, Segment) for step in program.steps)

    def run(self) -> None:
        program = self.program
        if _require_int(program.slots, "the length of the table") > MAX_SLOTS:
            _fail(f"the table has {program.slots} slots, expected at most {MAX_SLOTS}")
        self._symbols()
        stages = split_stages(program)
        self._inputs()
        self._constants()
        for stage in stages:
            self._stage(stage)
        for number, output in enumerate(program.outputs):
            self._output(number, output)

    # --- slots -------------------------------------------------------------------------------------------------------

    def _fill(self, slot: int, nbytes: Dim | None, what: str) -> None:
        """Memory at a slot that nothing else fills."""
        _require_between(slot, 0, self.program.slots - 1, f"the slot of {what}")
        if slot in self.owned:
            _fail(f"slot {slot} is filled twice, the second time with {what}")
        self.owned.add(slot)
        self.nbytes[slot] = nbytes

    def _put(self, slot: int, what: str) -> None:
        """A host value."""
        _require_between(slot, 0, self.program.slots - 1, f"the slot of {what}")
        if slot in self.objects:
            _fail(f"host value {slot} is made twice, the second time as {what}")
        self.objects.add(slot)

    def _inputs(self) -> None:
        for number, given in enumerate(self.program.inputs):
            what = f"input {number}"
            if [given.tensor, given.host, given.size].count(None) != 2:
                _fail(f"{what} is not one of a tensor, a host value and a size")
            if given.tensor is not None:
                _require_tensor(given.tensor, what)
                if given.tensor.offset != 0:
                    _fail(f"{what} has an offset")
                if given.is_used:
                    self._fill(given.tensor.slot, _reach(given.tensor), what)
            elif given.is_parameter:
                _fail(f"{what} is a parameter, but no tensor")
            elif given.host is not None:
                self._put(given.host.slot, what)
        overwritten = {output.mutates for output in self.program.outputs}
        for number in self.program.aligned:
            _require_between(number, 0, len(self.program.inputs) - 1, "the number of an aligned input")
            if self.program.inputs[number].tensor is None or number in overwritten:
                _fail(f"input {number} may be copied before a call, but is no tensor or overwritten")

    def _constants(self) -> None:
        program = self.program
        stored = dict(program.stored)
        _require_sizes(stored.values(), "what is stored")
        for constant in program.constants:
            _require_between(constant.index, 0, len(self.constants) - 1, "the number of a constant")
            array = self.constants[constant.index]
            if array.dtype.hasobject:
                self._put(constant.slot, "a constant")
                continue
            wanted = stored.get(constant.slot)
            if wanted is None or prove_le(wanted, array.nbytes) is not True:
                _fail(f"constant {constant.index} has {array.nbytes} bytes, expected {wanted}")
            self._fill(constant.slot, array.nbytes, "a constant")
        for slot in program.prepared:
            if slot not in stored:
                _fail(f"nothing tells how large what is prepared for slot {slot} is")
            self._fill(slot, stored[slot], "what is prepared")

    # --- symbols -----------------------------------------------------------------------------------------------------

    def _symbols(self) -> None:
        program = self.program
        names = [source.name for source in program.symbols]
        if len(set(names)) != len(names):
            _fail("a size is told twice by the arguments")
        shapes = [_shape_of(given) for given in program.inputs]
        for source in program.symbols:
            _verify_source(source, shapes, "input")
            if source.axis is None and program.inputs[source.input].size is None:
                _fail(f"input {source.input} does not tell {source.name}")
        told = {symbol.name for shape in shapes for dim in shape or () for symbol in symbols(dim)}
        told |= {s.name for given in program.inputs if given.size is not None for s in symbols(given.size)}
        if not told.issuperset(names):
            _fail(f"inputs do not tell size {min(set(names) - told)}")
        known = set(names)
        for step in program.steps:
            known.update(self._defined(step))
        sizes = [*(buffer.nbytes for buffer in program.buffers), *(dim for _, dim in program.sizes)]
        sizes += [size for output in program.outputs for size in output_sizes(output)]
        sizes += [size for check in program.size_checks for size in (check.left, check.right)]
        sizes += [check.value for check in program.number_checks]
        sizes += [size for step in program.steps for size in step_sizes(step)]
        _require_known(sizes, known, "no argument and no step")
        _require_sizes(sizes, "the program")
        for check in program.number_checks:
            if not check.dtype.is_int:
                _fail(f"{check.what} is checked to be of type {check.dtype.name}, expected an integer type")

    def _defined(self, step: Step) -> list[str]:
        if isinstance(step, ReadSizes):
            return [symbol.name for symbol in step.symbols]
        if isinstance(step, Segment | PositionCheck):
            return []
        shapes = [place.shape for place in step.results]
        for source in step.defines:
            _verify_source(source, shapes, f"result of {step.name}")
        return [source.name for source in step.defines]

    # --- stages and steps --------------------------------------------------------------------------------------------

    def _stage(self, stage: Stage) -> None:
        _require_known(stage.resolved, set(stage.names), "what happens before that")
        for buffer in stage.buffers:
            first, last = _require_int(buffer.first, "a step"), _require_int(buffer.last, "a step")
            if not 0 <= first <= last:
                _fail(f"a buffer is in use from step {first} to step {last}")
            self._fill(buffer.slot, buffer.nbytes, "a buffer")
        for slot, _ in stage.sizes:
            self._fill(slot, None, "a size")
            # No tensor lies there.
            del self.nbytes[slot]
        for number in stage.outputs:
            output = self.program.outputs[number]
            if output.storage is not None and output.tensor is not None:
                _require_tensor(output.tensor, f"result {number}")
                self._fill(output.tensor.slot, output.storage, f"result {number}")
        for number in stage.steps:
            self._step(self.program.steps[number])

    def _step(self, step: Step) -> None:
        if isinstance(step, Segment):
            return
        if isinstance(step, PositionCheck):
            self._reads(step.worst, (i64,), 1, step.what)
        elif isinstance(step, ReadSizes):
            self._reads(step.source, None, len(step.symbols), "a size")
        elif isinstance(step, ForeignCall):
            self._foreign(step)
        elif isinstance(step, Branch):
            self._reads(step.condition, (boolean,), 1, step.name)
            for sub in subprograms(step):
                self._sub(sub, step.results, step.name)
            self._made(step.results, step.name)
        else:
            self._loop(step)

    def _reads(self, place: TensorSlot, types: Sequence[DType] | None, count: int, what: str) -> None:
        """The host reads `count` numbers of these types (None: any integers or bools) that lie at `place`."""
        self._place(place, what)
        is_allowed = place.dtype in types if types else (place.dtype.is_int or place.dtype.is_bool)
        if not is_allowed or place.dtype.bits not in (8, 16, 32, 64):
            _fail(f"{what} is read from a tensor of type {place.dtype.name}")
        self._require_inside(place, place.offset + count, what)

    def _foreign(self, step: ForeignCall) -> None:
        for argument in step.arguments:
            if argument is not None:
                self._place(argument, step.name)
        if step.is_made:
            self._made(step.results, step.name)
        else:
            for result in step.results:
                if isinstance(result, ObjectSlot):
                    _fail(f"a host value of {step.name} has no place in memory")
                self._place(result, step.name)

    def _loop(self, step: Loop) -> None:
        body, first = step.body.program, 1 if step.tests else 0
        if isinstance(step.limit, TensorSlot):
            self._reads(step.limit, None, 1, step.name)
        if step.condition is not None:
            self._reads(step.condition, (boolean,), 1, step.name)
        _require_between(step.carried, 0, min(len(step.results), len(step.body.arguments) - 1), "what a loop carries")
        tests = body.outputs[:first]
        if len(tests) < first or any(o.tensor is None or o.tensor.dtype != boolean or o.tensor.shape for o in tests):
            _fail(f"the first result of {step.name} is no bool that ends it")
        counter = body.inputs[0] if body.inputs else None
        if counter is None or counter.tensor is None or counter.tensor.dtype != i64 or counter.tensor.shape:
            _fail(f"the first argument of {step.name} is no i64")
        if any(isinstance(place, ObjectSlot) for place in step.results[step.carried :]):
            _fail(f"{step.name} stacks host values")
        # The counter has memory of its own, and each iteration is given what the one before has made.
        self._sub(step.body, step.results[: step.carried], step.name, counters=1, tests=first)
        for place, given in zip(step.results[: step.carried], body.inputs[1:], strict=False):
            _require_fit(place, given, f"what {step.name} carries")
        made = [output for output in body.outputs if output.mutates is None][first:]
        if len(made) != len(step.results):
            _fail(f"{step.name} has {len(step.results)} results, its program {len(made)}")
        for place, output in zip(step.results[step.carried :], made[step.carried :], strict=True):
            assert isinstance(place, TensorSlot)
            if output.tensor is None or output.tensor.dtype != place.dtype:
                _fail(f"{step.name} stacks results of another type")
            if len(output.tensor.shape) + 1 != len(place.shape):
                _fail(f"{step.name} stacks results of another rank")
        self._made(step.results, step.name)

    def _sub(
        self,
        sub: SubProgram,
        results: Sequence[TensorSlot | ObjectSlot],
        what: str,
        *,
        counters: int = 0,
        tests: int = 0,
    ) -> None:
        """A program inside: its results after the first `tests` are those of a step, and its arguments after the first
        `counters` lie where the step says."""
        inner = sub.program
        if inner.prepare is not None or inner.prepared or any(given.is_parameter for given in inner.inputs):
            _fail(f"the program of {what} has parameters")
        if len(sub.arguments) != len(inner.inputs):
            _fail(f"the program of {what} takes {len(inner.inputs)} arguments, got {len(sub.arguments)}")
        pairs = list(enumerate(zip(sub.arguments, inner.inputs, strict=True)))
        for number, (argument, given) in pairs[counters:]:
            if isinstance(argument, TensorSlot | ObjectSlot):
                self._place(argument, what)
            _require_fit(argument, given, f"argument {number} of {what}")
        made = [output for output in inner.outputs if output.mutates is None][tests:]
        if len(made) < len(results):
            _fail(f"{what} has {len(results)} results, its program {len(made)}")
        for place, output in zip(results, made, strict=False):
            if isinstance(place, ObjectSlot):
                is_same = output.tensor is None
            else:
                is_same = output.tensor is not None and _may_be_same(place, output.tensor)
            if not is_same:
                _fail(f"a result of {what} is of another type than that of its program")
        _Verifier(inner, self.constants).run()

    def _made(self, results: Sequence[TensorSlot | ObjectSlot], what: str) -> None:
        for result in results:
            if isinstance(result, ObjectSlot):
                self._put(result.slot, what)
            else:
                _require_tensor(result, what)
                if result.offset != 0:
                    _fail(f"a result of {what} has an offset")
                self._fill(result.slot, None, what)

    # --- places ------------------------------------------------------------------------------------------------------

    def _place(self, place: Place, what: str) -> None:
        """Something that is there already, in memory that is large enough."""
        if isinstance(place, ObjectSlot):
            if place.slot not in self.objects:
                _fail(f"{what} reads host value {place.slot}, which is not there")
        elif isinstance(place, TensorSlot):
            _require_tensor(place, what)
            if place.slot not in self.nbytes:
                _fail(f"{what} reads slot {place.slot}, where no tensor is")
            if 0 not in place.shape:
                self._require_inside(place, place.offset + 1 + last_place(place.shape, place.strides), what)

    def _require_inside(self, place: TensorSlot, count: Dim, what: str) -> None:
        nbytes = self.nbytes[place.slot]
        if nbytes is not None and prove_le(count * place.dtype.nbytes, nbytes) is False:
            _fail(f"{what} reads {count} {place.dtype.name} of slot {place.slot}, which has {nbytes} bytes")

    # --- results -----------------------------------------------------------------------------------------------------

    def _output(self, number: int, output: OutputSlot) -> None:
        what = f"result {number}"
        if [output.tensor, output.host, output.size].count(None) != 2:
            _fail(f"{what} is not one of a tensor, a host value and a size")
        ways = [output.storage is not None, output.same_as is not None, output.mutates is not None, output.is_made]
        if output.tensor is None:
            if any(ways):
                _fail(f"{what} has memory, but is no tensor")
            if output.host is not None:
                self._place(output.host, what)
            return
        if sum(ways) != 1:
            _fail(f"{what} has memory of {sum(ways)} kinds, expected one")
        self._place(output.tensor, what)
        slot = output.tensor.slot
        if output.same_as is not None:
            _require_between(output.same_as, 0, number - 1, f"the result in whose memory {what} lies")
            other = self.program.outputs[output.same_as]
            if other.storage is None or other.tensor is None or other.tensor.slot != slot:
                _fail(f"{what} lies in memory that result {output.same_as} does not have")
        if output.mutates is not None:
            _require_between(output.mutates, 0, len(self.program.inputs) - 1, f"the input that {what} overwrites")
            given = self.program.inputs[output.mutates]
            if given.tensor is None or given.tensor.slot != slot or not given.is_used:
                _fail(f"{what} overwrites input {output.mutates}, which lies elsewhere")
        # Segments write to any slot.
        if output.storage is not None and not self.has_code and slot not in self.written:
            _fail(f"no step writes {what}")
        if output.is_made and self.nbytes[slot] is not None:
            _fail(f"{what} is made by no step")


def _verify_prepare(program: HostProgram, prepare: HostProgram) -> None:
    """What a program prepares fits what its prepare program takes and makes."""
    if prepare.inputs:
        _fail(f"the prepare program takes {len(prepare.inputs)} inputs, expected none")
    if len(program.prepared) != len(prepare.outputs):
        _fail(f"the prepare program makes {len(prepare.outputs)} results, expected {len(program.prepared)}")
    stored = dict(program.stored)
    for slot, output in zip(program.prepared, prepare.outputs, strict=True):
        if output.storage is None or prove_le(stored[slot], output.storage) is False:
            _fail(f"what is prepared for slot {slot} has {output.storage} bytes, expected {stored[slot]}")


def _verify_source(source: SymbolSource, shapes: Sequence[Sequence[Dim] | None], what: str) -> None:
    """shapes: where the value may come from; None for what has no shape."""
    _require_between(source.input, 0, len(shapes) - 1, f"the {what} that tells {source.name}")
    shape = shapes[source.input]
    if (source.axis is None) != (shape is None):
        _fail(f"{what} {source.input} does not tell {source.name}")
    if source.axis is not None and shape is not None:
        _require_between(source.axis, 0, len(shape) - 1, f"the axis that tells {source.name}")
    _require_int(source.offset, f"the offset of {source.name}")
    _require_between(source.multiplier, 1, _LARGEST, f"the multiplier of {source.name}")
    _require_between(source.divisor, 1, _LARGEST, f"the divisor of {source.name}")


def _shape_of(given: InputSlot) -> Sequence[Dim] | None:
    return given.tensor.shape if given.tensor is not None else None if given.host is None else given.host.shape


def _reach(tensor: TensorSlot) -> Dim:
    """Bytes up to the end of the last element."""
    return 0 if 0 in tensor.shape else (1 + last_place(tensor.shape, tensor.strides)) * tensor.dtype.nbytes


def _require_tensor(tensor: TensorSlot, what: str) -> None:
    """A tensor in memory that does not reach before its start."""
    _require_int(tensor.slot, f"the slot of {what}")
    if tensor.dtype.is_host_only:
        _fail(f"{what} is a tensor of type {tensor.dtype.name}, which is never in a slot")
    if len(tensor.shape) != len(tensor.strides):
        _fail(f"{what} has {len(tensor.shape)} extents and {len(tensor.strides)} strides")
    sizes = [*tensor.shape, *tensor.strides, tensor.offset]
    _require_sizes(sizes, what)
    if any(isinstance(size, int) and size < 0 for size in sizes):
        _fail(f"{what} has a negative extent, stride or offset")


def _require_fit(place: Place, given: InputSlot, what: str) -> None:
    """An argument is of the kind that an input of a program inside is."""
    if isinstance(place, TensorSlot):
        is_fit = given.tensor is not None and _may_be_same(place, given.tensor)
    else:
        is_fit = given.host is not None if isinstance(place, ObjectSlot) else given.size is not None
    if not is_fit:
        _fail(f"{what} is not what the program takes")


def _may_be_same(one: TensorSlot, other: TensorSlot) -> bool:
    """Whether two tensors have one type and layout, as far as their sizes are known numbers."""
    if one.dtype != other.dtype or len(one.shape) != len(other.shape):
        return False
    pairs = [*zip(one.shape, other.shape, strict=True)]
    if 0 not in one.shape:
        strides = zip(one.shape, one.strides, other.strides, strict=True)
        pairs += [(have, want) for extent, have, want in strides if extent != 1]
    return all(prove_equal(a, b) is not False for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def _require_known(sizes: Iterable[Dim], known: set[str], source: str) -> None:
    for size in sizes:
        unknown = [symbol.name for symbol in symbols(size) if symbol.name not in known]
        if unknown:
            _fail(f"{source} tells size {unknown[0]}")


def _require_sizes(sizes: Iterable[Dim], what: str) -> None:
    for size in sizes:
        if isinstance(size, int) and not -_LARGEST <= size <= _LARGEST:
            _fail(f"{what} has a size of {size.bit_length()} bits")


def _require_int(value: Any, what: str) -> int:
    if type(value) is not int:
        _fail(f"{what} is {value!r}, expected an integer")
    return value


def _require_between(value: Any, lowest: int, highest: int, what: str) -> None:
    if not lowest <= _require_int(value, what) <= highest:
        _fail(f"{what} is {value}, expected {lowest} to {highest}")


def _fail(message: str) -> NoReturn:
    raise VerifyError(f"the host program cannot be run: {message}")

"""Host functions of a module as thread IR that a CPU target compiles: launches become calls of the CUDA driver.

Every host function takes the launch context first: words of the stream, the driver's context of the device, the
driver's first error, the kernel that failed and what its launch asked for. Once there is an error nothing more is
launched.

A function that Python calls, which takes the address of a table alone, makes the device current for as long as it runs.
Asking the driver from compiled code takes nanoseconds; from Python it would be a tenth of a call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hidet import dtypes
from hidet.cuda.host_map import encoded_map
from hidet.cuda.launch_context import (
    ASKED,
    CELL,
    DEVICE,
    ERROR,
    FAILED,
    GET_CURRENT,
    INDEPENDENT,
    LAUNCH,
    LAUNCH_EX,
    LAUNCHED,
    POP_CURRENT,
    PUSH_CURRENT,
    STREAM,
    WAITS,
)
from hidet.cuda.launch_flags import is_independent_flag
from hidet.cuda.passes.overlapped_launches import OVERLAPPED
from hidet.cuda.tensor_map import map_request
from hidet.errors import CodegenError
from hidet.gpu.host_functions import (
    as_word,
    device_functions,
    is_called_by_python,
    replace_arguments,
    three_extents,
    words_on_stack,
)
from hidet.gpu.weights import weights_of
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Bitcast, Call, Const, Expr, Load, Var
from hidet.ir.func import FINISHES, SYMBOL, Function, Module
from hidet.ir.node import IRNode
from hidet.ir.types import BufferType, PointerType
from hidet.ir.visit import asserts_reach_host, rewrite, walk

_WORD = dtypes.i64
_NULL = Const(0, _WORD)
# CUlaunchAttributeID of the driver API, and sizes of its structures in 8-byte words.
_COOPERATIVE, _CLUSTER_DIMENSION, _STREAM_SERIALIZATION = 2, 4, 6
_REDUCE = "cuda.tensor_reduce"
_CONFIG_WORDS, _ATTRIBUTE_WORDS = 7, 9


def host_module(module: Module, shared_bytes: Mapping[str, int]) -> Module | None:
    """The host functions of `module` for a CPU target; None when it has none.

    shared_bytes: memory that kernels need beyond what they declare, to be asked for at each launch.
    """
    kernels = {f.name: f for f in module.functions if f.kind == "kernel"}
    # Looked at where a map is made, which most modules do not.
    adds_boxes = functools.cache(lambda: _adds_boxes(module))
    # Kernels tell of failed assertions in another way.
    asserts = functools.cache(lambda: asserts_reach_host(module, kernel_asserts_reach_host=False))
    hosts = (_Host(f, kernels, shared_bytes, adds_boxes, asserts) for f in module.functions if f.kind == "host")
    host = tuple(function for maker in hosts for function in maker.functions())
    if not host:
        return None
    called = device_functions(module, host)
    defined = {f.name for f in (*host, *called)}
    externals = tuple(name for name in module.externals if name not in defined)
    entry = module.entry if module.entry in defined else host[0].name
    return Module((*called, *host), entry, externals)


def _adds_boxes(module: Module) -> bool:
    """Whether something in a module adds boxes to what a tensor map describes."""
    nodes = (node for function in module.functions for node in walk(function.body))
    return any(isinstance(node, Call) and node.callee.startswith(_REDUCE) for node in nodes)


class _Host:
    def __init__(
        self,
        function: Function,
        kernels: Mapping[str, Function],
        shared: Mapping[str, int],
        adds_boxes: Callable[[], bool],
        asserts: Callable[[], bool],
    ) -> None:
        self.original = function
        self.kernels = kernels
        self.shared = shared
        self.adds_boxes = adds_boxes
        self.asserts = asserts
        self.context = Var("context", PointerType(_WORD))

    def functions(self) -> tuple[Function, ...]:
        """The function, and the one around it that Python calls where this one may end early."""

        def change(node: IRNode) -> IRNode | None:
            if isinstance(node, s.Launch):
                return self._launch(node)
            if isinstance(node, s.Invoke):
                return self._invoked(node)
            return None

        body = rewrite(self.original.body, change)
        params = (self.context, *self.original.params)
        if not is_called_by_python(self.original):
            return (replace(self.original, params=params, body=body),)
        if not self.asserts():
            return (replace(self.original, params=params, body=self._on_device(body)),)
        inner = Function(f"{self.original.name}.inner", params, body, "host")
        context, table = (Var(var.name, var.type) for var in params)
        self.context = context
        call = self._on_device(s.Invoke(inner.name, (context, table)))
        attributes = (*self.original.attributes, FINISHES)
        outer = replace(self.original, params=(context, table), body=call, attributes=attributes)
        return inner, outer

    def _invoked(self, node: s.Invoke) -> s.Stmt:
        """A call, and what its first launch is told. Where what it does not depend on launched nothing, it waits."""
        call = replace_arguments(node, (self.context, *node.arguments))
        if not node.is_independent:
            return build.seq([self._note(WAITS, _NULL), call])
        return build.seq(
            [self._note(INDEPENDENT, build.load(self.context, WAITS)), call, self._note(INDEPENDENT, _NULL)]
        )

    def _note(self, word: int, value: Expr) -> s.Stmt:
        """Write a word of the launch context."""
        return s.Store(self.context, (build.index(word),), value)

    def _on_device(self, body: s.Stmt) -> s.Stmt:
        """The body with the device current, and what was current before again at its end."""
        # What is current, and whether something is to be taken back at the end.
        here, status = Var("here", words_on_stack(2)), Var("status", dtypes.i32)
        place = Bitcast(build.address(here, 0), _WORD)
        device = build.load(self.context, DEVICE)
        enter = [
            s.Declare(status, Call(PUSH_CURRENT, (device,), dtypes.i32)),
            s.Store(self.context, (build.index(ERROR),), build.cast(status, _WORD)),
            s.Store(here, (build.index(1),), build.cast(build.binary("eq", status, 0), _WORD)),
        ]
        leave = s.If(build.binary("ne", build.load(here, 1), 0), s.Evaluate(Call(POP_CURRENT, (place,), dtypes.i32)))
        body = rewrite(body, lambda node: build.seq([leave, node]) if isinstance(node, s.Return) else None)
        return build.seq(
            [
                s.Declare(here),
                *(self._note(word, _NULL) for word in (LAUNCHED, WAITS, INDEPENDENT)),
                s.Store(here, (build.index(0),), _NULL),
                s.Store(here, (build.index(1),), _NULL),
                s.Evaluate(Call(GET_CURRENT, (place,), dtypes.i32)),
                s.If(build.binary("ne", build.load(here, 0), device), build.seq(enter)),
                body,
                leave,
            ]
        )

    def _launch(self, node: s.Launch) -> s.Stmt:
        if not node.block:
            raise CodegenError(
                f"kernel {node.kernel} is launched without threads", hint="run the pass gpu-block-launches before"
            )
        kernel = self.kernels.get(node.kernel)
        cells = Var("cells", words_on_stack(max(len(node.arguments), 1)))
        pointers = Var("pointers", words_on_stack(max(len(node.arguments), 1)))
        status = Var("status", dtypes.i32)
        stmts: list[s.Stmt] = [s.Declare(cells), s.Declare(pointers), s.Declare(status, Const(0, dtypes.i32))]
        cell = Call(SYMBOL + CELL + node.kernel, (), _WORD)
        for number, argument in enumerate(node.arguments):
            request = map_request(argument)
            if request is not None:
                encoding, argument = encoded_map(request, status, self.adds_boxes())
                stmts += [*encoding, self._noted(status, cell)]
            elif is_independent_flag(argument):
                argument = build.load(self.context, INDEPENDENT)
            stmts.append(s.Store(cells, (build.index(number),), as_word(argument)))
            param = None if kernel is None else kernel.params[number].type
            if isinstance(param, BufferType) and param.space == "constant":
                # By value: the parameter is what the address points to.
                place: Expr = build.load(cells, number)
            else:
                place = Bitcast(build.address(cells, number), _WORD)
            stmts.append(s.Store(pointers, (build.index(number),), place))
        grid, block = three_extents(node.grid), three_extents(node.block)
        shared = build.index(self.shared.get(node.kernel, 0))
        if node.shared_bytes is not None:
            flag = build.cast(build.load(self.context, INDEPENDENT), dtypes.i32)
            shared = shared + rewrite(node.shared_bytes, lambda n: flag if is_independent_flag(n) else None)
        handle = Var("handle", _WORD)
        stmts.append(s.Declare(handle, Load(Bitcast(cell, PointerType(_WORD)), (build.index(0),), _WORD)))
        attributes = self._attributes(node, kernel)
        if attributes:
            stmts += self._launch_with(attributes, status, handle, pointers, grid, block, shared)
        else:
            stream = build.load(self.context, STREAM)
            numbers = [build.cast(n, dtypes.u32) for n in (*grid, *block, shared)]
            arguments = (handle, *numbers, stream, Bitcast(build.address(pointers, 0), _WORD), _NULL)
            stmts.append(self._unless_failed(s.Assign(status, Call(LAUNCH, arguments, dtypes.i32))))
        stmts.append(self._noted(status, cell, (*grid, *block, shared)))
        stmts += [*(self._note(word, Const(1, _WORD)) for word in (LAUNCHED, WAITS)), self._note(INDEPENDENT, _NULL)]
        blocks = grid[0] * grid[1] * grid[2]
        return s.If(blocks > 0, self._unless_failed(build.seq(stmts)))

    def _unless_failed(self, stmt: s.Stmt) -> s.Stmt:
        """`stmt`, unless the driver has refused something already."""
        return s.If(build.equal(build.load(self.context, ERROR), 0), stmt)

    def _noted(self, status: Expr, cell: Expr, asked: Sequence[Expr] = ()) -> s.Stmt:
        """Note a result of the driver that is an error, which kernel it was for, and what the launch asked for."""
        noted = [
            s.Store(self.context, (build.index(ERROR),), build.cast(status, _WORD)),
            s.Store(self.context, (build.index(FAILED),), cell),
            *(s.Store(self.context, (build.index(n),), value) for n, value in enumerate(asked, ASKED)),
        ]
        return s.If(build.binary("ne", status, 0), build.seq(noted))

    def _attributes(self, node: s.Launch, kernel: Function | None) -> list[tuple[Expr, ...]]:
        """Words of each CUlaunchAttribute of a launch: its number, then its value."""
        found: list[tuple[Expr, ...]] = []
        if node.cluster:
            cluster = three_extents(node.cluster)
            found.append((Const(_CLUSTER_DIMENSION, _WORD), _pair(cluster[0], cluster[1]), _pair(cluster[2], _NULL)))
        if node.is_cooperative:
            # Its blocks need the device at the same time, and so do not begin beside those of another kernel.
            found.append((Const(_COOPERATIVE, _WORD), Const(1, _WORD)))
        elif kernel is not None and OVERLAPPED in kernel.attributes:
            # Where the first kernel of a call reads weights before it waits, a kernel of somebody else may have written
            # them just before: it begins behind all that the stream has.
            is_overlapped = build.load(self.context, LAUNCHED) if weights_of(kernel) else Const(1, _WORD)
            found.append((Const(_STREAM_SERIALIZATION, _WORD), is_overlapped))
        return found

    def _launch_with(
        self,
        attributes: Sequence[Sequence[Expr]],
        status: Var,
        handle: Var,
        pointers: Var,
        grid: Sequence[Expr],
        block: Sequence[Expr],
        shared: Expr,
    ) -> list[s.Stmt]:
        """A launch with attributes: CUlaunchConfig and the CUlaunchAttributes, written word by word."""
        config, table = (
            Var("config", words_on_stack(_CONFIG_WORDS)),
            Var("table", words_on_stack(_ATTRIBUTE_WORDS * len(attributes))),
        )
        numbers = [*grid, *block, shared, _NULL]
        words = [_pair(numbers[n], numbers[n + 1]) for n in range(0, 8, 2)]
        count = Const(len(attributes), _WORD)
        words += [build.load(self.context, STREAM), Bitcast(build.address(table, 0), _WORD), count]
        arguments = (
            Bitcast(build.address(config, 0), _WORD),
            handle,
            Bitcast(build.address(pointers, 0), _WORD),
            _NULL,
        )
        return [
            s.Declare(config),
            s.Declare(table),
            *(
                s.Store(table, (build.index(_ATTRIBUTE_WORDS * number + n),), value)
                for number, values in enumerate(attributes)
                for n, value in enumerate(values)
            ),
            *(s.Store(config, (build.index(n),), word) for n, word in enumerate(words)),
            self._unless_failed(s.Assign(status, Call(LAUNCH_EX, arguments, dtypes.i32))),
        ]


def _pair(low: Expr, high: Expr) -> Expr:
    """Two 32-bit numbers as a word."""
    return build.binary("or", low, build.binary("shl", high, build.index(32)))

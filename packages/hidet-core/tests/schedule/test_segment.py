"""The code of a segment."""

from __future__ import annotations

from hidet import dims, dtypes
from hidet.host.segment import CALLS_A_FUNCTION, Address, SegmentCode
from hidet.ir import build
from hidet.ir.expr import Var
from hidet.ir.func import APART, Function, Module
from hidet.ir.printer import print_module
from hidet.ir.stmt import Invoke, Seq
from hidet.ir.types import PointerType
from hidet.ir.verify import verify_module
from hidet.schedule.rule import Program

ROWS = dims.symbol("rows")


def _program(*sizes: dims.Dim) -> Program:
    """One of an input, an output and some sizes."""
    tensors = tuple(Var(name, PointerType(dtypes.f32)) for name in ("x", "y"))
    numbers = tuple(build.size_var(f"n{number}") for number in range(len(sizes)))
    return Program(Module((Function("double", (*tensors, *numbers), Seq(()), kind="host"),), "double"), sizes)


def _segment(program: Program, *calls: tuple[Address, Address]) -> SegmentCode:
    """Sizes are in slot 9."""
    code = SegmentCode("main", lambda size: 9)
    for addresses in calls:
        code.call("double_0", program, addresses)
    return code


def test_calls_of_one_program_write_its_sizes_once() -> None:
    module = _segment(_program(64, 768), ((0, 0), (1, 0)), ((1, 0), (2, 0)), ((2, 0), (3, 0))).module()
    verify_module(module)
    text = print_module(module)
    assert text.count("768") == 1
    assert text.count("double_0") == 2  # once as what is linked
    assert [f.name for f in module.functions] == ["main_call0", "main"]


def test_a_size_of_the_call_is_read_where_the_program_is_called() -> None:
    text = print_module(_segment(_program(64, ROWS), ((0, 0), (1, 0))).module())
    assert "table[9]" in text


def test_a_tensor_inside_of_anothers_memory_starts_later() -> None:
    code = _segment(_program(64), ((0, 0), (1, 0)), ((0, 32), (2, 0)), ((0, 96), (3, 0)), ((0, ROWS * 32), (4, 0)))
    module = code.module()
    verify_module(module)
    text = print_module(module)
    # One function for tensors at the start of their memory, one for inputs that begin later.
    assert [f.name for f in module.functions] == ["main_call0", "main_call1", "main"]
    for call in ("0, 2, 32", "0, 3, 96", "0, 4, table[9]"):
        assert call in text


def test_segments_are_known_by_what_they_call_with_what() -> None:
    def digest(program: Program, *calls: tuple[Address, Address]) -> str:
        return _segment(program, *calls).digest()

    same = [digest(_program(64, ROWS), ((0, 0), (1, 0))) for _ in range(2)]
    other = [
        digest(_program(65, ROWS), ((0, 0), (1, 0))),
        digest(_program(64, 9), ((0, 0), (1, 0))),
        digest(_program(64, ROWS), ((0, 0), (2, 0))),
        digest(_program(64, ROWS), ((0, 4), (1, 0))),
        digest(_program(64, ROWS), ((0, ROWS), (1, 0))),
        digest(_program(64, ROWS), ((0, 0), (1, 0)), ((0, 0), (1, 0))),
    ]
    assert len(set(same)) == 1
    assert len({*same, *other}) == 7


def test_no_function_of_a_long_segment_is_long() -> None:
    """red-team.md finding 9: LLVM took time that grew with the square of a function's length."""
    count = 3 * CALLS_A_FUNCTION + 1
    module = _segment(_program(64), *[((n, 0), (n + 1, 0)) for n in range(count)]).module()
    verify_module(module)
    bodies = {f.name: f.body.stmts if isinstance(f.body, Seq) else (f.body,) for f in module.functions}
    assert max(map(len, bodies.values())) == CALLS_A_FUNCTION
    *parts, whole = [function for function in module.functions if function.name != "main_call0"]
    assert [str(call.function) for call in bodies["main"] if isinstance(call, Invoke)] == [f.name for f in parts]
    called = [stmt for part in parts for stmt in bodies[part.name]]
    assert len(called) == count and whole.name == module.entry == "main"
    # A compiler that inlines the parts again, or the program into each place, would have a long function after all.
    assert all(f.attributes == APART for f in module.functions if f is not whole)


def test_a_program_that_is_called_once_may_be_inlined() -> None:
    module = _segment(_program(64), ((0, 0), (1, 0))).module()
    assert [f.attributes for f in module.functions] == [(), ()]

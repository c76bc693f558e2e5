"""Device functions around one PTX instruction, written from the intrinsic's signature.

A template names the parameters: {target} is their operand. Values are registers, immediates are template arguments,
shared memory is a 32-bit address of its window, global memory a 64-bit address, and arrays in registers are lists
{%0, %1, ...} of 32-bit words or floats. {result} is where the value goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hidet import dtypes
from hidet.cuda.codegen.spelling import SPELLING
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.gpu.codegen.prelude import Piece
from hidet.ir.intrinsic import Immediate, Intrinsic, Memory, Value

_CONSTRAINTS = {
    dtypes.boolean: "r",
    dtypes.i32: "r",
    dtypes.u32: "r",
    dtypes.i64: "l",
    dtypes.u64: "l",
    dtypes.u16: "h",
    dtypes.f32: "f",
    dtypes.tf32: "r",
    dtypes.f64: "d",
}


@dataclass(frozen=True, slots=True)
class Assembly:
    """A PTX template. writes: register arrays that it only writes; updates: those it reads and writes."""

    ptx: str
    writes: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()


class _Operands:
    """Operand numbers of one asm statement: outputs come before inputs."""

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.inputs: list[str] = []
        self.texts: dict[str, str] = {}
        self._pending: list[tuple[str, int, int]] = []

    def output(self, name: str, constraints: list[str]) -> None:
        first = len(self.outputs)
        self.outputs += constraints
        numbers = ", ".join(f"%{first + n}" for n in range(len(constraints)))
        self.texts[name] = numbers if len(constraints) == 1 and name == "result" else f"{{{numbers}}}"

    def input(self, name: str, constraints: list[str], is_list: bool) -> None:
        self._pending.append((name, len(self.inputs), len(constraints) if is_list else 0))
        self.inputs += constraints

    def finish(self) -> None:
        """Number the inputs, now that all outputs are known."""
        for name, first, count in self._pending:
            start = len(self.outputs) + first
            numbers = ", ".join(f"%{start + n}" for n in range(max(count, 1)))
            self.texts[name] = f"{{{numbers}}}" if count else numbers


def assembly_piece(row: Intrinsic, name: str, assembly: Assembly) -> Piece:
    """The device function `name` that executes `assembly` for the intrinsic `row`."""
    operands = _Operands()
    parameters: list[str] = []
    templates: list[str] = []
    needs: list[str] = []
    before: list[str] = []
    result = _result(row, operands)
    for parameter in row.parameters:
        _PARAMETERS[type(parameter)](parameter, assembly, operands, parameters, templates, needs, before)
    operands.finish()
    ptx = assembly.ptx
    for key, text in operands.texts.items():
        ptx = ptx.replace(f"{{{key}}}", text)
    head = f"template <{', '.join(templates)}> " if templates else ""
    signature = f"{head}__device__ __forceinline__ {result} {name}({', '.join(parameters)}) {{"
    volatile = "" if row.effect == "pure" else " volatile"
    clobber = "" if row.effect == "pure" or row.group == "mma" else ' : "memory"'
    body = f'asm{volatile}("{ptx}" : {", ".join(operands.outputs)} : {", ".join(operands.inputs)}{clobber});'
    lines = [signature, *(f"  {line}" for line in before)]
    if result != "void":
        lines.append(f"  {'unsigned' if result == 'bool' else result} result;")
    lines.append(f"  {body}")
    if result != "void":
        lines.append("  return result != 0;" if result == "bool" else "  return result;")
    return Piece(name, "\n".join([*lines, "}"]), tuple(needs))


def _result(row: Intrinsic, operands: _Operands) -> str:
    if row.result is None:
        return "void"
    if not isinstance(row.result, DType):
        raise CodegenError(f"{row.name} has no single result type; it needs a spelling of its own")
    operands.output("result", [f'"={_CONSTRAINTS[row.result]}"(result)'])
    return SPELLING.scalar_type(row.result)


def _value(
    parameter: Value,
    assembly: Assembly,
    operands: _Operands,
    parameters: list[str],
    templates: list[str],
    needs: list[str],
    before: list[str],
) -> None:
    dtype = parameter.dtypes[0]
    type_ = SPELLING.scalar_type(dtype)
    lanes = parameter.lanes[0]
    if lanes > 1:
        needs.append("lanes")
        parameters.append(f"Lanes<{type_}, {lanes}> {parameter.name}")
        cells = [f'"{_CONSTRAINTS[dtype]}"({parameter.name}.lane[{n}])' for n in range(lanes)]
        operands.input(parameter.name, cells, True)
        return
    parameters.append(f"{type_} {parameter.name}")
    given = f"(int){parameter.name}" if dtype.is_bool else parameter.name
    operands.input(parameter.name, [f'"{_CONSTRAINTS[dtype]}"({given})'], False)


def _immediate(
    parameter: Immediate,
    assembly: Assembly,
    operands: _Operands,
    parameters: list[str],
    templates: list[str],
    needs: list[str],
    before: list[str],
) -> None:
    templates.append(f"int {parameter.name}")
    operands.input(parameter.name, [f'"n"({parameter.name})'], False)


def _memory(
    parameter: Memory,
    assembly: Assembly,
    operands: _Operands,
    parameters: list[str],
    templates: list[str],
    needs: list[str],
    before: list[str],
) -> None:
    name = parameter.name
    if "register" in parameter.spaces:
        _fragment(parameter, assembly, operands, parameters, before)
        return
    parameters.append(f"const void* {name}")
    if parameter.spaces == ("shared",):
        needs.append("shared_address")
        operands.input(name, [f'"r"(shared_address({name}))'], False)
    elif parameter.spaces == ("global",):
        operands.input(name, [f'"l"(__cvta_generic_to_global({name}))'], False)
    else:
        # Tensor maps lie in parameter, constant or global memory; instructions take their generic address.
        operands.input(name, [f'"l"({name})'], False)


def _fragment(
    parameter: Memory, assembly: Assembly, operands: _Operands, parameters: list[str], before: list[str]
) -> None:
    """An array in registers: floats as they are, everything else as 32-bit words."""
    name, dtype = parameter.name, parameter.dtypes[0]
    kept = dtype in (dtypes.f32, dtypes.f64, dtypes.i32)
    type_ = SPELLING.scalar_type(dtype) if kept else "unsigned"
    constraint = _CONSTRAINTS[dtype] if kept else "r"
    count = max(parameter.nbytes // (dtype.nbytes if kept else 4), 1)
    writes = name in assembly.writes or name in assembly.updates
    parameters.append(f"{'' if writes else 'const '}void* {name}")
    words = f"{name}_words"
    before.append(f"{'' if writes else 'const '}{type_}* {words} = ({'' if writes else 'const '}{type_}*){name};")
    mode = "=" if name in assembly.writes else "+" if name in assembly.updates else ""
    cells = [f'"{mode}{constraint}"({words}[{n}])' for n in range(count)]
    if writes:
        operands.output(name, cells)
    else:
        operands.input(name, cells, True)


_PARAMETERS: dict[type, Callable[..., None]] = {Value: _value, Immediate: _immediate, Memory: _memory}


def function_name(row: Intrinsic) -> str:
    """The device function of an intrinsic: its name with underscores."""
    return row.name.replace(".", "_")

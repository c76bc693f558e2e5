"""Machine code of one module as bytes: its host functions as an object file, its kernels as programs of the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from hidet.errors import ArtifactError
from hidet.gpu.container import pack_parts, unpack_parts
from hidet.loc import Loc
from hidet.opencl.codegen.assertions import Assertion


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """Host code of a module (None when it has no host functions), the driver's programs, for each kernel by its name
    in the module the number of its program and its name there, and the module's assertions."""

    host: bytes | None
    programs: tuple[bytes, ...]
    kernels: Mapping[str, tuple[int, str]]
    assertions: tuple[Assertion, ...] = ()


def pack(module: CompiledModule) -> bytes:
    """The module as bytes."""
    assertions = [
        {**asdict(row), "loc": None if row.loc is None else [row.loc.file, row.loc.line, row.loc.column]}
        for row in module.assertions
    ]
    told = {"kernels": dict(module.kernels), "assertions": assertions}
    return pack_parts(told, [module.host or b"", *module.programs])


def unpack(data: bytes) -> CompiledModule:
    """The module that `pack` made bytes of. ArtifactError for other bytes."""
    header, parts = unpack_parts(data, "OpenCL")
    try:
        host, *programs = parts
        kernels = {name: (number, symbol) for name, (number, symbol) in header["kernels"].items()}
        outside = [name for name, (number, _) in kernels.items() if number not in range(len(programs))]
        if outside:
            raise ValueError(f"kernel {outside[0]} is in none of {len(programs)} programs")
        assertions = tuple(
            Assertion(row["function"], row["message"], row["values"], None if row["loc"] is None else Loc(*row["loc"]))
            for row in header["assertions"]
        )
        return CompiledModule(host or None, tuple(programs), kernels, assertions)
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"this is no code of the OpenCL target: {error}") from error

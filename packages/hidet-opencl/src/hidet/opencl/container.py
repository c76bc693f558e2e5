"""Machine code of one module as bytes: its host functions as an object file, its kernels as a program of the driver."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hidet.errors import ArtifactError
from hidet.gpu.container import pack_parts, unpack_parts
from hidet.loc import Loc
from hidet.opencl.codegen.assertions import Assertion


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """Host code of a module (None when it has no host functions), the driver's program (None without kernels), its
    kernels' names there by those in the module, and its assertions."""

    host: bytes | None
    program: bytes | None
    kernels: dict[str, str]
    assertions: tuple[Assertion, ...] = ()


def pack(module: CompiledModule) -> bytes:
    """The module as bytes."""
    assertions = [
        {**asdict(row), "loc": None if row.loc is None else [row.loc.file, row.loc.line, row.loc.column]}
        for row in module.assertions
    ]
    told = {"kernels": module.kernels, "assertions": assertions}
    return pack_parts(told, [module.host or b"", module.program or b""])


def unpack(data: bytes) -> CompiledModule:
    """The module that `pack` made bytes of. ArtifactError for other bytes."""
    header, parts = unpack_parts(data, "OpenCL")
    try:
        host, program = parts
        assertions = tuple(
            Assertion(row["function"], row["message"], row["values"], None if row["loc"] is None else Loc(*row["loc"]))
            for row in header["assertions"]
        )
        return CompiledModule(host or None, program or None, dict(header["kernels"]), assertions)
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"this is no code of the OpenCL target: {error}") from error

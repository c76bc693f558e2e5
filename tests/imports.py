"""The imports of all wheels, read from their sources with `ast`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
WHEELS = {path.parent.name: path.parent for path in sorted(ROOT.glob("packages/*/pyproject.toml"))}


@dataclass(frozen=True)
class Import:
    """One imported module, or names of a module, at a place."""

    wheel: str
    file: Path
    line: int
    module: str
    names: tuple[str, ...]
    is_inside_function: bool

    @property
    def place(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"

    @property
    def path(self) -> Path:
        """The importing file below `hidet`."""
        return self.file.relative_to(WHEELS[self.wheel] / "src" / "hidet")

    @property
    def importer(self) -> tuple[str, ...]:
        """Path of the importing module below `hidet`, e.g. ("graph", "verify")."""
        return self.path.with_suffix("").parts

    @property
    def importing_module(self) -> str:
        """Its full name, "hidet.graph.verify"."""
        return ".".join(part for part in ("hidet", *self.importer) if part != "__init__")

    def hidet_parts(self) -> set[str]:
        """The second-level names under `hidet` that this import reaches."""
        parts = self.module.split(".")
        if parts[0] != "hidet":
            return set()
        return {parts[1]} if len(parts) > 1 else set(self.names)

    def candidates(self) -> set[str]:
        """Names of what may be modules here: the module, and each name that is taken from it."""
        return {self.module, *(f"{self.module}.{name}" for name in self.names)}


@cache
def imports_of(wheel: str) -> tuple[Import, ...]:
    """All imports of a wheel's part of the package, but those for type checkers."""
    files = sorted((WHEELS[wheel] / "src" / "hidet").rglob("*.py"))
    bodies = ((file, ast.parse(file.read_text()).body) for file in files)
    return tuple(each for file, body in bodies for each in _imports(wheel, file, body, is_inside_function=False))


def _imports(wheel: str, file: Path, body: list[ast.stmt], is_inside_function: bool) -> Iterator[Import]:
    for statement in body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield Import(wheel, file, statement.lineno, alias.name, (), is_inside_function)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"{file}:{statement.lineno}: relative import; write the full name"
            names = tuple(alias.name for alias in statement.names)
            yield Import(wheel, file, statement.lineno, statement.module or "", names, is_inside_function)
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from _imports(wheel, file, statement.orelse, is_inside_function)
        else:
            inside = is_inside_function or isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
            for block in ("body", "orelse", "finalbody"):
                yield from _imports(wheel, file, getattr(statement, block, []), inside)
            for handler in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
                yield from _imports(wheel, file, handler.body, inside)

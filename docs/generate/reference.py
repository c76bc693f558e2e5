"""The reference: a page for each public module, made from the docstrings of what it has.

Public modules are those of the table in docs/plugins.md, for authors of plug-ins, and those of `FOR_USERS`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType

from docs.generate.docstrings import describe_value, escaped, markdown_of, signature_of
from hidet.dtypes import DType

DOCS = Path(__file__).parents[1]

FOR_USERS: Mapping[str, str] = {
    "hidet": "compiling, loading, tensors and scripts",
    "hidet.runtime.compiled": "what compiling gives: compiled graphs and their reports",
    "hidet.runtime.module": "what building scripts gives: compiled modules and functions",
    "hidet.torch": "torch.compile, operators of scripts",
    "hidet.onnx": "models in ONNX files",
    "hidet.tensorflow": "models of TensorFlow, Keras and TFLite",
    "hidet.jax": "functions of JAX",
    "hidet.stablehlo": "StableHLO files",
    "hidet.tuning": "measured schedules",
    "hidet.report": "profiles, pages about a compilation, accuracy",
    "hidet.option": "settings",
    "hidet.lang": "Hidet Script",
    "hidet.lang.types": "types of scripts' parameters",
    "hidet.lang.mapping": "task mappings",
    "hidet.lang.layout": "layouts of tensors",
    "hidet.lang.cuda": "what NVIDIA's GPUs have, for scripts",
    "hidet.tile": "kernels in tiles",
    "hidet.cuda": "devices, streams and arrays of CUDA",
    "hidet.opencl": "arrays of OpenCL",
    "hidet.driver": "modules of scripts, built",
    "hidet.utils": "measuring and comparing",
    "hidet.nn": "modules of tensors, as hidet 0.6 has them",
    "hidet.graph.transforms": "rules of users, as hidet 0.6 has them",
    "hidet.errors": "what is raised",
}
"""Modules that programs import which are no plug-ins, with what they are for."""

_ROW = re.compile(r"^\| `(hidet[\w.]*)` \| ([^|]+) \|$", re.MULTILINE)


def modules_for_authors() -> dict[str, str]:
    """Public modules of docs/plugins.md that are not among those for users, with what they hold."""
    table = (DOCS / "plugins.md").read_text().partition("\n## Public modules\n")[2]
    return {name: about for name, about in _ROW.findall(table) if name not in FOR_USERS}


def public_names(module: ModuleType) -> list[str]:
    """Names that a module says are its own, or has defined."""
    said = getattr(module, "__all__", None)
    if said is not None:
        return sorted(said)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return sorted(name for name in own if not name.startswith("_"))


def write_reference(folder: Path) -> None:
    """Write the pages of all public modules, and their index, into a folder."""
    known = documented()
    for name in (*FOR_USERS, *modules_for_authors()):
        write(folder / f"{name}.md", page_of(name, known))
    write(folder / "index.md", _index())


def write(path: Path, text: str) -> None:
    """Write a page unless it is there already: Sphinx reads again what has a new date."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _index() -> str:
    rows = [f"| [`{name}`]({name}.md) | {about} |" for name, about in FOR_USERS.items()]
    authors = [f"| [`{name}`]({name}.md) | {about} |" for name, about in modules_for_authors().items()]
    head = ["| module | for |", "|---|---|"]
    names = ["operators/index", "command-line", *FOR_USERS, *modules_for_authors()]
    return "\n".join(
        [
            "# Reference",
            "",
            "What programs may import, from the docstrings of the sources. Modules that stand in no table are not",
            "public: they change without notice. [Operators](operators/index.md) have pages of their own, and so has",
            "[the `hidet` command](command-line.md).",
            "",
            "## For programs",
            "",
            *head,
            *rows,
            "",
            "## For plug-ins",
            "",
            *head,
            *authors,
            "",
            *toctree(names),
        ]
    )


def toctree(names: list[str]) -> list[str]:
    """A hidden list of the pages below."""
    return ["```{toctree}", ":hidden:", ":maxdepth: 1", "", *names, "```", ""]


def documented() -> dict[str, object]:
    """Every class and function of the public modules by its full name; what several modules have, by its first one."""
    found: dict[str, object] = {}
    seen: set[int] = set()
    for name in (*FOR_USERS, *modules_for_authors()):
        module = importlib.import_module(name)
        for member in public_names(module):
            value = getattr(module, member)
            if (inspect.isclass(value) or inspect.isfunction(value)) and id(value) not in seen:
                seen.add(id(value))
                found[f"{name}.{member}"] = value
    return found


def page_of(name: str, known: Mapping[str, object]) -> str:
    """The page of a module, as Markdown. known: what is `documented`, which has one place each."""
    places = {id(value): place for place, value in known.items()}
    module = importlib.import_module(name)
    parts = [f"# `{name}`", markdown_of(inspect.getdoc(module) or "")]
    values: list[tuple[str, object]] = []
    for member in public_names(module):
        value = getattr(module, member)
        place = places.get(id(value), f"{name}.{member}")
        if place != f"{name}.{member}":
            parts.append(_directive("py:data", f"{name}.{member}", f"The same as {{py:obj}}`{place}`."))
        elif isinstance(value, ModuleType):
            parts.append(_directive("py:data", f"{name}.{member}", _module_link(value)))
        elif inspect.isclass(value):
            parts.append(_class(name, member, value))
        elif callable(value) and not isinstance(value, DType) and signature_of(value):
            doc = inspect.getdoc(value) or ""
            parts.append(_directive("py:function", f"{name}.{member}{signature_of(value)}", _body(doc, value)))
        else:
            values.append((member, value))
    parts += _values(name, values)
    return "\n\n".join(part for part in parts if part) + "\n"


def _module_link(module: ModuleType) -> str:
    lines = (inspect.getdoc(module) or "").splitlines()
    return escaped(lines[0]) if lines else ""


def _values(name: str, values: list[tuple[str, object]]) -> Iterator[str]:
    """Constants and types: what they are."""
    for member, value in values:
        told = _own_doc(value)
        body = markdown_of(told) if told else describe_value(value)
        yield _directive("py:data", f"{name}.{member}", body)


def _own_doc(value: object) -> str:
    """The documentation of a value that is not that of its class."""
    own = getattr(value, "__doc__", None)
    return inspect.cleandoc(own) if isinstance(own, str) and own != type(value).__doc__ else ""


def _class(module: str, name: str, kind: type) -> str:
    doc = inspect.getdoc(kind) or ""
    if is_dataclass(kind) and doc.startswith(f"{kind.__name__}("):
        doc = ""
    body = [_body(doc, kind)]
    for member, value in sorted(vars(kind).items()):
        if member.startswith("_"):
            continue
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(function, property):
            body.append(_directive("py:property", member, markdown_of(inspect.getdoc(function) or "")))
        elif inspect.isfunction(function):
            shown = re.sub(r"\((self|cls)(, )?", "(", signature_of(function), count=1)
            body.append(_directive("py:method", f"{member}{shown}", _body(inspect.getdoc(function) or "", function)))
    # How errors and members of enumerations are made is of no use to who meets them.
    shown = "" if issubclass(kind, BaseException | Enum) else signature_of(kind).removesuffix(" -> None")
    if issubclass(kind, Enum):
        body.append(", ".join(f"`{member.name}`" for member in kind))
    return _directive("py:class", f"{module}.{name}{shown}", "\n\n".join(part for part in body if part))


def _body(doc: str, value: object) -> str:
    """A docstring, in which parameters, and fields of a class, begin items."""
    known: set[str] = set()
    with contextlib.suppress(TypeError, ValueError):
        known |= set(inspect.signature(value).parameters)  # type: ignore[arg-type]
    if inspect.isclass(value):
        known |= set(getattr(value, "__annotations__", {}))
    if is_dataclass(value):
        known |= {field.name for field in fields(value)}
    return markdown_of(doc, known)


def _directive(kind: str, head: str, body: str) -> str:
    """An object of Python's domain; fences of inner ones are shorter."""
    longest = max((len(found) for found in re.findall(r"^`{3,}", body, re.MULTILINE)), default=2)
    fence = "`" * (max(longest, 2) + 1)
    return f"{fence}{{{kind}}} {head}\n{body}\n{fence}"

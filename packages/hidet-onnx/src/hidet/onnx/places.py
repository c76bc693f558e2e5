"""Where a node stands: in its file, and in the program that torch exported it from, which torch notes beside it."""

from __future__ import annotations

import re
from functools import lru_cache

from hidet.loc import Loc
from onnx import NodeProto

# Of Python files alone: errors show the line there, and a model may name anything.
_FRAME = re.compile(r'File "(?P<file>[^"\n]+\.py)", line (?P<line>\d{1,9}), in ')
_OF_TORCH = re.compile(r"(?:^|[/\\])torch[/\\]")
_SCOPE = re.compile(r"'([^']*)'")


def location(node: NodeProto, file: str | None) -> Loc:
    """The place of a node in the model's file (None: of a model without one). Its parent is the line that it was
    exported from, with the path of the module, where the model tells."""
    return Loc(file, name=node_text(node), parent=_origin(node))


def node_text(node: NodeProto) -> str:
    """How errors name a node: its operator and name, or its first output where it has none."""
    first = next((name for name in node.output if name), "")
    return f"{node.op_type} {node.name!r}" if node.name else f"{node.op_type} that makes {first!r}"


def _origin(node: NodeProto) -> Loc | None:
    told = {entry.key.removeprefix("pkg.torch.onnx."): entry.value for entry in node.metadata_props}
    return _exported_from(told.get("stack_trace", ""), told.get("name_scopes", ""))


@lru_cache(maxsize=1024)
def _exported_from(trace: str, scopes: str) -> Loc | None:
    """The innermost line that is not torch's own."""
    frames = [frame for frame in _FRAME.finditer(trace) if not _OF_TORCH.search(frame["file"])]
    if not frames:
        return None
    # The last scope is the operator itself.
    modules = _SCOPE.findall(scopes)[:-1]
    return Loc(frames[-1]["file"], int(frames[-1]["line"]), None, modules[-1] if modules else None)

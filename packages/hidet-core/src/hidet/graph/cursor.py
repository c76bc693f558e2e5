"""Reading one line of graph text from left to right: tokens, types, sizes and attribute values."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hidet import dtypes
from hidet.dims import Dim, Symbol, parse_dim
from hidet.errors import HidetError, VerifyError
from hidet.graph.types import DimType, OptionalType, SequenceType, TensorType, ValueType

if TYPE_CHECKING:
    from hidet.graph.graph import Graph

_WORDS = {"True": True, "False": False, "None": None, "inf": float("inf"), "nan": float("nan")}
_NUMBER = re.compile(r"-?(?:inf\b|\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NAME = re.compile(r"[^\W\d]\w*")


class Cursor:
    """A position in one line. Every error names the line number, the column and what was expected."""

    def __init__(self, text: str, number: int, symbols: Mapping[str, Symbol], indent: int = 0) -> None:
        self.text = text
        self.number = number
        self.symbols = symbols
        self.indent = indent
        self.position = 0

    def error(self, expected: str) -> VerifyError:
        """What to raise when `expected` is not here."""
        rest = self.text[self.position :]
        found = repr(rest[:20]) if rest else "the end of the line"
        column = self.indent + self.position + 1
        return VerifyError(f"graph text, line {self.number}, column {column}: found {found}, expected {expected}")

    def accept(self, token: str) -> bool:
        """Skip spaces and `token` if it is here."""
        start = self.position
        self._skip()
        if self.text.startswith(token, self.position):
            self.position += len(token)
            return True
        self.position = start
        return False

    def expect(self, token: str) -> None:
        """Skip spaces and `token`, which must be here."""
        if not self.accept(token):
            self._skip()
            raise self.error(repr(token))

    def match(self, pattern: re.Pattern[str], expected: str) -> str:
        """Skip spaces and take what `pattern` matches here."""
        self._skip()
        found = pattern.match(self.text, self.position)
        if found is None:
            raise self.error(expected)
        self.position = found.end()
        return found.group()

    def at_end(self) -> bool:
        """Whether only spaces are left."""
        return not self.text[self.position :].strip()

    def finish(self) -> None:
        """Raise unless the line ends here."""
        if not self.at_end():
            self._skip()
            raise self.error("the end of the line")

    def _skip(self) -> None:
        while self.text.startswith(" ", self.position):
            self.position += 1

    def dim(self) -> Dim:
        """A size, up to the comma or bracket that ends it."""
        self._skip()
        depth, end = 0, self.position
        while end < len(self.text) and (depth or self.text[end] not in ",]})"):
            depth += {"(": 1, ")": -1}.get(self.text[end], 0)
            end += 1
        try:
            size = parse_dim(self.text[self.position : end], self.symbols)
        except HidetError as error:
            raise VerifyError(f"graph text, line {self.number}: {error.message}", hint=error.hint) from error
        self.position = end
        return size

    def dims(self, close: str) -> tuple[Dim, ...]:
        """Sizes separated by commas, up to `close`."""
        sizes: list[Dim] = []
        while not self.accept(close):
            if sizes:
                self.expect(",")
            sizes.append(self.dim())
        return tuple(sizes)

    def type(self) -> ValueType:
        """What `type_text` prints."""
        word = self.match(_NAME, "a type")
        if word == "dim":
            self.expect("(")
            size = self.dim()
            self.expect(")")
            return DimType(size)
        if word in ("sequence", "optional"):
            self.expect("<")
            element = self.type()
            self.expect(">")
            return SequenceType(element) if word == "sequence" else OptionalType(element)
        try:
            dtype = dtypes.dtype(word)
        except HidetError as error:
            raise VerifyError(f"graph text, line {self.number}: {error.message}", hint=error.hint) from error
        self.expect("[")
        shape = self.dims("]")
        strides = self.dims("}") if self.accept("{") else None
        device = self.match(_DEVICE, "a device") if self.accept("@") else "cpu"
        alignment = int(self.match(_NUMBER, "a number of bytes")) if self.accept("align ") else 1
        return TensorType(dtype, shape, strides, device, alignment)

    def attribute(self, subgraphs: Sequence[Graph]) -> Any:
        """What `attribute_text` prints."""
        self._skip()
        head = self.text[self.position : self.position + 1]
        if self.accept("["):
            items: list[Any] = []
            while not self.accept("]"):
                if items:
                    self.expect(",")
                items.append(self.attribute(subgraphs))
            return tuple(items)
        if self.accept("@"):
            number = int(self.match(_NUMBER, "the number of a sub-graph"))
            if number >= len(subgraphs):
                raise self.error(f"a number below {len(subgraphs)}, which is how many sub-graphs stand below the node")
            return subgraphs[number]
        if head and head in "'\"":
            return ast.literal_eval(self.match(_STRING, "a string"))
        if head == "-" or head.isdigit():
            text = self.match(_NUMBER, "a number")
            return int(text) if text.lstrip("-").isdigit() else float(text)
        return self._word_attribute()

    def _word_attribute(self) -> Any:
        start = self.position
        word = self.match(_NAME, "a number, string, element type, size, tuple or sub-graph")
        if word in _WORDS:
            return _WORDS[word]
        if word == "dim":
            self.expect("(")
            size = self.dim()
            self.expect(")")
            return size
        if word == "type":
            self.expect("(")
            type_ = self.type()
            self.expect(")")
            return type_
        if word == "complex":
            self.expect("(")
            real = float(self.match(_PART, "a number"))
            self.expect(",")
            imaginary = float(self.match(_PART, "a number"))
            self.expect(")")
            return complex(real, imaginary)
        try:
            return dtypes.dtype(word)
        except HidetError as error:
            self.position = start
            raise self.error("an attribute value") from error


_DEVICE = re.compile(r"\w+(?::\d+)?")
_PART = re.compile(r"-?(?:inf|nan|\d+(?:\.\d+)?(?:e[-+]?\d+)?)")

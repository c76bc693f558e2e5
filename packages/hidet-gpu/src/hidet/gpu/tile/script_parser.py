"""Reads kernels in tiles that users write: the grammar of `hidet.gpu.tile.parser`, expressions of Hidet Script.

What Python knows where a kernel is defined (tile sizes, flags, functions of elements) is computed then; numbers take
the type of what they meet. Besides what the printed text has, a kernel may

    name tensors of its parameters as matrices, and one of a batch: load(a, ...), load(q[head], ...)
    declare a tile where it is first written: total: f32[64, 64] @ register = fill(0.0)
    leave out the declaration of what `map` and `reduce` give, whose shape and type follow
    name expressions, name = block_row * 64, and choose statements by what Python knows, if CAUSAL:
    map lambdas without the place, functions of the kernel, of Python, and operations (exp)
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import gcd
from types import FrameType, FunctionType
from typing import Any, NoReturn

from hidet import dims
from hidet.dtypes import DType
from hidet.errors import HidetError, ScriptError, nearest_names, suggestion
from hidet.gpu.tile import language
from hidet.gpu.tile import statements as t
from hidet.gpu.tile.kernel import TileKernel
from hidet.gpu.tile.layout import CHUNK_BYTES
from hidet.gpu.tile.parser import KernelParser, Made
from hidet.gpu.tile.tensors import GTensor, RTile, Source
from hidet.gpu.tile.verify import verify_kernel
from hidet.ir import build
from hidet.ir import stmt as s
from hidet.ir.expr import Call, Const, Expr, Load, Size, Var
from hidet.ir.expr_parser import elements
from hidet.ir.node import IRNode
from hidet.ir.types import BufferType, MemorySpace, PointerType, Type
from hidet.ir.visit import rewrite, substitute, walk
from hidet.lang import calls, operators
from hidet.lang.environment import Environment, captured_names
from hidet.lang.inline import inlined_function
from hidet.lang.operand import unwrapped
from hidet.lang.primitives import MEANINGS
from hidet.lang.signature import Signature
from hidet.lang.source import FunctionSource, read_source
from hidet.lang.translator import Translator
from hidet.lang.types import TensorKind, value_type
from hidet.lang.values import Inlined, Primitive, is_runtime
from hidet.loc import Loc

_NAMES = tuple(name for name in language.__all__ if name != "cdiv")
_WORDS: dict[int, str] = {id(getattr(language, name)): name for name in _NAMES}
"""Words of the grammar, by the identity of the objects that stand for them."""
_SPACES: dict[str, MemorySpace] = {"shared": "shared", "register": "register"}
_OF_PYTHON = ("map", "any", "range")
"""Words of the grammar that Python has, too."""


class ScriptKernelParser(KernelParser):
    """One kernel of a user.

    signature: its parameters as the host passes them; `matrices` are the tensors among them that a statement names.
    is_aligned: whether the kernel may rely on tensors that start, and rows of them, at multiples of 16 bytes.
    """

    def __init__(
        self, source: FunctionSource, function: Callable[..., Any], frame: FrameType | None, is_aligned: bool
    ) -> None:
        super().__init__({}, {})
        self.code = source
        self.names = Environment(captured_names(function, frame), source.tree.name)
        self.translator = Translator(source, self.names)
        self.signature = Signature(self.translator, function, "global")
        self.matrices: dict[str, TensorKind] = {}
        self.places: dict[t.TileStmt, Loc] = {}
        self._is_aligned = is_aligned
        self._variables: list[tuple[Var, Expr]] = []
        self._depth = 0
        self._interned: dict[object, Expr] = {}
        self._pointers: dict[str, tuple[Var, TensorKind]] = {}
        self._named: dict[tuple[str, tuple[Expr, ...]], Source] = {}

    # --- the kernel --------------------------------------------------------------------------------------------------

    def read(self, warps: tuple[int, int]) -> TileKernel:
        """The kernel, verified. ScriptError with file, line and column for what is none."""
        tree = self.code.tree
        params = self._params()
        body = [node for node in tree.body if not _is_text(node)]
        grid_vars, grid = self.grid(body) if body else ((), ())
        if not 1 <= len(grid_vars) <= language.MOST_INDICES:
            self.fail(
                body[0] if body else tree,
                f"kernel {tree.name} does not begin with its grid",
                "write first: column, row = grid(columns of tiles, rows of tiles), of one to three indices of blocks",
            )
        for var in grid_vars:
            self.names.bind(var.name, var)
        stmts = self.stmts(body)
        kernel = TileKernel(tree.name, params, grid_vars, warps, stmts, tuple(self._variables), grid)
        try:
            verify_kernel(kernel, self.places)
        except HidetError as error:
            raise ScriptError(error.message, loc=error.loc or self.code.place(tree), hint=error.hint) from error
        return kernel

    def grid(self, body: list[ast.stmt]) -> tuple[tuple[Var, ...], tuple[Expr, ...]]:
        """As of the text; as many names as extents."""
        first = body[0]
        names, extents = super().grid(body)
        if len(names) != len(extents):
            self.fail(first, f"{len(names)} indices of blocks in a grid of {len(extents)} extents")
        if any(isinstance(node, Load) for extent in extents for node in walk(extent)):
            self.fail(first, "a grid is known to the host, which cannot read tensors", "pass the number as a parameter")
        return names, extents

    def _params(self) -> tuple[Var, ...]:
        """The kernel's parameters: pointers for tensors, numbers, then the sizes that extents mention."""
        signature, params = self.signature, list[Var]()
        for (name, var), kind in zip(signature.params.items(), signature.kinds, strict=True):
            if not isinstance(kind, TensorKind):
                self.names.bind(name, var)
                params.append(var)
                continue
            is_plain = kind.pointee is None and kind.layout is None and isinstance(kind.element, DType)
            if kind.is_pointer or not is_plain:
                self.fail(self.code.tree, f"parameter {name}: {kind} is no row-major tensor of numbers")
            pointer = Var(name, PointerType(kind.dtype))
            self._pointers[name] = (pointer, kind)
            params.append(pointer)
        for name, (pointer, kind) in self._pointers.items():
            shape = tuple(e if isinstance(e, int) else signature.extent(e) for e in kind.shape)
            view = MEANINGS["as_tensor_pointer"](self.translator, pointer, kind.dtype, shape)
            self.names.bind(name, view)
        self.translator.stmts.clear()
        return (*params, *signature.symbols.values())

    # --- what expressions, types and names mean ----------------------------------------------------------------------

    def fail(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        """Refuse the kernel at a node."""
        raise ScriptError(message, loc=self.code.place(node), hint=hint)

    def value(self, node: ast.expr) -> Any:
        """What an expression of a script stands for, without statements of its own."""
        stmts, value = self.translator.apart(lambda: self.translator.value(node))
        return self._inlined(node, stmts, value)

    def _inlined(self, node: ast.AST, stmts: Sequence[s.Stmt], value: Any) -> Any:
        """A value in which variables that a script declares are what they were given."""
        known: dict[Var, Expr] = {}
        for stmt in stmts:
            if not isinstance(stmt, s.Declare) or stmt.init is None:
                self.fail(
                    node,
                    f"{ast.unparse(node).splitlines()[0]} takes statements, but what is computed of elements is one "
                    "expression",
                    "choose by a if c else b; give each name one value",
                )
            known[stmt.var] = substitute(stmt.init, known) if known else stmt.init
        return substitute(value, known) if known and isinstance(value, Expr) else value

    def _sized(self, value: Expr) -> Expr:
        """Sizes as the parameters that hold them."""

        def change(node: IRNode) -> IRNode | None:
            if not isinstance(node, Size):
                return None
            for symbol in dims.symbols(node.dim):
                if symbol not in self.signature.symbols:
                    raise ScriptError(f"size {symbol.name} is no extent of a parameter, so its value is not known")
            return self.signature.extent(node.dim)

        return rewrite(value, change)

    def expr(self, node: ast.expr) -> Expr:
        """An expression of the program. Equal ones are one object, by which lowerings know boxes that lie alike."""
        value = self.value(node)
        with self.translator.at(node):
            found = self._sized(operators.as_expr(value))
        called = next((part.callee for part in walk(found) if isinstance(part, Call)), None)
        if called is not None:
            self.fail(
                node,
                f"{ast.unparse(node)} calls {called}, which may differ between the threads of a block",
                "places, extents and conditions are made of parameters, indices and elements of tensors",
            )
        return self._same(found)

    def _same(self, value: Expr) -> Expr:
        return self._interned.setdefault(_identity(value), value)

    def read_type(self, node: ast.expr) -> Type:
        """A type; `f16[64, 32] @ shared` of a tile."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            kind = self.value(node.left)
            space = _SPACES.get(self._word(node.right))
            if not isinstance(kind, TensorKind) or space is None:
                self.fail(node, f"{ast.unparse(node)} is no tile", "write f16[64, 32] @ shared, or @ register")
            extents = tuple(extent if isinstance(extent, int) else None for extent in kind.shape)
            if None in extents:
                self.fail(node, f"{ast.unparse(node.left)} has an extent that is known at run time only")
            shape = tuple(build.index(extent) for extent in extents if extent is not None)
            return BufferType(kind.dtype, shape, None, space)
        with self.translator.at(node):
            kind = self.value(node)
            if isinstance(kind, TensorKind):
                self.fail(
                    node, f"{ast.unparse(node)} lies nowhere", f"write {ast.unparse(node)} @ register, or @ shared"
                )
            return value_type(kind)

    def scalar(self, node: ast.expr) -> DType:
        """The type of an element."""
        found = self.read_type(node)
        return found if isinstance(found, DType) else self.fail(node, f"expected a scalar type, found {found}")

    def known(self, node: ast.expr, kind: type) -> Any:
        """A number or text, of this Python type, that Python knows."""
        value = self.value(node)
        value = value.value if isinstance(value, Const) else operators.plain_number(value)
        if type(value) is not kind:
            self.fail(node, f"expected a {kind.__name__} that is known when the kernel is defined")
        return value

    def number(self, node: ast.expr, dtype: DType) -> Const:
        """What tiles of `dtype` are filled with."""
        value = self.value(node)
        if is_runtime(value) and not isinstance(value, Const):
            self.fail(node, f"a tile is filled with a number, not {ast.unparse(node)}")
        with self.translator.at(node):
            found = operators.convert(value, dtype, f"what a tile of {dtype} is filled with")
        assert isinstance(found, Const)
        return found

    def _word(self, node: ast.expr) -> str:
        """The word of the grammar that a name stands for; "" for everything else."""
        if not isinstance(node, ast.Name | ast.Attribute):
            return ""
        found = self._outside(node)
        if found is not None or isinstance(node, ast.Attribute):
            return _WORDS.get(id(found), "")
        # Text that was printed needs no imports.
        is_free = self.names.own(node.id) is None and node.id in (*_NAMES, *_OF_PYTHON)
        return node.id if is_free else ""

    def _outside(self, node: ast.expr) -> Any:
        """What a name, or an attribute of one, is where the kernel is defined; None for what is Python's or nothing."""
        if isinstance(node, ast.Attribute):
            return getattr(self._outside(node.value), node.attr, None)
        if not isinstance(node, ast.Name) or self.names.own(node.id) is not None:
            return None
        found = self.names.outside.get(node.id)
        return None if node.id in _OF_PYTHON and found is getattr(builtins, node.id) else found

    def called(self, node: ast.expr) -> str:
        """The word of the grammar that an expression calls; "" for other expressions."""
        return self._word(node.func) if isinstance(node, ast.Call) else ""

    def identifier(self, node: ast.expr) -> str:
        """The name that stands there."""
        if not isinstance(node, ast.Name):
            hint = "give it a name in a line before" if self.called(node) else None
            self.fail(node, f"expected a name, found {ast.unparse(node)}", hint)
        return node.id

    def declared(self, name: str, type_: Type) -> Var:
        """A new variable, by its name."""
        made = Var(name, type_)
        self.names.bind(name, made)
        return made

    @contextmanager
    def inner(self) -> Iterator[None]:
        """A scope whose variables end with it."""
        self._depth += 1
        with self.names.block(is_branch=True):
            yield
        self._depth -= 1

    # --- formulas ----------------------------------------------------------------------------------------------------

    def function(self, node: ast.expr, types: Sequence[Type]) -> tuple[tuple[Var, ...], Expr]:
        """The parameters, of these types, and what a function gives for them."""
        names = [argument.arg for argument in node.args.args] if isinstance(node, ast.Lambda) else []
        if isinstance(node, ast.Lambda) and len(names) != len(types):
            self.fail(node, f"expected a lambda of {len(types)} parameters")
        params = tuple(Var(name, type_) for name, type_ in zip(names or ["x"] * len(types), types, strict=True))
        return params, self._applied(node, params)

    def _applied(self, node: ast.expr, params: Sequence[Var]) -> Expr:
        """What a function gives for variables."""
        translator = self.translator
        if isinstance(node, ast.Lambda):
            own = {argument.arg for argument in node.args.args}
            for part in ast.walk(node.body):
                if isinstance(part, ast.Name) and part.id in self.tiles and part.id not in own:
                    hint = f"map(lambda ..., {part.id}: ..., ..., {part.id}) gives it the element of the tile"
                    self.fail(part, f"{part.id} is a tile, which a function of elements cannot mention", hint)
        function = translator.value(node)
        if isinstance(function, FunctionType) and function.__name__ != "<lambda>":
            translator, function = _read_function(function)
        stmts, value = translator.apart(lambda: unwrapped(calls.apply(translator, function, params, {})))
        if translator.callees:
            hint = "take the decorator off: functions of Python are read as part of the kernel"
            self.fail(node, f"a kernel in tiles calls no script, as {translator.callees[0].name} is", hint)
        with self.translator.at(node):
            return self._sized(operators.as_expr(self._inlined(node, stmts, value)))

    def formula(self, node: ast.expr, tiles: Sequence[RTile], target: RTile | None) -> tuple[tuple[Var, ...], Expr]:
        """The parameters of what a map computes and the value, converted to the elements of `target` where it is
        declared. A function of the elements alone need not take the place."""
        count, given = len(tiles), self._parameters(node, len(tiles))
        if given not in (count, count + 2):
            self.fail(
                node,
                f"{ast.unparse(node)} takes {given} values, expected {count}, the elements of its tiles, or "
                f"{count + 2}, with row and column in the tile",
            )
        names = [argument.arg for argument in node.args.args] if isinstance(node, ast.Lambda) else []
        names = (names or [tile.name for tile in tiles])[:count]
        of_tiles = tuple(Var(name, tile.dtype) for name, tile in zip(names, tiles, strict=True))
        place = build.size_var("row"), build.size_var("column")
        with self.translator.at(node):
            value = self._applied(node, (*of_tiles, *(place if given > count else ())))
            if target is not None:
                value = operators.convert(value, target.dtype, f"what is computed for {target.name}")
        return (*of_tiles, *place), value

    def _parameters(self, node: ast.expr, default: int) -> int:
        """How many values a function takes; `default` for one that does not tell."""
        if isinstance(node, ast.Lambda):
            return len(node.args.args)
        if isinstance(node, ast.Name) and node.id in self._functions:
            return self._functions[node.id]
        value = self.translator.value(node)
        if isinstance(value, Primitive) or not inspect.isroutine(value):
            return default
        try:
            return len(inspect.signature(value).parameters)
        except (TypeError, ValueError):
            return default

    @property
    def _functions(self) -> dict[str, int]:
        """Functions of the kernel, with the number of their parameters."""
        inside = (node for stmt in self.code.tree.body for node in ast.walk(stmt))
        return {node.name: len(node.args.args) for node in inside if isinstance(node, ast.FunctionDef)}

    # --- matrices ----------------------------------------------------------------------------------------------------

    def tile(self, node: ast.expr, kind: type[Made]) -> Made:
        """The tile of this kind that a name stands for."""
        name = self.identifier(node)
        if name not in self.tiles:
            hint = f"write {name}: f32[rows, columns] @ register where it is first written, or @ shared for a load"
            if nearest_names(name, self.tiles, limit=1):
                hint = suggestion(name, self.tiles)
            self.fail(node, f"tile {name} is not declared", hint)
        return super().tile(node, kind)

    def source(self, node: ast.expr) -> Source:
        """A matrix that is declared, a tensor of the parameters, or one of a batch of them."""
        owner = node.value if isinstance(node, ast.Subscript) else node
        name = self.identifier(owner)
        if name not in self._pointers or name in self.sources:
            if isinstance(node, ast.Subscript) or name not in self.sources:
                known = [*self.sources, *self._pointers]
                self.fail(node, f"{ast.unparse(node)} is no matrix", suggestion(name, known))
            return self.sources[name]
        keys = elements(node.slice) if isinstance(node, ast.Subscript) else []
        indices = tuple(self.expr(key) for key in keys)
        if (name, indices) not in self._named:
            self._named[name, indices] = self._matrix_of(node, name, indices)
        return self._named[name, indices]

    def _matrix_of(self, node: ast.expr, name: str, indices: Sequence[Expr]) -> GTensor:
        """The last two axes of a tensor; one of a single axis is a row."""
        pointer, kind = self._pointers[name]
        rank = len(kind.shape)
        if len(indices) != max(rank - 2, 0):
            self.fail(
                node,
                f"{ast.unparse(node)} is no matrix: {name} is {kind}",
                f"write {name}[{', '.join('ijklmn'[: rank - 2])}]" if rank > 2 else f"write {name}",
            )
        shape = [self._same(build.index(e) if isinstance(e, int) else self.signature.extent(e)) for e in kind.shape]
        rows, columns = (build.index(1), *shape)[-2:]
        place: Expr = pointer
        stride = rows * columns
        for index, extent in reversed(list(zip(indices, shape, strict=False))):
            place = build.binary("add", place, index * stride)
            stride = stride * extent
        self.matrices[name] = kind
        align = possible_align(columns, kind.dtype) if self._is_aligned else kind.dtype.nbytes
        return GTensor(place, rows, columns, columns, align)

    # --- tiles whose declaration follows -----------------------------------------------------------------------------

    def mapped(self, target: ast.expr) -> RTile | None:
        """The tile that a map computes, None where nothing declares it."""
        return self.tile(target, RTile) if self.identifier(target) in self.tiles else None

    def result(self, target: ast.expr, tiles: Sequence[RTile], type_: Type) -> RTile:
        """The tile that a map computes; of undeclared ones shape and type follow from the map."""
        name = self.identifier(target)
        if name in self.tiles:
            return self.tile(target, RTile)
        if not tiles or not isinstance(type_, DType):
            self.fail(target, f"tile {name} is not declared", f"write first {name}: f32[64, 64] @ register")
        rows, columns = max(tile.rows for tile in tiles), max(tile.columns for tile in tiles)
        return self._new(name, RTile(name, type_, rows, columns))

    def reduced(self, target: ast.expr, source: RTile, axis: int) -> RTile:
        """The tile that a reduction gives; of undeclared ones the shape follows."""
        name = self.identifier(target)
        if name in self.tiles:
            return self.tile(target, RTile)
        shape = (1, source.columns) if axis == 0 else (source.rows, 1)
        return self._new(name, RTile(name, source.dtype, *shape))

    def _new(self, name: str, tile: RTile) -> RTile:
        self.tiles[name] = tile
        return tile

    # --- statements --------------------------------------------------------------------------------------------------

    def line(self, node: ast.stmt) -> Sequence[t.TileStmt]:
        """What a line is: statements, a declaration, a name for an expression, or what a flag of Python chooses."""
        if _is_text(node):
            return ()
        if isinstance(node, ast.AnnAssign):
            return self._annotated(node)
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            self.translator.statements([node])
            return ()
        if self.declares_matrix(node):
            return ()
        if isinstance(node, ast.If) and self.called(node.test) != "any":
            test = self.value(node.test)
            if not is_runtime(test):
                return self.stmts(node.body if test else node.orelse)
        if isinstance(node, ast.Assign) and not self.called(node.value):
            self._name(node)
            return ()
        return super().line(node)

    def stmt(self, node: ast.stmt) -> t.TileStmt:
        """A statement, whose place is kept."""
        made = super().stmt(node)
        self.places[made] = self.code.place(node)
        return made

    def condition(self, node: ast.expr) -> Expr:
        """What a branch of the whole block depends on."""
        value = self.expr(node)
        with self.translator.at(node):
            return self._same(operators.condition(value))

    def branch(self, node: ast.If) -> t.TileStmt | None:
        """As of the text; names that get a value inside end there."""
        with self.inner():
            return super().branch(node)

    def loop(self, node: ast.For) -> t.TileStmt | None:
        """As of the text."""
        if isinstance(node.iter, ast.Call) and self.called(node.iter) == "range" and len(node.iter.args) > 1:
            self.fail(node.iter, "a loop of a kernel in tiles counts from 0", "write start + step where step is used")
        return super().loop(node)

    def assign(self, node: ast.Assign) -> t.TileStmt | None:
        """As of the text, with the name of a tile that must be no variable."""
        if len(node.targets) != 1:
            self.fail(node, "a statement on tiles has one target")
        return super().assign(node)

    def _annotated(self, node: ast.AnnAssign) -> Sequence[t.TileStmt]:
        """A tile, perhaps with the statement that first writes it, or a variable that is computed at the start."""
        if node.value is None or _is_placed(node.annotation):
            self.declare_tile(node)
            if node.value is None:
                return ()
            assignment = ast.Assign([node.target], node.value)
            return (self.stmt(ast.copy_location(assignment, node)),)
        type_, value = self.read_type(node.annotation), self.value(node.value)
        name = self.identifier(node.target)
        if not isinstance(type_, DType):
            self.fail(node.annotation, f"{name} is declared as {type_}, expected a scalar type")
        with self.translator.at(node):
            found = self._sized(operators.convert(value, type_, f"the value of {name}"))
        if self._depth:
            self._check_name(node.target, name)
            self.names.bind(name, self._same(found))
        else:
            self._variables.append((self.declared(name, type_), found))
        return ()

    def _name(self, node: ast.Assign) -> None:
        """`name = expression`: the name stands for it."""
        if len(node.targets) != 1:
            self.fail(node, "give each name its value in a line of its own")
        value = self.value(node.value)
        with self.translator.at(node):
            if isinstance(value, Expr):
                value = self._same(self._sized(value))
            for part in ast.walk(node.targets[0]):
                if isinstance(part, ast.Name):
                    self._check_name(part, part.id)
            self.translator.bind_parts(node.targets[0], value)

    def _check_name(self, node: ast.AST, name: str) -> None:
        """Refuse to give a name another value that it may have, as only the running kernel knows."""
        if name in self.tiles:
            self.fail(node, f"{name} is a tile", "a statement writes it: load, fetch, fill, map or reduce")
        found = self.names.own(name)
        if found is not None and found[1]:
            hint = "choose a value by a if c else b, and give what changes in a loop a tile"
            self.fail(node, f"{name} has a value, which a loop or a branch cannot change: names stand for one", hint)


def possible_align(columns: Expr, dtype: DType) -> int:
    """Bytes, 16 at most, that dense rows of so many elements may be multiples of."""
    if isinstance(columns, Const) and isinstance(columns.value, int):
        return gcd(CHUNK_BYTES, columns.value * dtype.nbytes)
    return CHUNK_BYTES


def _read_function(function: FunctionType) -> tuple[Translator, Inlined]:
    """A Python function of elements, which is read as the kernel is: with names of the place where it stands."""
    source = read_source(function)
    translator = Translator(source, Environment(captured_names(function, None), source.tree.name))
    return translator, inlined_function(translator, source.tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_placed(node: ast.expr) -> bool:
    """Whether an annotation names a space."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def _identity(node: IRNode) -> object:
    """What equal expressions over the same variables have in common."""
    if isinstance(node, Var):
        return node
    if isinstance(node, Const):
        return (node.type, repr(node.value))
    attributes = tuple(getattr(node, name) for name in node.attribute_fields)
    return (type(node), attributes, tuple(map(_identity, node.children())))

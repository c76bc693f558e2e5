"""Finds out what a model is: text, a portable artifact, an export of jax; a path of one, its contents, or jax's
object."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy

from hidet.errors import HidetError, ImportFailed
from hidet.runtime.signature import Entries, Fixed, Form, GraphInput, GraphOutput, Items, Parameter
from hidet.stablehlo.bytecode import MAGIC, read_bytecode
from hidet.stablehlo.calls import Model, inputs_of, main_function
from hidet.stablehlo.exported import Exported, is_exported, read_exported
from hidet.stablehlo.program import Module
from hidet.stablehlo.text import read_text


def load_model(model: Any) -> Model:
    """The model that is meant.

    model: a path of a file, bytes or text of StableHLO, an `Exported` of jax, or what has `as_text`, as a lowered
    function of jax. ImportFailed for what cannot be read.
    """
    try:
        return _loaded(model)
    except HidetError:
        raise
    except RecursionError as error:
        raise ImportFailed("the model is nested too deeply") from error
    except OSError as error:
        raise ImportFailed(
            f"{os.fspath(model) if not isinstance(model, bytes) else 'the model'} cannot be read: {error}"
        ) from error


def _loaded(model: Any) -> Model:
    if isinstance(model, os.PathLike) or (isinstance(model, str) and not _is_text(model)):
        return _from_bytes(_mapped(Path(model)), os.fspath(model))
    if isinstance(model, bytes | bytearray | memoryview):
        return _from_bytes(memoryview(model).cast("B"), None)
    if isinstance(model, str):
        return _plain(read_text(model))
    if hasattr(model, "mlir_module_serialized"):
        return model_of_export(of_live_export(model))
    if hasattr(model, "as_text") and hasattr(model, "compiler_ir"):
        return _plain(read_text(model.as_text(debug_info=True)))
    raise ImportFailed(
        f"{type(model).__name__} is no StableHLO: expected a path, bytes, text or a jax.export.Exported",
        hint="hidet.jax.compile takes functions of jax",
    )


def _is_text(model: str) -> bool:
    return "\n" in model or model.lstrip().startswith(("module", "func", "#", '"builtin.module"'))


def _mapped(path: Path) -> memoryview:
    """The bytes of a file, in memory when they are read."""
    if path.stat().st_size == 0:
        return memoryview(b"")
    return memoryview(numpy.memmap(path, numpy.uint8, "r").data)


def _from_bytes(data: memoryview, source: str | None) -> Model:
    if bytes(data[:4]) == MAGIC:
        return _plain(read_bytecode(data, source))
    if is_exported(data):
        return model_of_export(read_exported(data), source)
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        raise ImportFailed(
            f"{source or 'the model'} is neither MLIR bytecode nor text nor an export of jax",
            hint="jax.export.export(f)(*avals).serialize() makes one",
        ) from None
    return _plain(read_text(text, source))


def _plain(module: Module) -> Model:
    main = main_function(module)
    return Model(module.name, module, main, inputs_of(module, main))


# --- exports of jax --------------------------------------------------------------------------------------------------


def of_live_export(exported: Any) -> Exported:
    """What an `Exported` of jax says, without serialising its arguments' trees, which may be of classes of the user."""
    numbers, results = iter(range(1 << 20)), iter(range(1 << 20))
    given = form_of_tree(exported.in_tree, lambda: GraphInput(next(numbers)))
    returned = form_of_tree(exported.out_tree, lambda: GraphOutput(next(results)))
    assert isinstance(given, Items)
    positional, named = given.items
    assert isinstance(positional, Items) and isinstance(named, Entries)
    return Exported(
        exported.fun_name,
        memoryview(exported.mlir_module_serialized),
        tuple(tuple(str(extent) for extent in aval.shape) for aval in exported.in_avals),
        tuple(exported.module_kept_var_idx),
        positional.items,
        tuple((str(name), form) for name, form in named.entries),
        returned,
        tuple(exported.platforms),
    )


def form_of_tree(tree: Any, leaf: Callable[[], Form]) -> Form:
    """The form of a PyTreeDef of jax. Of a class of the user's: a tuple of its parts."""
    data = tree.node_data()
    if data is None:
        return leaf()
    kind, keys = data
    children = [form_of_tree(child, leaf) for child in tree.children()]
    if kind is type(None):
        return Fixed(None)
    if kind is dict:
        return Entries(tuple(zip(keys, children, strict=True)))
    return Items(tuple(children), is_list=kind is list)


def model_of_export(
    exported: Exported,
    source: str | None = None,
    *,
    names: Sequence[str] = (),
    constants: Sequence[Any] = (),
    leaf_names: Sequence[str] = (),
) -> Model:
    """The model of an export.

    names: of its positional arguments; () takes what the module calls their parts. constants: arrays for its first
    inputs. leaf_names: how code spells the inputs behind these; () keeps the module's names.
    """
    module = read_bytecode(exported.module, source)
    main = main_function(module)
    first = 1 if "_platform_index" in str(main.argument_attributes[:1]) else 0
    if first and "cpu" not in exported.platforms:
        raise ImportFailed(f"the export is for {', '.join(exported.platforms)}, expected one for cpu among them")
    if len(main.block.arguments) != len(exported.kept) + first:
        count = len(exported.kept) + first
        raise ImportFailed(f"the file is damaged: main takes {len(main.block.arguments)} arguments, expected {count}")
    if any(number >= len(exported.shapes) for number in exported.kept):
        raise ImportFailed("the file is damaged: it takes arguments that it does not have")
    sizes = [*[None] * first, *(_names_of(exported.shapes[number]) for number in exported.kept)]
    found = inputs_of(module, main, sizes, platform=exported.platforms.index("cpu") if first else 0)
    places = {number: place + first for place, number in enumerate(exported.kept)}
    for number, array in enumerate(constants):
        if number in places:
            place = places[number]
            found = (*found[:place], replace(found[place], constant=array), *found[place + 1 :])
    for number, name in enumerate(leaf_names, len(constants)):
        if number in places:
            place = places[number]
            found = (*found[:place], replace(found[place], name=name), *found[place + 1 :])
    forms = [_placed(form, places) for form in exported.arguments]
    parameters: list[Parameter] = []
    for number, form in enumerate(forms):
        name = names[number] if number < len(names) else _root_of(form, found) or f"arg{number}"
        if any(name == other.name for other in parameters):
            name = f"{name}_{number}"
        parameters.append(Parameter(name, form))
    positional = len(parameters)
    parameters += [Parameter(name, _placed(form, places)) for name, form in exported.named]
    return Model(exported.name, module, main, found, tuple(parameters), exported.results, positional=positional)


def _names_of(shape: Sequence[str]) -> tuple[str | None, ...]:
    return tuple(None if extent.isdigit() else extent for extent in shape)


def _placed(form: Form, places: dict[int, int]) -> Form:
    """The form with numbers of the module's inputs, which lacks arguments that nothing reads."""
    if isinstance(form, GraphInput):
        return GraphInput(None if form.number is None else places.get(form.number))
    if isinstance(form, Items):
        return Items(tuple(_placed(item, places) for item in form.items), form.is_list)
    if isinstance(form, Entries):
        return Entries(tuple((key, _placed(item, places)) for key, item in form.entries))
    return form


_ROOT = re.compile(r"[A-Za-z_]\w*")


def _root_of(form: Form, inputs: Sequence[Any]) -> str | None:
    """How the function calls the argument that such inputs are parts of: "params" for "params['w']"."""
    if isinstance(form, GraphInput):
        name = None if form.number is None else _ROOT.match(inputs[form.number].name)
        return None if name is None else name.group()
    parts = form.items if isinstance(form, Items) else [item for _, item in getattr(form, "entries", ())]
    return next((name for name in (_root_of(part, inputs) for part in parts) if name is not None), None)

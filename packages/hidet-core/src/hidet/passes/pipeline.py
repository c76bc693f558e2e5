"""Passes by name with options, as `hidet opt` takes them: `unfold-control{max-nodes=8},fold-constants`.

A pass is a frozen dataclass, and its fields are its options. Names of options may be written with - for _.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from hidet.errors import OptionError, PluginError, suggestion
from hidet.plugins.specs import PassSpec

if TYPE_CHECKING:
    from hidet.plugins.registry import Registry

_CALL = re.compile(r"\s*(?P<name>[\w.\-]+)\s*(?:\{(?P<options>[^{}]*)\})?\s*(?:,|$)")
_OPTION = re.compile(r"\s*(?P<name>[\w\-]+)\s*=\s*(?P<value>[^,]*?)\s*(?:,|$)")
_TYPES: Mapping[type, Callable[[str], object]] = {int: int, float: float, str: str}
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class PassOption:
    """An option of a pass: a field of its dataclass, its type and its default as text ("" where it has none)."""

    name: str
    type: Any
    default: str

    def __str__(self) -> str:
        return f"{self.spelling}={self.default}" if self.default else self.spelling

    @property
    def spelling(self) -> str:
        """The name as users write it."""
        return self.name.replace("_", "-")

    @property
    def kind(self) -> str:
        """The type as messages name it."""
        return self.type.__name__ if isinstance(self.type, type) else str(self.type)


@dataclass(frozen=True, slots=True)
class PassCall:
    """A pass to run, and the values of its options by name, of the types that it has."""

    spec: PassSpec
    options: Mapping[str, Any]


def parse_pipeline(text: str, registry: Registry) -> tuple[PassCall, ...]:
    """The passes that a text names, in order.

    OptionError for text of another form, unknown passes and options, and values that an option cannot have.
    """
    calls: list[PassCall] = []
    position = 0
    while position < len(text):
        found = _CALL.match(text, position)
        if found is None:
            raise OptionError(
                f"passes {text!r}: cannot read {text[position:]!r}",
                hint="write them as name, or name{option=value,option=value}, with commas between",
            )
        position = found.end()
        spec = registry.passes.get(found["name"])
        if spec is None:
            raise OptionError(f"pass {found['name']!r} is unknown", hint=suggestion(found["name"], registry.passes))
        calls.append(PassCall(spec, _options(spec, found["options"] or "")))
    return tuple(calls)


def pass_options(spec: PassSpec) -> tuple[PassOption, ...]:
    """The options of a pass, in the order of its fields. PluginError where it cannot be loaded."""
    kind: Any = spec.resolve()
    kind = kind if isinstance(kind, type) else type(kind)
    if not dataclasses.is_dataclass(kind):
        return ()
    hints = get_type_hints(kind)
    return tuple(
        PassOption(field.name, hints[field.name], "" if field.default is dataclasses.MISSING else str(field.default))
        for field in dataclasses.fields(kind)
        if field.init
    )


def pass_doc(spec: PassSpec) -> str:
    """One line: what its spec says, or the first line of its class."""
    kind: Any = spec.resolve()
    return spec.doc or str((kind if isinstance(kind, type) else type(kind)).__doc__ or "").strip().partition("\n")[0]


def make_pass(spec: PassSpec, options: Mapping[str, Any]) -> Any:
    """The pass, with these values of options instead of its defaults."""
    loaded: Any = spec.resolve()
    if isinstance(loaded, type):
        return loaded(**options)
    return dataclasses.replace(loaded, **options) if options else loaded


def _options(spec: PassSpec, text: str) -> dict[str, Any]:
    known = {option.name: option for option in pass_options(spec)}
    found: dict[str, Any] = {}
    position = 0
    while position < len(text.rstrip()):
        match = _OPTION.match(text, position)
        if match is None:
            raise OptionError(f"pass {spec.name!r}: cannot read options {text!r}", hint="write name=value,name=value")
        position = match.end()
        name = match["name"].replace("-", "_")
        if name not in known:
            raise OptionError(f"pass {spec.name!r} has no option {match['name']!r}", hint=_known(known.values()))
        if name in found:
            raise OptionError(f"pass {spec.name!r}: option {match['name']!r} is given twice")
        found[name] = _value(spec, known[name], match["value"])
    missing = [str(option) for option in known.values() if not option.default and option.name not in found]
    if missing:
        raise OptionError(f"pass {spec.name!r} needs {', '.join(missing)}", hint=_known(known.values()))
    return found


def _known(options: Iterable[PassOption]) -> str:
    return f"it has {', '.join(f'{option} ({option.kind})' for option in options) or 'no options'}"


def _value(spec: PassSpec, option: PassOption, text: str) -> Any:
    """A value from its text. OptionError names pass, option, what it takes and what was given."""
    kinds = get_args(option.type) if get_origin(option.type) in (Union, types.UnionType) else (option.type,)
    if type(None) in kinds and text == "none":
        return None
    for kind in kinds:
        if kind is bool and text.lower() in _WORDS:
            return _WORDS[text.lower()]
        if kind in _TYPES:
            try:
                return _TYPES[kind](text)
            except ValueError:
                continue
    if not any(kind is bool or kind in _TYPES for kind in kinds):
        raise PluginError(f"pass {spec.name!r}: option {option.spelling!r} is a {option.kind}, which no text can give")
    raise OptionError(f"pass {spec.name!r}: option {option.spelling!r} takes {option.kind}, got {text!r}")

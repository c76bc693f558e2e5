"""Tables of handlers: those of a front-end's own families, and those of plug-ins (`hidet_handlers`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from hidet.errors import HidetError, PluginError, PluginWarning, UnsupportedOp
from hidet.plugins.isolation import Failure, attempt
from hidet.plugins.registry import Registry
from hidet.plugins.specs import HandlerSpec

Handler = Callable[..., Any]
"""Writes a foreign node: `handler(emitter, *inputs, **attributes)` gives its results, or declines by a HidetError."""

Rows = tuple[tuple[int, Handler], ...]
"""Handlers of one operator with the first version that each is right for, the newest one first."""


@dataclass(frozen=True, slots=True, eq=False)
class PluginHandler:
    """The handler of a plug-in, imported at its first call. Whatever else than a HidetError it raises becomes an
    UnsupportedOp that names the plug-in, with a warning; a PluginError where plug-ins are strict."""

    spec: HandlerSpec
    registry: Registry

    def __call__(self, emitter: Any, *inputs: Any, **attributes: Any) -> Any:
        """What the handler returns."""
        made = attempt(partial(self._call, emitter, *inputs, **attributes))
        if not isinstance(made, Failure):
            return made
        if isinstance(made.error, HidetError) and not isinstance(made.error, PluginError):
            raise made.error
        owner = self.registry.owners["handlers", self.spec.name]
        self.registry.complain(owner, f"handler {self.spec.name!r}", made)
        raise UnsupportedOp(f"{owner}: handler {self.spec.name!r} raised {made}") from made.error

    def _call(self, *inputs: Any, **attributes: Any) -> Any:
        handler: Any = self.spec.resolve()
        return handler(*inputs, **attributes)


def handlers_of_families(package: str, families: Iterable[str]) -> dict[str, Handler]:
    """The handlers of a front-end by operator, of modules of `package`, one a family, each with a function `handlers`.

    AssertionError for an operator that two families have.
    """
    found: dict[str, Handler] = {}
    for family in families:
        for operator, handler in import_module(f"{package}.{family}").handlers().items():
            if operator in found:
                raise AssertionError(f"{operator} has two handlers")
            found[operator] = handler
    return found


def plugin_handlers(frontend: str, own: Container[str], registry: Registry) -> dict[str, Rows]:
    """What plug-ins write operators of `frontend` as, by operator.

    own: the operators that the front-end writes itself. A spec for one of these is refused, with a warning, unless it
    says `replaces`; PluginError where plug-ins are strict.
    """
    found: dict[str, Rows] = {}
    for operator, specs in registry.handlers_for(frontend).items():
        taken = [spec for spec in specs if operator not in own or spec.replaces is not None]
        for spec in specs:
            if spec not in taken:
                _refuse(spec, registry)
        if taken:
            found[operator] = tuple((spec.since_version, PluginHandler(spec, registry)) for spec in taken)
    return found


def _refuse(spec: HandlerSpec, registry: Registry) -> None:
    message = (
        f"{registry.owners['handlers', spec.name]}: handler {spec.name!r} refused: front-end {spec.frontend!r} has one "
        f"of its own; say replaces={spec.name!r} to take its place"
    )
    if registry.is_strict:
        raise PluginError(message)
    warnings.warn(PluginWarning(message), stacklevel=3)

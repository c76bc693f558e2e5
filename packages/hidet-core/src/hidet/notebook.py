"""Values that notebooks show as HTML: what a plug-in says of them (`hidet.notebook.html_of` of `hidet_attributes`)."""

from __future__ import annotations

from importlib import import_module


class Shown:
    """Base of what notebooks show."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """HTML; None, which is text to a notebook, where no plug-in makes any."""
        # The host of plug-ins is heavy, and most values are never shown.
        spec = import_module("hidet.plugins.host").load_registry().attributes.get("hidet.notebook.html_of")
        html: str | None = None if spec is None else spec.resolve()(self)
        return html

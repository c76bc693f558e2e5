"""Names of types in signatures lead to what they mean: Sphinx knows no more than their last parts."""

from __future__ import annotations

import functools
from typing import Any

from docutils import nodes
from sphinx.addnodes import desc_signature, pending_xref

from docs.generate.reference import documented


def link_types(app: Any, tree: nodes.document) -> None:
    """Give each name in a signature its full one; where none of ours, or more than one, is meant, it is no link."""
    for signature in tree.findall(desc_signature):
        for link in list(signature.findall(pending_xref)):
            found = _places().get(link["reftarget"].rpartition(".")[2], [])
            if len(found) == 1:
                link["reftarget"] = found[0]
            else:
                link.replace_self(link.children)


@functools.cache
def _places() -> dict[str, list[str]]:
    """Full names by their last parts."""
    places: dict[str, list[str]] = {}
    for place in documented():
        places.setdefault(place.rpartition(".")[2], []).append(place)
    return places

"""The navigation tree of each page, made of titles alone.

The theme asks for titles (`titles_only`), but Sphinx copies the headings of all pages for each page before it drops
them: a third of the time that writing pages takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from docutils import nodes
from sphinx.addnodes import toctree


def list_titles(app: Any, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Give the page a `toctree` that is fast where titles are all that is asked for. A handler of "html-page-context",
    to be called before the theme's."""
    if "toctree" in context:
        context["toctree"] = functools.partial(_resolve, app.env, context["toctree"])


def _resolve(env: Any, resolve: Callable[..., str], **options: Any) -> str:
    if not options.get("titles_only"):
        return resolve(**options)
    headings, env.tocs = env.tocs, _drop_headings(env)
    try:
        return resolve(**options)
    finally:
        env.tocs = headings


@functools.cache
def _drop_headings(env: Any) -> dict[str, nodes.bullet_list]:
    """By page, its title with the `toctree`s below any of its headings. All pages have been read before one is
    written."""
    return {page: _drop_headings_of(headings) for page, headings in env.tocs.items()}


def _drop_headings_of(headings: nodes.bullet_list) -> nodes.bullet_list:
    titles = headings.deepcopy()
    for item in titles.children:
        if isinstance(item, nodes.list_item) and len(item) > 1:
            trees = list(item.findall(toctree))
            del item[2 if trees else 1 :]
            if trees:
                item[1][:] = trees
    return titles

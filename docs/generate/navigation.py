"""The list of all pages beside each page, made of their titles alone.

The theme asks for titles (`titles_only`), and Sphinx copies all headings of all pages for each page before it takes the
titles: a third of the time that it writes pages in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from docutils import nodes
from sphinx.addnodes import toctree as page_list


def list_titles(app: Any, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Have the page's `toctree` see titles where it is asked for no more. A handler of "html-page-context" that comes
    before the theme's."""
    whole = context.get("toctree")
    if whole is not None:
        context["toctree"] = _with_titles(app.env, whole)


def _with_titles(env: Any, whole: Callable[..., str]) -> Callable[..., str]:
    def made(**options: Any) -> str:
        if not options.get("titles_only"):
            return whole(**options)
        headings = env.tocs
        if getattr(env, "hidet_titles_of", None) is not headings:
            env.hidet_titles_of, env.hidet_titles = headings, {name: _titles(each) for name, each in headings.items()}
        env.tocs = env.hidet_titles
        try:
            return whole(**options)
        finally:
            env.tocs = headings

    return made


def _titles(headings: nodes.bullet_list) -> nodes.bullet_list:
    """A page's title, with the lists of pages that stand under any of its headings."""
    titles = headings.deepcopy()
    for item in titles.children:
        if isinstance(item, nodes.list_item) and len(item) > 1:
            lists = list(item.findall(page_list))
            del item[2 if lists else 1 :]
            if lists:
                item[1][:] = lists
    return titles

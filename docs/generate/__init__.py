"""Pages and figures of the documentation site that are made from the sources: `docs/conf.py` calls them.

docstrings.py    docstrings as Markdown
reference.py     a page for each public module
links.py         what types in signatures lead to
operators.py     pages of `hidet.ops`, and of the rules that schedule each operator
command_line.py  the page of `hidet` and its sub-commands
gallery.py       the order of the gallery
data_path.py     the figure of the data path in docs/architecture.md
grids.py         figures of task mappings and layouts in docs/script.md
performance.py   figures of measurements
"""

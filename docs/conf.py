"""Settings of Sphinx for the documentation site: `nox -s docs`.

Pages of the reference, of operators and of the command are written from the sources before Sphinx reads them, into
`docs/reference/`; the gallery runs the scripts of `examples/gallery/`.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))
# What a user has set would show on the pages.
for name in [name for name in os.environ if name.startswith("HIDET_") and name != "HIDET_CACHE_DIR"]:
    del os.environ[name]
# A package of the theme lets the root logger print whatever anybody says.
logging.getLogger("hidet").setLevel(logging.WARNING)

# Scripts of the gallery write files where they stand.
SCRIPTS = DOCS / "_build" / "scripts"
shutil.copytree(DOCS.parent / "examples" / "gallery", SCRIPTS, dirs_exist_ok=True)

project = "hidet"
author = "the hidet developers"
copyright = "the hidet developers, Apache-2.0"

extensions = ["myst_parser", "sphinx_copybutton", "sphinx_gallery.gen_gallery"]
exclude_patterns = [
    "_build",
    "generate",
    "measurements",
    "gallery/*.py",
    "gallery/*.ipynb",
    "gallery/*.json",
    "**/sg_execution_times*",
]
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = "hidet"
html_static_path = ["_static"]
html_search_scorer = str(DOCS / "_static" / "scorer.js")
html_css_files = ["hidet.css"]
html_show_sphinx = False
html_copy_source = False
templates_path: list[str] = []
# Types in signatures, in the words of the sources.
python_maximum_signature_line_length = 100
add_module_names = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": [str(SCRIPTS)],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": True,
    "reset_modules": (),
    "image_scrapers": (),
    "within_subsection_order": "docs.generate.gallery.place",
    "write_computation_times": False,
    "min_reported_time": 1_000_000,
    "remove_config_comments": True,
}


def setup(app: Any) -> None:
    """Have pages written from the sources first."""
    from docs.generate.links import link_types
    from docs.generate.navigation import list_titles

    app.connect("builder-inited", _write_pages, priority=100)
    app.connect("doctree-read", link_types)
    app.connect("html-page-context", list_titles, priority=100)


def _write_pages(app: Any) -> None:
    from docs.generate.command_line import write_command_line
    from docs.generate.operators import write_operators
    from docs.generate.performance import write_performance
    from docs.generate.reference import write_reference

    folder = DOCS / "reference"
    write_reference(folder)
    write_operators(folder / "operators")
    write_performance(folder / "performance.md")
    write_command_line(folder / "command-line.md")

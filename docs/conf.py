"""How Sphinx builds the site: ``python -m sphinx -W --keep-going -b html docs OUT``, which needs no network."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util.logging import getLogger

import treemem

if TYPE_CHECKING:
    from pathlib import Path

    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

logger = getLogger(__name__)

project = "treemem"
copyright = "the authors of treemem, Apache-2.0"
version = release = treemem.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"treemem {version}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["treemem.css"]
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = False
python_maximum_signature_line_length = 100


def setup(app: Sphinx) -> None:
    """Formulas as MathML, and links to the tasks' own pages."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("source-read", link_to_included_pages)
    app.connect("include-read", lambda app, path, name, source: link_to_included_pages(app, name, source))
    app.connect("autodoc-skip-member", skip_fields_of_named_tuples)
    app.connect("autodoc-process-docstring", keep_what_is_returned_whole, priority=400)  # before napoleon, at 500
    app.connect("doctree-read", drop_bases_that_say_nothing)
    app.connect("doctree-resolved", say_where_cells_may_break)


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line. Browsers draw MathML themselves: no script, and nothing from the network."""
    self.body.append(mathml(node))
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """A formula on lines of its own."""
    self.body.append(self.starttag(node, "div", CLASS="formula"))
    self.body.append(mathml(node) + "</div>\n")
    raise nodes.SkipNode


def mathml(node: nodes.math | nodes.math_block) -> str:
    """The formula, or a warning that names its place where it cannot be read."""
    try:
        return tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block))
    except MathError as error:
        logger.warning("%s: %s", error, node.astext(), location=node)
        return ""


def skip_fields_of_named_tuples(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Fields of named tuples stand among the attributes of their class already."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def keep_what_is_returned_whole(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """No text under "Returns:" begins with a type, so what stands before a colon there is none: say so to napoleon."""
    for place, (line, following) in enumerate(pairwise(lines), 1):
        if line.strip() == "Returns:" and following.strip():
            indent = len(following) - len(following.lstrip())
            lines[place] = f"{following[:indent]}: {following[indent:]}"


def drop_bases_that_say_nothing(app: Sphinx, page: nodes.document) -> None:
    """Every class has ``object`` as its base."""
    for paragraph in list(page.findall(nodes.paragraph)):
        if paragraph.astext() == "Bases: object":
            paragraph.parent.remove(paragraph)


def say_where_cells_may_break(app: Sphinx, page: nodes.document, name: str) -> None:
    """Let names like "Tree-LSTM+stack+no-op" break after a plus in tables, and keep "± 0.15" on one line."""
    for entry in page.findall(nodes.entry):
        for text in list(entry.findall(nodes.Text)):
            parts = re.split(r"(?<=\w\+)(?=\w)", text.replace("± ", "±\N{NO-BREAK SPACE}"))
            broken: list[nodes.Node] = [nodes.Text(parts[0])]
            for part in parts[1:]:
                broken += [nodes.raw("", "<wbr>", format="html"), nodes.Text(part)]
            text.parent.replace(text, broken)


def link_to_included_pages(app: Sphinx, name: str | Path, source: list[str]) -> None:
    """Point links to a task's README and to a model's card at the pages that include them.

    In the repository they are links from file to file; other files outside of ``docs`` become downloads by themselves.
    """
    for file, page in (("README", ""), ("pretrained/CARD", "_model"), ("pretrained_stack/CARD", "_stack_model")):
        source[0] = re.sub(rf"\]\((?:\.\./)+tasks/(\w+)/{file}\.md", rf"](/tasks/\1{page}.md", source[0])

"""A page as one file with its style, scripts and data."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from treemem.induction.page_template import page_template

_SCRIPTS = (
    *("numbers", "trees", "tree_view", "scene", "sequence_view"),
    *("details", "neighbours", "plane", "averages", "page"),
)


def html_page(data: Mapping[str, Any]) -> str:
    """Return the page of the ``data`` of :func:`treemem.explore.explorer.page_data`.

    The data are JSON without markup characters, and the scripts show them as text only. The page's content security
    policy forbids requests and all styles and scripts but its own.
    """
    style = _file("page.css")
    script = "(() => {\n'use strict';\n" + "".join(_file(f"{name}.js") for name in _SCRIPTS) + "})();\n"
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'"
    template = page_template("treemem.explore", "page.html")
    return template.render(title=data["title"], policy=policy, style=style, script=script, data=data)


def _file(name: str) -> str:
    return (resources.files("treemem.explore") / "page_files" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

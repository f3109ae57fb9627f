"""A page as one file that asks for nothing else: markup, style, scripts and data together."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

_SCRIPTS = ("numbers", "trees", "tree_view", "scene", "sequence_view", "details", "neighbours", "plane", "page")
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}


def html_page(data: Mapping[str, Any]) -> str:
    """The page that shows ``data``, what :func:`treemem.explore.explorer.page_data` returns.

    The data are inert: JSON in which no character of markup occurs, and the scripts show it as text only. The page
    forbids itself any request and any script or style but its own, which it names by their hashes.
    """
    style = _file("page.css")
    script = "(() => {\n'use strict';\n" + "".join(_file(f"{name}.js") for name in _SCRIPTS) + "})();\n"
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'"
    parts = {
        "title": html.escape(str(data["title"])),
        "policy": policy,
        "style": style,
        "data": in_script(data),
        "script": script,
    }
    page = _file("page.html")
    pieces = page.split("{{")
    made = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        made += [parts[name], rest]
    return "".join(made)


def in_script(data: Any) -> str:
    """``data`` as JSON that may stand in a ``script`` element whatever texts it holds: ASCII without ``<>&``."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def _file(name: str) -> str:
    return (resources.files("treemem.explore") / "page_files" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

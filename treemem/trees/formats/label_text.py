"""How a label is written in brackets: as it is, or in double quotes."""

from __future__ import annotations

import json
import re

from treemem.trees.formats.form_signs import form_by_signs

VALUE_SUFFIX = re.compile(r"=[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
"""The value behind the label of a leaf in brackets, as in ``label=2.5``."""

_PLAIN_LABEL = re.compile(r"[^\s()\"]+(?<!\\)\Z")
_SPACE = re.compile(r"[ \t\r\n\f\v]")
_BRACKET = re.compile(r"[()]")
_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in " ()"})


def format_label(label: str, *, is_inner: bool = False, is_root: bool = False) -> str:
    """Return the text of a label, in quotes if it would be read as something else.

    Args:
        label: the label.
        is_inner: whether its node has children.
        is_root: whether it is the label of a tree of one node.
    """
    if label.isalnum():
        return label
    is_plain = (
        _PLAIN_LABEL.match(label)
        and label.isprintable()
        and not ("=" in label and VALUE_SUFFIX.search(label))
        and not (is_inner and ends_in_comma(label))
    )
    if is_plain and is_root:
        is_plain = form_by_signs(label) is None
    if is_plain:
        return label
    quoted = json.dumps(label)
    return quoted if is_label(quoted[1:-1]) else quoted.translate(_ESCAPES)


def ends_in_comma(label: str) -> bool:
    """Return whether a label before children belongs to another form, as in ``(f, x)`` and ``(A,(B,C))``."""
    return label[-1:] == "," and len(label) > 1


def is_label(content: str) -> bool:
    """Return whether the text between two quotes is a label, not what stands between two words that are quotes.

    In ``(says " (X hi there) ")`` and ``(`` ") (JJ old) ('' ")`` the quotes are words. A label with spaces and brackets
    has neither a space at its ends nor brackets that do not match, and one that begins with a space has no other.
    """
    has_space = _SPACE.search(content) is not None
    if not has_space:
        return True
    brackets = _BRACKET.findall(content)
    if not brackets:
        return not _SPACE.match(content) or (len(content) > 1 and not _SPACE.search(content, 1))
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket == "(" else -1
        if depth < 0:
            return False
    return depth == 0 and not _SPACE.match(content) and not _SPACE.match(content[-1])

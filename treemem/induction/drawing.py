"""Pictures of trees as SVG: words below each other, the tree to their left."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from typing import Any

from treemem.induction.page_template import page_template
from treemem.induction.spans import Span
from treemem.trees.tree import Tree

_LINE = 18  # all measures in px
_MARGIN = 8
_CHARACTER = 7.9
_WIDEST_STEP, _DEEPEST = 20.0, 280.0
_LONGEST_WORD = 24


def tree_svg(tree: Tree, gold: Collection[Span] | None = None) -> str:
    """Return a picture of a tree that puts each word on a line of its own, the same one in each tree of a sentence.

    The root is at the left, the words stand at the right from top to bottom. An inner node is a vertical line from its
    first child to its last; the higher the node, the further to the left.

    Args:
        tree: its leaves are the words; labels of inner nodes are not shown.
        gold: the spans of the gold tree; nodes with other spans are dashed, of another colour and with an open dot.

    Returns:
        An ``svg`` element that needs nothing else, with its words escaped.
    """
    words = [shown_word(leaf.label) for leaf in tree.leaves()]
    step = min(_WIDEST_STEP, _DEEPEST / max(tree.height, 1))
    text_begin = _MARGIN + step * tree.height + 6
    return page_template("treemem.induction", "tree.svg").render(
        width=_px(text_begin + max(map(_width, words)) + _MARGIN),
        height=2 * _MARGIN + _LINE * len(words),
        tree_height=tree.height,
        nodes=_nodes(tree, words, gold, text_begin - 6, step),
        words=words,
        text_begin=_px(text_begin),
        line=_LINE,
    )


def _nodes(
    tree: Tree, words: list[str], gold: Collection[Span] | None, right: float, step: float
) -> list[dict[str, Any]]:
    """Of each inner node the lines to its children and its dot; ``right`` is where the leaves are."""
    nodes: list[dict[str, Any]] = []
    done: list[tuple[float, float, int]] = []  # of each subtree: x, y, its first word
    num_words = 0
    for node in tree.postorder():
        if node.is_leaf:
            done.append((right, _MARGIN + _LINE * (num_words + 0.5), num_words))
            num_words += 1
            continue
        children = done[len(done) - node.arity :]
        del done[len(done) - node.arity :]
        x, first, last = right - step * node.height, children[0][1], children[-1][1]
        y, begin = (first + last) / 2, children[0][2]
        to_children = "".join(f"M{_px(x)} {_px(child_y)}H{_px(child_x)}" for child_x, child_y, _ in children)
        nodes.append(
            {
                "is_odd": gold is not None and (begin, num_words) not in gold,
                "title": words[begin] + (f" … {words[num_words - 1]}" if num_words - begin > 1 else ""),
                "path": f"M{_px(x)} {_px(first)}V{_px(last)}{to_children}",
                "x": _px(x),
                "y": _px(y),
            }
        )
        done.append((x, y, begin))
    return nodes


def _px(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _width(word: str) -> float:
    """About how wide a word is; Chinese characters and the like take two places."""
    return _CHARACTER * sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in word)


def shown_word(word: str) -> str:
    """Return a word as a picture shows it, not yet escaped: printable, and cut if it is long."""
    shown = printable(word)
    return shown if len(shown) <= _LONGEST_WORD else shown[: _LONGEST_WORD - 1] + "…"


def printable(text: str) -> str:
    """Return ``text``, not yet escaped, with escapes of Python for what cannot be printed; blank text gets quotes."""
    if not text.strip():
        return ascii(text)
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)

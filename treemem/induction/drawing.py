"""Pictures of trees as SVG: words below each other, the tree to their left."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Collection

from treemem.induction.spans import Span
from treemem.trees.tree import Tree

_LINE = 18  # all measures in px
_MARGIN = 8
_FONT = 13
_CHARACTER = 7.9
_WIDEST_STEP, _DEEPEST = 20.0, 280.0
_LONGEST_WORD = 24
_INK, _ODD = "#27323f", "#c2410c"


def tree_svg(tree: Tree, gold: Collection[Span] | None = None) -> str:
    """A picture of a tree that stays legible for long sentences and puts the same word on the same line in each tree.

    The root is at the left, the words stand at the right from top to bottom. An inner node is a vertical line from its
    first child to its last, as far to the left as its height asks for.

    Args:
        tree: its leaves are the words; labels of inner nodes are not shown.
        gold: the spans of the given tree; nodes with other spans are dashed and of another colour, with an open dot.

    Returns:
        An ``svg`` element that needs nothing else. It depends on the arguments alone, and the words in it are escaped.
    """
    words = [shown_word(leaf.label) for leaf in tree.leaves()]
    step = min(_WIDEST_STEP, _DEEPEST / max(tree.height, 1))
    text_begin = _MARGIN + step * tree.height + 6
    width = text_begin + max(map(_width, words)) + _MARGIN
    height = 2 * _MARGIN + _LINE * len(words)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_px(width)}" height="{height}" '
        f'viewBox="0 0 {_px(width)} {height}" role="img" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" '
        f'font-size="{_FONT}" fill="{_INK}"><title>tree of {len(words)} words, height {tree.height}</title>'
    ]
    parts += _nodes(tree, words, gold, text_begin - 6, step)
    for line, word in enumerate(words):
        baseline = _MARGIN + _LINE * line + 13
        parts.append(f'<text x="{_px(text_begin)}" y="{baseline}" xml:space="preserve">{html.escape(word)}</text>')
    return "".join([*parts, "</svg>"])


def _nodes(tree: Tree, words: list[str], gold: Collection[Span] | None, right: float, step: float) -> list[str]:
    """The lines of each inner node to its children, and its dot; ``right`` is where the leaves are."""
    parts: list[str] = []
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
        odd = gold is not None and (begin, num_words) not in gold
        path = f"M{_px(x)} {_px(first)}V{_px(last)}" + "".join(
            f"M{_px(x)} {_px(child_y)}H{_px(child_x)}" for child_x, child_y, _ in children
        )
        dashes = ' stroke-dasharray="4 2"' if odd else ""
        colour = _ODD if odd else _INK
        dot = "#ffffff" if odd else colour
        what = f"{words[begin]} … {words[num_words - 1]}" if num_words - begin > 1 else words[begin]
        parts.append(
            f'<g stroke="{colour}"><title>{html.escape(what)}</title>'
            f'<path d="{path}" fill="none"{dashes}/>'
            f'<circle cx="{_px(x)}" cy="{_px(y)}" r="2.5" fill="{dot}"/></g>'
        )
        done.append((x, y, begin))
    return parts


def _px(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _width(word: str) -> float:
    """About how wide a word is; characters of Chinese and the like are two wide."""
    return _CHARACTER * sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in word)


def shown_word(word: str) -> str:
    """A word as a picture shows it, not yet escaped: as :func:`printable`, and cut where it is long."""
    shown = printable(word)
    return shown if len(shown) <= _LONGEST_WORD else shown[: _LONGEST_WORD - 1] + "…"


def printable(text: str) -> str:
    """``text``, not yet escaped, with what cannot be printed as an escape of Python; blank text stands in quotes."""
    if not text.strip():
        return ascii(text)
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)

"""The best fillings of a blank, for equations as people write them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from treemem.checked_options import checked_count
from treemem.errors import ParseError, VocabularyError
from treemem.model import Model
from treemem.tasks.equation_verification.completion.blanks import Blanks
from treemem.tasks.equation_verification.completion.candidates import Candidates, make_candidates
from treemem.tasks.equation_verification.completion.completion import Engine, filling_scores
from treemem.trees.equation_parser import parse_equation
from treemem.trees.equation_tokens import describe_strange_character, describe_token, read_tokens
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

BLANK = "?"
"""How a blank is written."""

_AFTER_A_VALUE = "right after a value; a product is written with '*'"


@dataclass(frozen=True)
class Filling:
    """What a blank may be filled with.

    Attributes:
        text: the expression, in the published names of variables: x, y, z, w, v4.
        score: ``z`` of the filled equation.
        probability: of the filled equation being true, ``sigmoid(z)``.
        tree: the expression.
    """

    text: str
    score: float
    probability: float
    tree: Tree


def fill(
    model: Model, text: str, *, top: int = 10, collapse: bool = False, candidates: Candidates | None = None
) -> list[Filling]:
    """The best fillings of the blank of an equation, the best first.

    Args:
        model: a trained network of equation verification.
        text: an equation with ``?`` for its blank, which stands where a number or a name may. Variables have the
            published names x, y, z, w, v4, v5, ..., which candidates have too.
        top: how many to give; of those that say the same one alone, and fewer if there are no more.
        collapse: whether to give one filling of each value class alone, its best, rather than ``1``, ``1*1``, ...
        candidates: what may stand there; the published ones by default.

    Raises:
        ParseError: no ``?`` or several, or a text that is no equation.
        VocabularyError: a label that the model does not know.
        RecipeError: a model of another task, or a ``top`` that is no number of at least 1.
        CellError: scores that are not numbers.

    Example:
        >>> from treemem.model import Model
        >>> from treemem.tasks.equation_verification import EquationVerification
        >>> model = Model(EquationVerification(), EquationVerification.networks["Tree-LSTM"])
        >>> len(fill(model, "sin(x)^2 + ? = 1", top=3))
        3
    """
    equation, node = parse_blanked(text)
    forest = Forest.from_trees([equation])
    blanks = Blanks(np.zeros(1, np.int64), np.array([node]), np.array([-1]))
    return best_fillings(model, forest, blanks, top=top, collapse=collapse, candidates=candidates)[0]


def best_fillings(
    model: Model,
    equations: Forest,
    blanks: Blanks,
    *,
    top: int = 10,
    collapse: bool = False,
    candidates: Candidates | None = None,
    engine: Engine = "auto",
) -> list[list[Filling]]:
    """The best fillings of each of many blanks, the best first; arguments and errors are those of :func:`fill`."""
    checked_count("top", top)
    candidates = candidates or make_candidates()
    same = candidates.value_class if collapse else candidates.reading
    found = []
    for batch in filling_scores(model, equations, blanks, candidates, engine=engine):
        for scores in batch:
            order = np.argsort(-scores, kind="stable")
            _, first = np.unique(same[order], return_index=True)
            best = order[np.sort(first)[:top]]
            found.append([_filling(candidates, candidate, float(scores[candidate])) for candidate in best.tolist()])
    return found


def _filling(candidates: Candidates, candidate: int, score: float) -> Filling:
    probability = 1 / (1 + math.exp(-score)) if score > 0 else math.exp(score) / (1 + math.exp(score))
    return Filling(candidates.text(candidate), score, probability, candidates.unified[candidate])


def parse_blanked(text: str) -> tuple[Tree, int]:
    """An equation with ``?`` for its blank: the tree, with 0 in the blank, and the blank's place in post-order.

    Raises:
        ParseError: no ``?`` or several, or a text that is no equation.
    """
    place = text.find(BLANK)
    if place < 0:
        raise ParseError(f"there is no {BLANK!r}", text, len(text), f"one {BLANK!r} where the blank is")
    second = text.find(BLANK, place + 1)
    if second >= 0:
        raise ParseError(f"a second {BLANK!r}", text, second, "one blank in an equation")
    _check_before(text, place)
    _check_behind(text, place)
    try:
        marked = parse_equation(text.replace(BLANK, "x"), variables="indexed")  # as long: columns stay what they are
    except ParseError as error:
        raise ParseError(error.problem, text, error.offset, error.expected) from error
    except VocabularyError as error:
        raise VocabularyError(error.problem, text, error.offset) from error
    tree = parse_equation(text.replace(BLANK, "(0)"), variables="indexed")
    pairs = enumerate(zip(tree.postorder(), marked.postorder(), strict=True))
    return tree, next(number for number, (node, other) in pairs if node.label != other.label)


def _check_before(text: str, place: int) -> None:
    """Make sure that the text is right up to the ``?`` at ``place``, and that a value may stand there.

    Raises:
        ParseError, VocabularyError: it is not, or may not.
    """
    problem, _ = describe_strange_character(BLANK)
    try:
        parse_equation(text, variables="indexed")
    except ParseError as error:
        if error.offset != place or error.problem != problem:
            raise
        before = [token.sort for token in read_tokens(text) if token.offset < place]
        if before and before[-1] in ("number", "name", ")"):
            raise ParseError(f"unexpected {BLANK!r} {_AFTER_A_VALUE}", text, place, error.expected) from error


def _check_behind(text: str, place: int) -> None:
    """Make sure that what follows the ``?`` at ``place`` is neither a value nor the arguments of a function.

    Raises:
        ParseError: it is.
    """
    token = next(token for token in read_tokens(text) if token.offset > place)
    if token.sort in ("number", "name", "("):
        raise ParseError(f"unexpected {describe_token(token)} {_AFTER_A_VALUE}", text, token.offset, "an operator")

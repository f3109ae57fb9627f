"""The best fillings of a blank, for equations as people write them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from treemem.errors import ParseError, RecipeError, VocabularyError
from treemem.task import Model
from treemem.tasks.equation_completion.blanks import Blanks
from treemem.tasks.equation_completion.candidates import Candidates, make_candidates
from treemem.tasks.equation_completion.completion import Engine, filling_scores
from treemem.trees.equation_parser import parse_equation
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

BLANK = "?"
"""How a blank is written."""

_ANYTHING = Tree("Integer:0")


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
        RecipeError: a model of another task, or ``top`` below 1.
        CellError: scores that are not numbers.

    Example:
        >>> from treemem.task import Model
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
    if top < 1:
        raise RecipeError(f"top must be at least 1, not {top}")
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
    """An equation with ``?`` for its blank: the tree, with some leaf in the blank, and the blank's place in post-order.

    Raises:
        ParseError: no ``?`` or several, or a text that is no equation.
    """
    place = text.find(BLANK)
    if place < 0:
        raise ParseError(f"there is no {BLANK!r}", text, len(text), f"one {BLANK!r} where the blank is")
    second = text.find(BLANK, place + 1)
    if second >= 0:
        raise ParseError(f"a second {BLANK!r}", text, second, "one blank in an equation")
    name = "blank"
    while name in text:
        name += "_"
    stand_in = f"{name}(0)"  # a function of one's own is the one thing that takes no variable's number

    def in_text(offset: int) -> int:
        return offset if offset <= place else max(place, offset - len(stand_in) + len(BLANK))

    try:
        tree = parse_equation(text.replace(BLANK, stand_in), variables="indexed", functions={name: 1})
    except ParseError as error:
        raise ParseError(error.problem, text, in_text(error.offset), error.expected) from error
    except VocabularyError as error:
        raise VocabularyError(error.problem, text, in_text(error.offset)) from error
    done: list[Tree] = []
    blank = -1
    for number, node in enumerate(tree.postorder()):
        first = len(done) - node.arity
        if node.label == name:
            blank = number - 1  # the argument that stood before it is gone
            done[first:] = [_ANYTHING]
        else:
            done[first:] = [Tree(node.label, done[first:], node.value)]
    return done.pop(), blank

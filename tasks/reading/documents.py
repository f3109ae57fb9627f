"""Documents of facts about entities, and queries that leave one entity out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

PLACEHOLDER = "@placeholder"

RELATIONS: tuple[tuple[str, ...], ...] = (
    ("S hired O", "O was hired by S", "S gave O a job", "O got a job from S"),
    ("S beat O in the race", "O was beaten by S", "S was faster than O", "O lost the race to S"),
    ("S is the parent of O", "O is a child of S", "S raised O", "O grew up with S"),
    ("S teaches O", "O is taught by S", "S gives lessons to O", "O takes lessons from S"),
    ("S visited O", "O was visited by S", "S came to the house of O", "O had S as a guest"),
    ("S owes money to O", "O lent money to S", "S is in debt to O", "O waits for money from S"),
    ("S called O", "O was called by S", "S rang O on the phone", "O answered the phone to S"),
    ("S helped O", "O was helped by S", "S came to the aid of O", "O had help from S"),
    ("S blamed O", "O was blamed by S", "S put the blame on O", "O took the blame from S"),
    ("S sold a car to O", "O bought a car from S", "S was paid by O for a car", "O paid S for a car"),
)
"""The sentences of each relation; ``S`` is its subject and ``O`` its object."""

WORDS = tuple(
    dict.fromkeys(word for forms in RELATIONS for text in forms for word in text.split() if word not in ("S", "O"))
)
"""The words of all sentences, without the full stop."""


class Fact(NamedTuple):
    """A relation between two entities, which are numbers."""

    relation: int
    subject: int
    object: int


class Question(NamedTuple):
    """A document, a query and the answer.

    Attributes:
        document, query: their tokens; an entity is its number.
        answer: an entity.
    """

    document: list[str | int]
    query: list[str | int]
    answer: int

    def renamed(self, names: Sequence[str]) -> tuple[list[str], list[str], str]:
        """Return document, query and answer with a name for each entity."""
        document, query = (
            [names[token] if isinstance(token, int) else token for token in tokens]
            for tokens in (self.document, self.query)
        )
        return document, query, names[self.answer]


def most_facts(entities: int, relations: int) -> int:
    """Return the most facts of a document, all different, of which one alone answers the query."""
    return relations * entities * (entities - 1) - (entities - 2)


def draw_question(facts: int, entities: int, relations: int, generator: random.Random) -> Question:
    """Return a document and a query, a paraphrase of one of its facts with one entity left out.

    The query's other entity has no such relation in the same role to a third entity, so there is one answer. A second
    fact has that entity in another relation, and a third fact is the same relation of others or in the other
    direction; all others are drawn at random. Entities are numbered as they first occur.

    Args:
        facts: of the document, at most ``most_facts(entities, relations)``.
        entities: from which facts are drawn, at least 3.
        relations: the first of ``RELATIONS`` from which facts are drawn, at least 2.
        generator: of all choices.
    """
    asked, known, other, *_ = generator.sample(range(entities), 3)
    leaves_out_subject = generator.random() < 0.5
    relation = generator.randrange(relations)
    fact = Fact(relation, asked, known) if leaves_out_subject else Fact(relation, known, asked)
    drawn = {fact}

    def add(one: Fact) -> None:
        partner = one.object if leaves_out_subject else one.subject
        if one.relation != relation or partner != known:
            drawn.add(one)

    if facts > 1:
        another = (relation + generator.randrange(1, relations)) % relations
        add(Fact(another, *generator.sample((known, other), 2)))
    if facts > 2:
        pair = [entity for entity in range(entities) if entity != known]
        ends = generator.sample(pair, 2) if generator.random() < 0.5 else [known, generator.choice(pair)]
        add(Fact(relation, *(ends if leaves_out_subject else ends[::-1])))
    while len(drawn) < facts:
        add(Fact(generator.randrange(relations), *generator.sample(range(entities), 2)))
    order = sorted(drawn)
    generator.shuffle(order)
    document: list[str | int] = []
    form = 0
    for stated in order:
        form_of_each = generator.randrange(len(RELATIONS[stated.relation]))
        if stated == fact:
            form = form_of_each
        document += _sentence(stated, form_of_each)
    forms = len(RELATIONS[relation])
    query = _sentence(fact, (form + generator.randrange(1, forms)) % forms)
    number = {token: place for place, token in enumerate(dict.fromkeys(t for t in document if isinstance(t, int)))}
    return Question(
        [number[token] if isinstance(token, int) else token for token in document],
        [PLACEHOLDER if token == asked else number[token] if isinstance(token, int) else token for token in query],
        number[asked],
    )


def _sentence(fact: Fact, form: int) -> list[str | int]:
    entity = {"S": fact.subject, "O": fact.object}
    return [*(entity.get(word, word) for word in RELATIONS[fact.relation][form].split()), "."]


def guesses(document: Sequence[str], query: Sequence[str]) -> dict[str, str | None]:
    """Return the answers of baselines without a network (Hermann et al. 2015, section 4.1), by name.

    ``"maximum frequency"``: the entity that the document has most often. ``"exclusive frequency"``: that of those that
    the query does not have. ``"nearest"``: the entity with the shortest distance in words to an entity of the query.
    Of equals, the first. None if there is no such entity.
    """
    places = [place for place, token in enumerate(document) if is_entity(token)]
    asked = {token for token in query if is_entity(token)}
    count: dict[str, int] = {}
    for place in places:
        count[document[place]] = count.get(document[place], 0) + 1
    exclusive = {entity: times for entity, times in count.items() if entity not in asked}
    known = [place for place in places if document[place] in asked]
    distance = [
        (min(abs(place - entity_place) for entity_place in known), place)
        for place in places
        if document[place] not in asked and known
    ]
    return {
        "maximum frequency": max(count, key=count.__getitem__, default=None),
        "exclusive frequency": max(exclusive, key=exclusive.__getitem__, default=None),
        "nearest": document[min(distance)[1]] if distance else None,
    }


def is_entity(token: str) -> bool:
    """Return whether a token is an entity marker, such as ``@entity3``."""
    return token.startswith("@entity")

"""The published table of targeted syntactic evaluation, and which sentences each of its rows is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treemem.tasks.language_modeling.generation.english import MinimalPair


class PublishedRow(NamedTuple):
    """The accuracies of a row, as fractions."""

    on_lstm: float
    lstm: float


PUBLISHED = {
    "agreement: simple": PublishedRow(0.99, 1.00),
    "agreement: sentential complement": PublishedRow(0.95, 0.98),
    "agreement: short VP coordination": PublishedRow(0.89, 0.92),
    "agreement: in an object relative": PublishedRow(0.84, 0.88),
    "agreement: in an object relative without that": PublishedRow(0.78, 0.81),
    "reflexive: simple": PublishedRow(0.89, 0.82),
    "reflexive: sentential complement": PublishedRow(0.86, 0.80),
    "polarity: simple: grammatical, intrusive": PublishedRow(0.18, 1.00),
    "polarity: simple: intrusive, ungrammatical": PublishedRow(0.50, 0.01),
    "polarity: simple: grammatical, ungrammatical": PublishedRow(0.07, 0.63),
    "agreement: long VP coordination": PublishedRow(0.74, 0.74),
    "agreement: across a prepositional phrase": PublishedRow(0.67, 0.68),
    "agreement: across a subject relative": PublishedRow(0.66, 0.60),
    "agreement: across an object relative": PublishedRow(0.57, 0.52),
    "agreement: across an object relative without that": PublishedRow(0.54, 0.51),
    "reflexive: across a relative": PublishedRow(0.57, 0.58),
    "polarity: across a relative: grammatical, intrusive": PublishedRow(0.59, 0.95),
    "polarity: across a relative: intrusive, ungrammatical": PublishedRow(0.20, 0.00),
    "polarity: across a relative: grammatical, ungrammatical": PublishedRow(0.11, 0.04),
}
"""Table 3 of Shen et al. 2019 (ON-LSTM); its short-term dependencies are those before the long VP coordination."""

_ROWS = {
    "simple_agrmt": "agreement: simple",
    "stmt_before_sent": "agreement: sentential complement",
    "sent_comp": "agreement: sentential complement",
    "vp_coord": "agreement: short VP coordination",
    "long_vp_coord": "agreement: long VP coordination",
    "prep_anim": "agreement: across a prepositional phrase",
    "prep_inanim": "agreement: across a prepositional phrase",
    "subj_rel": "agreement: across a subject relative",
    "simple_reflexives": "reflexive: simple",
    "stmt_before_reflexive": "reflexive: sentential complement",
    "reflexives": "reflexive: across a relative",
    "simple_npi_anim": "polarity: simple",
    "simple_npi_inanim": "polarity: simple",
    "npi_anim": "polarity: across a relative",
    "npi_inanim": "polarity: across a relative",
}
_OBJECT_RELATIVES = {
    "obj_rel_anim": "an object relative",
    "obj_rel_inanim": "an object relative",
    "obj_rel_no_comp": "an object relative without that",
    "obj_rel_no_comp_anim": "an object relative without that",
    "obj_rel_no_comp_inanim": "an object relative without that",
}


def row_of(file: str, key: str) -> str:
    """Return the row of the published table that a record is for, or the name of the file if it is none of theirs.

    In a file of object relatives the field ``key`` names first the subject whose verb is compared: ``ES``, the one in
    the relative clause, or another.

    Args:
        file: name without suffix.
        key: of the record.
    """
    if file not in _OBJECT_RELATIVES or not key:
        return _ROWS.get(file, file)
    where = "in" if key.split("_")[1:2] == ["ES"] else "across"
    return f"agreement: {where} {_OBJECT_RELATIVES[file]}"


def compared(construction: str, sentences: Sequence[tuple[str, ...]]) -> list[MinimalPair]:
    """Return the pairs that are compared: one, or the three of a polarity item, which are rows of their own.

    Args:
        construction: its name.
        sentences: the grammatical and the ungrammatical one, or the intrusive one between them.
    """
    if len(sentences) == 2:
        return [MinimalPair(construction, *sentences)]
    good, intrusive, bad = sentences
    return [
        MinimalPair(f"{construction}: grammatical, intrusive", good, intrusive),
        MinimalPair(f"{construction}: intrusive, ungrammatical", intrusive, bad),
        MinimalPair(f"{construction}: grammatical, ungrammatical", good, bad),
    ]

"""Published figures of unsupervised parsers on the Wall Street Journal, as texts of a table."""

from __future__ import annotations

from treemem.explore.tables import markdown_table

LABELS = ("ADJP", "NP", "PP", "INTJ")
"""The labels whose recall the published table has."""
HEAD = ("trees", "at most 10 words", "max", "all", "max", "depth", *LABELS)

_SHEN = """
PRPN-UP, AllNLI | 66.3 (0.8) | 68.5 | 38.3 (0.5) | 39.8 | 5.8 | 28.7 | 65.5 | 32.7 | 0.0
PRPN-LM, AllNLI | 52.4 (4.9) | 58.1 | 35.0 (5.4) | 42.8 | 6.1 | 37.8 | 59.7 | 61.5 | 100.0
PRPN-UP | 62.2 (3.9) | 70.3 | 26.0 (2.3) | 32.8 | 5.8 | 24.8 | 54.4 | 17.8 | 0.0
PRPN-LM | 70.5 (0.4) | 71.3 | 37.4 (0.3) | 38.1 | 5.9 | 26.2 | 63.9 | 24.4 | 0.0
ON-LSTM, layer 1 | 35.2 (4.1) | 42.8 | 20.0 (2.8) | 24.0 | 5.6 | 38.1 | 23.8 | 18.3 | 100.0
ON-LSTM, layer 2 | 65.1 (1.7) | 66.8 | 47.7 (1.5) | 49.4 | 5.6 | 46.2 | 61.4 | 55.4 | 0.0
ON-LSTM, layer 3 | 54.0 (3.9) | 57.6 | 36.6 (3.3) | 40.4 | 5.3 | 44.8 | 57.5 | 47.2 | 0.0
left-branching | 19.6 | 19.6 | 9.0 | 9.0 | 12.4
right-branching | 56.6 | 56.6 | 39.8 | 39.8 | 12.4
balanced | 43.4 | 43.4 | 24.5 | 24.5 | 4.6 | 22.1 | 20.2 | 9.3 | 55.9
random | 31.7 (0.3) | 32.2 | 18.4 (0.1) | 18.6 | 5.3 | 17.4 | 22.3 | 16.0 | 40.4
"""
_LATER = """
DIORA (Drozdov et al. 2019) | 67.7 | 68.5 | 48.9 | 49.6
PRPN, tuned (Kim et al. 2019) | | | 47.3 | 47.9
ON-LSTM, tuned (Kim et al. 2019) | | | 48.1 | 50.0
Neural PCFG (Kim et al. 2019) | | | 50.8 | 52.6
Compound PCFG (Kim et al. 2019) | | | 55.2 | 60.1
"""


def published_parsers() -> str:
    """Return the published table (Shen et al. 2019, ON-LSTM, table 2) and later parsers' rows as a Markdown table.

    Mean (standard deviation) and maximum of sentence F1, on all sentences of at most 10 words and on section 23.
    """
    rows = [[cell.strip() for cell in line.split("|")] for line in (_SHEN + _LATER).split("\n") if line]
    return markdown_table([list(HEAD), *([*row, *[""] * (len(HEAD) - len(row))] for row in rows)])

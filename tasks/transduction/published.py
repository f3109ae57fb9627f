"""What the lecture says of each memory on each kind of pair."""

from __future__ import annotations

SOURCE = 'E. Grefenstette, "Beyond sequence to sequence with augmented RNNs", lecture of 2016'
MEMORIES = ("Stack", "Queue", "DeQue", "Deep LSTM")
VERDICTS: dict[str, tuple[str, ...]] = {
    "copy": ("poor", "solved", "solved", "poor"),
    "reversal": ("solved", "poor", "solved", "poor"),
    "svo_sov": ("solved", "solved", "solved", "converges"),
    "gender": ("converges", "solved", "solved", "converges"),
}
"""``"solved"``: kept up to twice the longest training length. One verdict for each of ``MEMORIES``."""

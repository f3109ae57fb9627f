"""The identities that true equations are derived from.

These are the seeds of Arabshahi et al. 2018 that hold wherever both sides are defined: 142 of 147. Four of the others
take a root of ``1 - sin(a)^2`` or ``1 - cos(a)^2`` and hold for one sign only; one is false by a misprint. They are
written as the published data spell them: ``pi/2`` is ``pi*2^-1``, and a reciprocal is a power of -1.
"""

from __future__ import annotations

from pathlib import Path

_LINES = Path(__file__).with_name("published_identities.txt").read_text(encoding="utf-8").splitlines()
_SEEDS = tuple(line for line in _LINES if not line.startswith("#"))

IDENTITIES, BRANCHES = _SEEDS[:-4], _SEEDS[-4:]
"""Those that hold everywhere, and those that hold for one sign of the root. The results of the latter are tested."""

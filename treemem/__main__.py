"""``python -m treemem``: the command."""

from __future__ import annotations

import sys

from treemem.cli import main

if __name__ == "__main__":
    sys.exit(main())

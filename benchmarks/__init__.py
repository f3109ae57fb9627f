"""Speed and memory against baselines, measured in one process: ``python -m benchmarks --json FILE``."""

import os

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # before torch comes in: its profiler else tells of every start

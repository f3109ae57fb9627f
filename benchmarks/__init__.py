"""Speed against baselines, measured in one process: ``python -m benchmarks --json FILE``."""

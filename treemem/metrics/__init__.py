"""Metrics: scores by group, paired statistics, calibration."""

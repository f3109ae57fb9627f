"""Batch evaluation: records in, predictions out, one for one and in order."""

from __future__ import annotations

from treemem.predict.files import PredictionCounts, predict_file
from treemem.predict.predictor import TreePredictor

__all__ = ["PredictionCounts", "TreePredictor", "predict_file"]

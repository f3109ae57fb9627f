"""Batch evaluation: one prediction for each record, in order."""

from __future__ import annotations

from treemem.predict.file_prediction import PredictionCounts, predict_file
from treemem.predict.predictor import TreePredictor
from treemem.predict.shards import ShardCounts, predict_shards

__all__ = ["PredictionCounts", "ShardCounts", "TreePredictor", "predict_file", "predict_shards"]

"""The published language models on the Penn Treebank, and their perplexities."""

from __future__ import annotations

from typing import Any

from treemem.metrics.score import PublishedFigure
from treemem.networks import NetworkConfig

_PTB: dict[str, Any] = {
    "hidden_size": 400,
    "layer_sizes": [1150, 1150, 400],
    "embedding_dropout": 0.1,
    "input_dropout": 0.5,
    "dropout": 0.3,
    "output_dropout": 0.45,
    "weight_dropout": 0.45,
}
_AWD: dict[str, Any] = {
    **_PTB,
    "dropout": 0.25,
    "input_dropout": 0.4,
    "output_dropout": 0.4,
    "weight_dropout": 0.5,
    "cell": "LSTM",
}

_PRPN: dict[str, Any] = {
    "hidden_size": 1200,
    "embedding_size": 800,
    "input_dropout": 0.7,
    "dropout": 0.5,
    "output_dropout": 0.7,
    "recurrent_dropout": 0.5,
}

PTB = {
    "ON-LSTM, 3 layers": NetworkConfig("LanguageModel", {**_PTB, "chunk_size": 10}),
    "AWD-LSTM, 3 layers": NetworkConfig("LanguageModel", _AWD),
    "PRPN, 2 layers": NetworkConfig("PRPN", _PRPN),
}

_ON_LSTM = "Shen et al. 2019 (ON-LSTM), table 1"
PUBLISHED = (
    PublishedFigure("ON-LSTM, 3 layers", "validation", "perplexity", 58.29, 0.10, _ON_LSTM),
    PublishedFigure("ON-LSTM, 3 layers", "test", "perplexity", 56.17, 0.12, _ON_LSTM),
    PublishedFigure("AWD-LSTM, 3 layers", "validation", "perplexity", 60.0, None, _ON_LSTM),
    PublishedFigure("AWD-LSTM, 3 layers", "test", "perplexity", 57.3, None, _ON_LSTM),
    PublishedFigure("PRPN, 2 layers", "test", "perplexity", 60.97, None, "the page of the code of Shen et al. 2018"),
)

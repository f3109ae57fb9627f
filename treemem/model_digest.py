"""Digests that tell whether two models are the same."""

from __future__ import annotations

import hashlib
import json

import torch

from treemem.model import Model


def weights_digest(model: Model) -> str:
    """SHA-256 of the weights, in hexadecimal. Committed records of studies hold this digest."""
    content = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        content.update(name.encode())
        content.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def model_digest(model: Model) -> str:
    """SHA-256 of everything that decides a model's probabilities: weights, vocabulary, network and task."""
    about = {
        "task": [model.task.name, model.task.version, model.task.options],
        "network": [model.network.network, model.network.options],
        "vocabulary": model.vocabulary.digest,
        "temperature": model.temperature,
        "weights": weights_digest(model),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from published_state_dicts import (
    Weights,
    listops_weights,
    logic_weights,
    memory_weights,
    on_lstm_weights,
    save_weights,
)
from torch.nn import functional

import treemem
from treemem.conversion import convert
from treemem.errors import CheckpointError, RecipeError
from treemem.model import Model
from treemem.networks.sequence_encoder import SequenceEncoder

GOLDEN = Path(__file__).parent.parent / "golden" / "sequence"
# The published numbers of the tokens of `[SM 6 [MAX 5 9 ] ]` and of `( a ( and b ) )`.
LISTOPS_TEXT, LISTOPS_TOKENS = "[SM 6 [MAX 5 9 ] ]", [16, 7, 12, 6, 10, 19, 19]
LEFT, LEFT_TOKENS = "( a ( and b ) )", [0, 2, 0, 9, 3, 1, 1]
RIGHT, RIGHT_TOKENS = "( not f )", [0, 10, 7, 1]


def golden(name: str) -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN / f"{name}.npz"))


def converted(weights: Weights, folder: Path, **options: object) -> Model:
    convert(save_weights(folder, weights), folder / "model", options=options)
    return treemem.load(folder / "model")


def read(encoder: torch.nn.Module, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    assert isinstance(encoder, SequenceEncoder)
    return encoder.read(inputs, lengths).encoding.detach()


def alone(model: Model, weights: Weights, tokens: list[int]) -> torch.Tensor:
    """The encoding of one sequence of tokens as the published code numbers them."""
    return read(model.encoder, weights["embedding.weight"][tokens][None], torch.tensor([len(tokens)]))


@pytest.mark.parametrize(
    ("name", "size", "padding"), [("om_right_padded", 6, "right"), ("om_bidirectional", 12, "right flipped")]
)
def test_a_converted_ordered_memory_gives_the_golden_encodings(
    name: str, size: int, padding: str, tmp_path: Path
) -> None:
    arrays = golden(name)
    weights = {**memory_weights(arrays), **listops_weights(size, 5)}
    model = converted(weights, tmp_path, slots=int(arrays["n_slots"]), padding=padding)
    inputs, lengths = torch.from_numpy(arrays["X"]).transpose(0, 1), torch.from_numpy(arrays["mask"]).sum(0)
    np.testing.assert_allclose(read(model.encoder, inputs, lengths), arrays["encoding"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["onlstm_stack", "onlstm_stack_weightdrop_eval"])
def test_a_converted_on_lstm_gives_the_golden_encodings(name: str, tmp_path: Path) -> None:
    arrays = golden(name)
    weights = {**on_lstm_weights(arrays), **listops_weights(6, 5)}
    model = converted(weights, tmp_path, weight_dropout=float(arrays["dropconnect"]))
    inputs = torch.from_numpy(arrays["X"]).transpose(0, 1)
    found = read(model.encoder, inputs, torch.full((len(inputs),), inputs.shape[1]))
    np.testing.assert_allclose(found, arrays["h2_last"], rtol=0, atol=1e-10)


def test_a_converted_listops_model_reads_tokens_and_classes_in_the_published_order(tmp_path: Path) -> None:
    weights = {**memory_weights(golden("om_right_padded")), **listops_weights(6, 5)}
    model = converted(weights, tmp_path, slots=4)
    logits = functional.linear(alone(model, weights, LISTOPS_TOKENS), weights["mlp.1.weight"], weights["mlp.1.bias"])
    np.testing.assert_allclose(model.predict([LISTOPS_TEXT]), logits.softmax(-1), rtol=0, atol=1e-10)


def test_a_converted_logic_model_reads_tokens_features_and_relations_in_the_published_order(tmp_path: Path) -> None:
    weights = {**on_lstm_weights(golden("onlstm_stack")), **logic_weights(6, 5)}
    model = converted(weights, tmp_path, weight_dropout=0.0)
    left, right = (alone(model, weights, tokens) for tokens in (LEFT_TOKENS, RIGHT_TOKENS))
    features = torch.cat([left, right, left * right, (left - right).abs()], 1)
    hidden = functional.elu(functional.linear(features, weights["mlp.1.weight"], weights["mlp.1.bias"]))
    published = functional.linear(hidden, weights["mlp.4.weight"], weights["mlp.4.bias"]).softmax(-1)[0]
    found = dict(zip(model.task.class_names or (), model.predict([f"{LEFT}\t{RIGHT}"])[0], strict=True))
    for relation, probability in zip("<>=^|#v", published, strict=True):
        assert found[relation] == pytest.approx(float(probability), abs=1e-10)


def test_words_say_what_the_rows_of_another_table_are(tmp_path: Path) -> None:
    weights = {**memory_weights(golden("om_right_padded")), **listops_weights(6, 5)}
    words = ["_PAD", *"0123456789", "[MIN", "[MAX", "[FIRST", "[LAST", "[MED", "[SM", "]"]
    weights["embedding.weight"] = weights["embedding.weight"][: len(words)].clone()
    source = save_weights(tmp_path, weights)
    with pytest.raises(CheckpointError, match="has 18 rows, and the published code has 20 tokens; give words"):
        convert(source, tmp_path / "model", options={"slots": 4})
    with pytest.raises(RecipeError, match=r"words must name every token of listops once: \[SM"):
        convert(source, tmp_path / "model", options={"slots": 4}, words=[*words[:-2], "[PM", "]"])
    model = convert(source, tmp_path / "model", options={"slots": 4}, words=words)
    row = weights["embedding.weight"][17]
    assert torch.equal(model.encoder.get_parameter("embedding.weight")[-1], row)


def test_models_that_are_not_covered_are_refused_by_what_they_are(tmp_path: Path) -> None:
    of_memory, of_neurons = memory_weights(golden("om_right_padded")), on_lstm_weights(golden("onlstm_stack"))
    language = {name.replace("encoder.", "rnn."): weight for name, weight in of_neurons.items()}
    language["encoder.weight"] = torch.zeros(9, 5, dtype=torch.float64)
    sentiment = {**of_memory, **logic_weights(6, 5), "mlp.4.weight": torch.zeros(5, 6, dtype=torch.float64)}
    plain = {**of_neurons, **listops_weights(6, 5)}
    lstm = {**plain, "encoder.cells.0.hh.weight": torch.zeros(48, 12, dtype=torch.float64)}
    for weights, options, error, named in (
        (language, {}, CheckpointError, "are not those of a covered model"),
        (sentiment, {"slots": 4}, CheckpointError, r"mlp.4.weight is \[5, 6\], not \[7, "),
        (lstm, {"weight_dropout": 0.0}, CheckpointError, r"hh.weight is \[48, 12\], not a layer of ON-LSTM"),
        ({**of_memory, **listops_weights(6, 5)}, {}, RecipeError, "OrderedMemory do not determine slots"),
        (plain, {}, RecipeError, "ONLSTM do not determine weight_dropout"),
    ):
        with pytest.raises(error, match=named):
            converted(weights, tmp_path, **options)

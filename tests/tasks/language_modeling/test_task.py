"""Language models: what a batch is, what is kept of it, files, and predictions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import treemem
from treemem import checkpoint
from treemem.cli import main
from treemem.data.loader import BatchOptions
from treemem.errors import ParseError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.runs import TrainingOptions, evaluate, fit, load_recipe
from treemem.tasks.language_modeling import LanguageDataOptions, LanguageModeling
from treemem.trees.forest import Forest

SMALL = LanguageDataOptions(60, 20, 20, seed=2)
NETWORK = NetworkConfig("LanguageModel", {"hidden_size": 12, "cell": "LSTM"})


def test_a_split_is_one_stream_with_ends_of_sentences() -> None:
    task = LanguageModeling(words=120, steps=7, evaluation_columns=1)
    forest = task.make_data(SMALL).forest
    examples = task.examples(forest)
    vocabulary = task.vocabulary
    loader = examples.loader(vocabulary, examples.part("test"), BatchOptions(64))
    batches = list(loader.batches())
    words = [vocabulary.leaves[token] for batch in batches for token in batch.token[0].tolist()]  # type: ignore[union-attr]
    expected = [
        word for tree in forest[examples.part("test")] for word in (*(leaf.label for leaf in tree.leaves()), "<eos>")
    ]
    assert words == expected[:-1], "the last word is predicted alone"
    assert {batch.token.shape[1] for batch in batches[:-1]} == {7}  # type: ignore[union-attr]
    training = examples.loader(vocabulary, examples.part("train"), BatchOptions(2, shuffle=True, epoch=1))
    assert len({batch.token.shape for batch in training.batches()}) > 2  # type: ignore[union-attr]


def test_perplexity_and_predictions_are_those_of_the_words() -> None:
    torch.manual_seed(0)
    task = LanguageModeling(words=120, steps=7, evaluation_columns=1)
    model = Model(task, NETWORK).double().eval()
    forest = task.make_data(SMALL).forest
    text = [leaf.label for tree in forest[:3] for leaf in tree.leaves()]

    def log_probability(words: list[str]) -> float:
        number = {word: place for place, word in enumerate(task.vocabulary.leaves)}
        ids = torch.tensor([[number[word] for word in words]])
        logits, _ = _logits(model, ids[:, :-1])
        return float(logits.log_softmax(-1).gather(2, ids[:, 1:, None]).sum())

    sentence = text[:5]
    (found,) = model.predict([" ".join(sentence)])
    assert found == pytest.approx(log_probability(["<eos>", *sentence, "<eos>"]), abs=1e-9)
    flat = Forest.from_sequences([[leaf.label for leaf in tree.leaves()] for tree in forest[:3]])
    stream = [word for tree in flat for word in (*(leaf.label for leaf in tree.children), "<eos>")]
    score = evaluate(model, flat).overall
    assert score.loss == pytest.approx(-log_probability(stream) / (len(stream) - 1), abs=1e-9)
    assert score.perplexity == pytest.approx(math.exp(score.loss))
    with_trees = evaluate(model, forest[:3]).overall
    assert with_trees.perplexity == score.perplexity, "the trees of sentences have no effect"
    least = -forest.tree_data["log_probability"][:3].sum() / len(stream)
    assert with_trees.metrics["least perplexity"] == pytest.approx(math.exp(least))


def test_a_short_text_is_not_cut_into_columns_without_context() -> None:
    torch.manual_seed(0)
    task = LanguageModeling(words=120, steps=15)
    model = Model(task, NETWORK).double().eval()
    sentences = task.make_data(SMALL).forest[:3]
    alone = Model(LanguageModeling(words=120, steps=15, evaluation_columns=1), NETWORK).double().eval()
    alone.load_state_dict(model.state_dict())
    assert sum(leaf.arity == 0 for tree in sentences for leaf in tree.postorder()) < 2 * task.steps
    score = evaluate(model, sentences).overall
    assert score.perplexity == evaluate(alone, sentences).overall.perplexity
    assert score.examples == 3


@torch.no_grad()
def _logits(model: Model, ids: torch.Tensor) -> tuple[torch.Tensor, None]:
    from treemem.data.token_batch import TokenBatch

    return model(TokenBatch(ids, torch.full((len(ids),), ids.shape[1]))), None


def test_an_empty_line_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the boy\n\n")
    with pytest.raises(ParseError, match=r"lines\.txt, line 2.*the text is empty"):
        LanguageModeling(words=120).read_examples(tmp_path / "lines.txt")


def test_a_model_of_a_corpus_knows_its_words_without_the_files(tmp_path: Path) -> None:
    for name, text in (("train", "the cat sat\n<unk> sat\n" * 9), ("valid", "the dog sat\n"), ("test", "the cat\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    task = LanguageModeling(path=str(tmp_path), steps=5)
    data = task.make_data(LanguageDataOptions())
    (tmp_path / "other.tokens").write_text("the cat sat\n\nthe cat\n")
    lines = [[leaf.label for leaf in tree.children] for tree in task.read_examples(tmp_path / "other.tokens")]
    assert lines == [["the", "cat", "sat"], [], ["the", "cat"]]
    (tmp_path / "other.tokens").unlink()
    assert "| train | 18 | 45 |" in data.card
    fit(task, NETWORK, data, TrainingOptions(epochs=1, batch_size=2), output=tmp_path / "run")
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").unlink()
    model = treemem.load(tmp_path / "run")
    assert model.vocabulary.leaves == ("<eos>", "the", "cat", "sat", "<unk>")
    found = model.predict(["the dog sat", "the <unk> sat", "the cat sat"])
    assert found[0] == found[1] != found[2]
    with pytest.raises(RecipeError, match="has no file of the train part"):
        LanguageModeling(path=str(tmp_path)).make_data(LanguageDataOptions())


def test_the_published_recipe_has_the_published_networks_and_training() -> None:
    for name in ("prpn", "ptb"):
        recipe = load_recipe(f"language_modeling/{name}")
        assert recipe.networks == {network: LanguageModeling.networks[network] for network in recipe.networks}
    training = recipe.training
    assert (training.learning_rate, training.batch_size, training.epochs, training.clip) == (30, 20, 1000, 0.25)
    assert training.auxiliary_losses == {"activation": 2, "temporal_activation": 1}
    assert (recipe.task_options["steps"], training.average_after, training.average_again) == (70, 5, 500)
    assert len(recipe.seeds) == 5
    for network in load_recipe("language_modeling/wikipedia").networks.values():
        with torch.device("meta"):
            encoder = Model(LanguageModeling(words=120), network).encoder
        assert encoder.embedding.embedding_dim == 200
        assert encoder.output_weight.shape == (len(encoder.vocabulary.leaves), 650)


def test_a_file_is_scored_and_an_unknown_word_in_it_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint.save(tmp_path / "model", Model(LanguageModeling(words=120, steps=10), NETWORK))
    (tmp_path / "good.txt").write_text("the boy laughs\nthe girls sleep\n")
    assert main(["evaluate", str(tmp_path / "model"), str(tmp_path / "good.txt")]) == 0
    assert "| LanguageModel |" in capsys.readouterr().out
    (tmp_path / "bad.txt").write_text("the boy laughs\nthe boi laughs\n")
    for command in (["evaluate"], ["explore", "-o", str(tmp_path / "page.html")]):
        assert main([command[0], str(tmp_path / "model"), str(tmp_path / "bad.txt"), *command[1:]]) == 2
        assert "bad.txt, line 2: unknown token 'boi'" in capsys.readouterr().err

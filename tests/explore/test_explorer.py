from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import toy_task  # registers the task more_x and the network KindSum
from page_reading import PageData, numbers_of, rounded

from treemem.checkpoint import save
from treemem.data.token_batch import TokenBatch
from treemem.errors import CheckpointError, GraphError, ParseError, RecipeError, TreememError, VocabularyError
from treemem.explore import explore
from treemem.explore.explorer import page_data
from treemem.induction import induced_trees, sentence_f1
from treemem.model import Model
from treemem.networks import NETWORKS, NetworkConfig
from treemem.networks.encoder import Encoder
from treemem.networks.encoder_output import EncoderOutput
from treemem.predict import TreePredictor
from treemem.schedule.tree_batch import TreeBatch
from treemem.task import Answer, Task
from treemem.tasks.equation_verification.task import EquationVerification
from treemem.tasks.listops.task import ListOps
from treemem.tasks.logical_inference.task import LogicalInference
from treemem.tasks.table import task_from_table
from treemem.tasks.transduction import Transduction
from treemem.trees.forest import Forest
from treemem.trees.tokens import TokenForm, token_table
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

EQUATIONS = ["sin(x) + y = y", "x + y = y + x", "1 = cos(x)^2"]
EXPRESSIONS = ["[MAX 2 9 [MIN 4 7 ] 0 ]", "7", "[SM 6 5 9 ]"]
STACK = NetworkConfig("StackTreeLSTM", {"hidden_size": 4, "stack_size": 3, "normalize": True, "no_op": True})
HOSTILE = '</script><img src=x onerror="alert(1)"><!--&amp;\u2028'


def equation_model(network: NetworkConfig = STACK) -> Model:
    torch.manual_seed(0)
    return Model(EquationVerification(), network).eval()


def listops_model(name: str, **options: Any) -> Model:
    torch.manual_seed(0)
    return Model(ListOps(), NetworkConfig(name, {"hidden_size": 6, **options})).eval()


def toy_model(words: list[str]) -> Model:
    torch.manual_seed(0)
    vocabulary = Vocabulary(words, [("f", 2), (HOSTILE, 1)])
    return Model(toy_task.MoreX(), NetworkConfig("TreeRNN", {"hidden_size": 3}), vocabulary)


def whole_batch(model: Model, texts: list[str]) -> TreeBatch:
    examples = model.task.examples(Forest.from_trees(map(model.task.parse, texts)))
    return TreeBatch.from_forest(examples.forest, model.vocabulary, trees_per_example=examples.trees_per_example)


@pytest.mark.parametrize(
    ("network", "gates"),
    [
        (STACK, {"forget", "push", "pop", "no_op", "output", "update"}),
        (NetworkConfig("StackTreeRNN", {"hidden_size": 4, "stack_size": 2}), {"push", "pop", "update"}),
        (NetworkConfig("TreeLSTM", {"hidden_size": 4}), {"forget", "input", "output", "update"}),
    ],
    ids=lambda value: value.network if isinstance(value, NetworkConfig) else "",
)
def test_states_and_gates_of_every_node_are_the_networks_own(network: NetworkConfig, gates: set[str]) -> None:
    model = equation_model(network)
    page = PageData(page_data(model, EQUATIONS))
    with torch.no_grad():
        states = model.encoder(whole_batch(model, EQUATIONS), trace=True)
    rows = page.rows("trees")
    assert {name for name, field in page.fields.items() if field["sort"] == "gate"} == gates
    assert len(rows) == len(states.h)
    for name in states.names:
        own = states[name].flatten(1, -2).double() if states[name].dim() > 2 else states[name][:, None].double()
        assert [page.values(name, row) for row in rows] == rounded(own.tolist())
    for name in gates:
        for node, row in enumerate(rows):
            expected = states.trace[name][node].double()
            expected = expected if expected.dim() > 1 else expected[None]
            told = [None if value.isnan().all() else rounded(value.tolist()) for value in expected]
            assert page.values(name, row) == told


def test_answers_are_the_models_and_compared_with_the_labels() -> None:
    model = equation_model()
    page = page_data(model, EQUATIONS, labels=[1, 0, -1])
    probability = model.predict(EQUATIONS)
    of_answer = np.maximum(probability, 1 - probability)
    assert [float(example["probability"]) for example in page["examples"]] == rounded(of_answer.tolist())
    said = [example["prediction"] == "true" for example in page["examples"]]
    assert said == (probability > 0.5).tolist()
    assert [example["label"] for example in page["examples"]] == ["true", "false", None]
    assert [example["correct"] for example in page["examples"]] == [said[0], not said[1], None]
    assert [example["id"] for example in page["examples"]] == ["1", "2", "3"]
    assert [example["text"] for example in page["examples"]] == EQUATIONS


def test_sides_of_a_pair_stand_under_their_joint_and_leaves_read_as_people_write_them() -> None:
    page = page_data(equation_model(), ["sin(x) = 1"])
    (example,) = page["examples"]
    assert page["labels"][example["joint"]] == ["Equality", "="]
    left, right = ([page["labels"][label] for label in tree["label"]] for tree in example["trees"])
    assert left == [["Symbol:var_0", "x"], ["sin", "sin"]]
    assert right == [["Integer:1", "1"]]
    assert example["trees"][0]["arity"] == [0, 1]


def test_a_forest_brings_its_labels_and_is_written_as_people_write_it() -> None:
    model = equation_model()
    forest = Forest.from_trees(map(model.task.parse, EQUATIONS), tree_data={"label": np.array([1, 1, 0])})
    page = page_data(model, forest, ids=["a", "b", "c"])
    assert [example["text"] for example in page["examples"]] == EQUATIONS
    assert [example["label"] for example in page["examples"]] == ["true", "true", "false"]
    assert [example["id"] for example in page["examples"]] == ["a", "b", "c"]


def test_pointers_outputs_and_induced_trees_of_an_ordered_memory_are_its_own() -> None:
    model = listops_model("OrderedMemory", slots=5)
    page = PageData(page_data(model, EXPRESSIONS))
    batch = whole_batch(model, EXPRESSIONS)
    with torch.no_grad():
        states = model.encoder(batch, trace=True)
    rows = iter(page.rows("sequences"))
    found = induced_trees(model.encoder, batch)
    for number, example in enumerate(page.data["examples"]):
        (sequence,) = example["sequences"]
        assert [page.data["labels"][token][0] for token in sequence["token"]] == EXPRESSIONS[number].split()
        for token in range(int(states.lengths[number])):
            row = next(rows)
            assert page.values("h", row) == [rounded(states.h[number, token].tolist())]
            assert page.values("pointers", row) == [rounded(states.trace["pointers"][number, token].tolist())]
            assert page.values("cumulative", row) == [rounded(states.trace["cumulative"][number, token].tolist())]
        assert sequence["induced"] == [node.arity for node in found[number].postorder()]
        held = model.encoder.slot_contents(batch)["slots"][number]
        assert page.values("slots", row) == rounded(held[int(states.lengths[number]) - 1].tolist())
        given = model.task.parse(EXPRESSIONS[number])
        assert sequence["f1"] == f"{100 * sentence_f1(given, found[number]):.1f}"


INDUCING = [name for name in NETWORKS.names() if getattr(NETWORKS.find(name), "can_induce_trees", False) is True]


@pytest.mark.parametrize("name", INDUCING)
def test_every_network_that_induces_trees_shows_them(name: str) -> None:
    model = listops_model(name, **({"chunk_size": 2} if name == "ONLSTM" else {}))
    page = page_data(model, EXPRESSIONS)
    expected = [
        [node.arity for node in tree.postorder()]
        for tree in model.encoder.induced_trees(whole_batch(model, EXPRESSIONS))
    ]
    assert [example["sequences"][0]["induced"] for example in page["examples"]] == expected


def test_a_memory_is_shown_over_what_was_read_and_written_whatever_the_batch() -> None:
    """More examples than are run at once, so that the memories of the batches are not of one size."""
    torch.manual_seed(0)
    options = {"hidden_size": 6, "memory": "stack", "memory_size": 3, "embedding_size": 4}
    model = Model(Transduction("copy", alphabet=4), NetworkConfig("SequenceToSequence", options)).eval()
    sources = ["0 1 2 3 0 1", *["3 1"] * 64]
    page = PageData(page_data(model, sources))
    with torch.no_grad():
        batch = TokenBatch.from_sequences([[2, 3, 4, 5, 2, 3], [5, 3]])
        found = model.encoder(batch, trace=True)
    for example, number in ((0, 0), (64, 1)):
        (sequence,) = page.data["examples"][example]["sequences"]
        count = int(found.tokens.lengths[number])
        words = [page.data["labels"][token][0] for token in sequence["token"]]
        assert words == [model.vocabulary.leaves[token] for token in found.tokens.token[number, :count].tolist()]
        for token, row in enumerate(sequence["row"]):
            for name in ("push", "pop"):
                assert page.values(name, row) == [rounded(found.trace[name][number, token].tolist())]
            (strengths,) = page.values("strength", row)
            assert strengths[: token + 1] == rounded(found.trace["strength"][number, token, : token + 1].tolist())
            assert np.isnan(strengths[token + 1 :]).all()


def test_other_encoders_show_tokens_and_outputs_and_no_tree_of_their_own() -> None:
    model = listops_model("LSTM")
    page = PageData(page_data(model, EXPRESSIONS))
    assert list(page.fields) == ["h"]
    (sequence,) = page.data["examples"][2]["sequences"]
    assert sequence["induced"] is None
    with torch.no_grad():
        states = model.encoder(whole_batch(model, EXPRESSIONS))
    assert page.values("h", sequence["row"][-1]) == [rounded(states.h[2, 4].tolist())]


def test_a_pair_that_is_read_as_one_sequence_is_shown_as_one_with_its_marks() -> None:
    torch.manual_seed(0)
    options = {"hidden_size": 4, "num_heads": 2, "num_layers": 1, "joint": True}
    model = Model(LogicalInference(), NetworkConfig("Transformer", options))
    page = page_data(model, ["( a ( and b ) )\ta"])
    (example,) = page["examples"]
    (sequence,) = example["sequences"]
    words = [page["labels"][token][0] for token in sequence["token"]]
    assert words == ["⟨start⟩", "(", "a", "(", "and", "b", ")", ")", "⟨delimiter⟩", "a", "⟨extract⟩"]
    sizes = [len(tree["label"]) for tree in example["trees"]]
    assert sequence["node"][words.index("⟨delimiter⟩") + 1] == sum(sizes) - 1
    assert len(example["classes"]) == 7
    assert page["encodings"]["each"] == 1


@pytest.mark.parametrize(
    ("network", "options", "by"),
    [("Transformer", {"num_layers": 2}, "layer"), ("UniversalTransformer", {"num_steps": 2}, "step")],
)
def test_attention_is_that_of_the_trace_with_a_row_for_what_is_read(
    network: str, options: dict[str, int], by: str
) -> None:
    torch.manual_seed(0)
    config = NetworkConfig(network, {"hidden_size": 4, "num_heads": 2, **options})
    model = Model(EquationVerification(), config)
    page = page_data(model, ["sin(x) = y", "x = x"])
    assert page["attendsBy"] == by
    with torch.no_grad():
        traced = model.encoder(whole_batch(model, ["sin(x) = y", "x = x"]), trace=True).trace["attention"]
    for number, positions in enumerate((5, 2, 2, 2)):
        attention = page["examples"][number // 2]["sequences"][number % 2]["attention"]
        assert (attention["layers"], attention["positions"]) == (2, positions)
        assert page["labels"][attention["mark"]][0] == "⟨extract⟩"
        own = traced[number, :, :positions, :positions]
        assert numbers_of(attention["numbers"]) == rounded(own.double().flatten().tolist())
        assert float(attention["most"]) == float(f"{float(own.max()):.3e}")


def test_attention_of_pairs_read_as_one_has_their_marks_and_that_of_long_sequences_is_left_out() -> None:
    torch.manual_seed(0)
    options = {"hidden_size": 4, "num_heads": 2, "num_layers": 1, "joint": True, "form": "bracketed leaves"}
    model = Model(LogicalInference(), NetworkConfig("Transformer", options))
    (short,) = page_data(model, ["( a ( and b ) )\ta"])["examples"][0]["sequences"]
    assert short["attention"]["mark"] is None
    assert short["attention"]["positions"] == len(short["token"])
    long = "( a ( and " * 20 + "b" + " ) )" * 20
    (other,) = page_data(model, [f"{long}\ta"])["examples"][0]["sequences"]
    assert len(other["token"]) > 100
    assert (other["attention"], other["tooLong"], short["tooLong"]) == (None, True, False)


class TokenMean(torch.nn.Module):
    """A user's encoder: it says what it traced, and that is all that the explorer asks for."""

    trace_axes: ClassVar = {
        "size": ("sequences", "tokens"),
        "gate": ("sequences", "layers", "tokens"),
        "slots": ("sequences", "tokens", "slots", "hidden"),
        "attention": ("sequences", "tokens", "tokens"),
    }

    def __init__(self, hidden_size: int, vocabulary: Vocabulary, form: TokenForm) -> None:
        super().__init__()
        self.hidden_size, self.form = hidden_size, form
        self.embedding = torch.nn.Embedding(len(token_table(vocabulary, form)), hidden_size)

    def forward(self, batch: TreeBatch, *, trace: bool = False) -> EncoderOutput:
        h = self.embedding(batch.tokens(self.form)[0])
        traced = {"size": h.norm(dim=2), "gate": h[:, None, :, 0].expand(-1, 3, -1)}
        traced |= {"slots": torch.stack([h, -h], 2), "attention": (h @ h.mT).softmax(2)}
        return EncoderOutput(h.mean(1, keepdim=True), h, trace=traced if trace else None)


def test_an_encoder_of_ones_own_is_drawn_from_the_names_of_its_axes() -> None:
    torch.manual_seed(0)
    model = Model(ListOps(), NetworkConfig("TokenMean", {"hidden_size": 4}), networks={"TokenMean": TokenMean})
    page = PageData(page_data(model, EXPRESSIONS))
    with torch.no_grad():
        states = model.encoder(whole_batch(model, EXPRESSIONS), trace=True)
    kinds = {name: (field["sort"], field["axis"], field["entries"]) for name, field in page.fields.items()}
    assert kinds == {
        "h": ("state", "", 1),
        "size": ("step", "", 1),
        "gate": ("step", "layers", 1),
        "slots": ("state", "slots", 2),
    }
    (sequence,) = page.data["examples"][2]["sequences"]
    assert [page.data["labels"][token][0] for token in sequence["token"]] == EXPRESSIONS[2].split()
    for token, row in enumerate(sequence["row"]):
        assert page.values("size", row) == [[*rounded([float(states.trace["size"][2, token])])]]
        assert page.values("gate", row) == [rounded(states.trace["gate"][2, :, token].tolist())]
        assert page.values("slots", row) == rounded(states.trace["slots"][2, token].tolist())
    own = states.trace["attention"][2, :5, :5].double().flatten().tolist()
    assert numbers_of(sequence["attention"]["numbers"]) == rounded(own)
    assert sequence["attention"]["layers"] == 1


class WithoutTrace(Encoder, TokenMean):
    """An encoder whose ``forward`` takes no ``trace``."""

    trace_axes: ClassVar = {}

    def forward(self, batch: TreeBatch) -> EncoderOutput:  # type: ignore[override]
        return super().forward(batch)


def test_an_encoder_without_trace_shows_its_outputs() -> None:
    torch.manual_seed(0)
    network = NetworkConfig("WithoutTrace", {"hidden_size": 4})
    model = Model(ListOps(), network, networks={"WithoutTrace": WithoutTrace})
    page = PageData(page_data(model, EXPRESSIONS))
    assert list(page.fields) == ["h"]
    assert page.data["items"] == "tokens"


class OtherTask(Task):
    """A task that is not a classification."""

    name, version, vocabulary = "other", "1", toy_task.MoreX().vocabulary
    parse, examples, head = toy_task.MoreX.parse, toy_task.MoreX.examples, toy_task.MoreX.head
    make_data = loss = scores = toy_task.MoreX.make_data

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def answers(self, kept: Any, targets: Any, *, temperature: float = 1.0, threshold: float = 0.5) -> list[Answer]:
        return [Answer(self.answer, None) for _ in kept]


@pytest.mark.parametrize(("answer", "told"), [(3.5, "3.5"), (["a", "b"], "a b"), (None, "not a number")])
def test_answers_of_a_task_that_is_no_classification_are_told_as_it_gives_them(answer: Any, told: str) -> None:
    model = Model(OtherTask(answer), NetworkConfig("TreeRNN", {"hidden_size": 3}))
    (example,) = page_data(model, ["(f x y)"])["examples"]
    assert (example["prediction"], example["probability"], example["classes"]) == (told, None, [])
    assert (example["label"], example["correct"]) == (None, None)


def test_a_network_without_states_still_shows_trees_answers_and_encodings() -> None:
    torch.manual_seed(0)
    model = Model(toy_task.MoreX(), NetworkConfig("KindSum", {"hidden_size": 3}))
    page = PageData(page_data(model, ["(f x (g y))", "x"]))
    assert page.data["items"] == "none"
    assert page.data["fields"] == []
    batch = whole_batch(model, ["(f x (g y))", "x"])
    with torch.no_grad():
        own = model.encoder(batch)
    places = page.data["encodings"]["places"]
    assert [page.vector(3, place) for place in places] == rounded(own[:, 0].tolist())


def test_equal_subtrees_have_one_row_and_equal_vectors_are_kept_once() -> None:
    once = page_data(equation_model(), ["x + y = y"])
    thrice = page_data(equation_model(), ["x + y = y"] * 3)
    assert thrice["pools"] == once["pools"]
    assert thrice["rows"] == once["rows"]


def test_encodings_are_projected_to_their_principal_components() -> None:
    model = equation_model()
    page = page_data(model, EQUATIONS)
    with torch.no_grad():
        own = model.encoder(whole_batch(model, EQUATIONS)).root.flatten(0, 1).double().numpy()
    _, sizes, ways = np.linalg.svd(own - own.mean(0), full_matrices=False)
    expected = (own - own.mean(0)) @ ways[:2].T
    found = np.array(page["projection"]["points"])
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-3, atol=1e-6)
    part = 100 * sizes**2 / (sizes**2).sum()
    assert page["projection"]["variance"] == [f"{value:.1f}" for value in part[:2]]


def test_what_is_no_number_is_shown_as_such(tmp_path: Path) -> None:
    model = equation_model()
    with torch.no_grad():
        model.encoder.cell.maps.of(1).bias.fill_(torch.nan)
        model.encoder.leaves.embedding.weight[0, 0] = torch.inf
    page = PageData(explore(model, ["sin(y) = y", "x = y"], tmp_path / "page.html", labels=[0, -1]))
    first, second = page.data["examples"]
    assert (first["prediction"], first["probability"], first["correct"]) == ("not a number", "NaN", False)
    _, root = first["trees"][0]["row"]
    assert np.isnan(page.values("h", root)).all()
    assert np.isnan(page.values("push", root)).all()
    assert page.values("h", second["trees"][0]["row"][0])[0][0] == np.inf
    assert [point is not None for point in page.data["projection"]["points"]] == [False, False, False, True]


def test_an_answer_that_is_no_number_is_not_the_first_class() -> None:
    model = listops_model("LSTM")
    with torch.no_grad():
        model.head.classify.bias.fill_(torch.nan)
    page = page_data(model, EXPRESSIONS, labels=[0, 9, -1])
    assert [example["prediction"] for example in page["examples"]] == ["not a number"] * 3
    assert [example["correct"] for example in page["examples"]] == [False, False, None]


class Markup(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs


def test_texts_and_labels_are_never_markup_and_come_back_as_they_were(tmp_path: Path) -> None:
    model = toy_model([HOSTILE + "1", "y"])
    tree = Tree(HOSTILE, [Tree("f", [Tree(HOSTILE + "1"), Tree("y")])])
    path = explore(model, [str(tree)], tmp_path / "page.html", title=HOSTILE, ids=[HOSTILE], labels=[1])
    text = path.read_text(encoding="utf-8")
    markup = Markup(text)
    assert "img" not in markup.elements
    assert markup.elements.count("script") == 2
    assert not [name for name, _ in markup.attributes if name.startswith("on")]
    assert "\u2028" not in text
    page = PageData(path)
    spelled = HOSTILE.replace("\u2028", "\\u2028")
    assert {name for name, _ in page.data["labels"]} == {spelled, spelled + "1", "f", "y"}
    assert page.data["title"] == page.data["examples"][0]["id"] == spelled
    assert "</script><img src=x onerror=" in page.data["examples"][0]["text"]


def test_characters_that_cannot_be_printed_are_spelled_out() -> None:
    model = toy_model(["a\u202eb", "y"])
    page = page_data(model, Forest.from_trees([Tree("a\u202eb")]), title="\ud800")
    assert ["a\\u202eb", "a\\u202eb"] in page["labels"]
    assert page["title"] == "\\ud800"


def test_a_page_asks_for_nothing_from_elsewhere(tmp_path: Path) -> None:
    text = explore(equation_model(), EQUATIONS, tmp_path / "page.html").read_text(encoding="utf-8")
    markup = Markup(text)
    assert "link" not in markup.elements
    assert not {"src", "href", "srcset", "action"} & {name for name, _ in markup.attributes}
    assert not re.search(r"https?:|//[a-z]+\.|url\(|@import|\bfetch\b|XMLHttpRequest|innerHTML|document\.write", text)
    policies = [value for name, value in markup.attributes if name == "content" and value and "default-src" in value]
    assert policies[0].startswith("default-src 'none'")
    assert "unsafe" not in policies[0]


def test_a_page_of_a_checkpoint_is_that_of_its_model(tmp_path: Path) -> None:
    model = equation_model()
    save(tmp_path / "checkpoint", model)
    path = explore(tmp_path / "checkpoint", EQUATIONS, tmp_path / "page.html")
    assert PageData(path).data == json.loads(json.dumps(page_data(model, EQUATIONS)))
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        explore(str(tmp_path / "nothing"), EQUATIONS, tmp_path / "other.html")


def test_the_model_is_left_as_it_was() -> None:
    model = equation_model().train()
    page_data(model, EQUATIONS)
    assert model.training
    model.encoder.eval()  # as of a part that is frozen
    page_data(model, EQUATIONS)
    assert (model.training, model.encoder.training) == (True, False)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_file_that_is_there_is_replaced_only_where_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("mine")
    with pytest.raises(RecipeError, match=r"page\.html exists; .*overwrite"):
        explore(equation_model(), EQUATIONS, path)
    assert path.read_text() == "mine"
    explore(equation_model(), EQUATIONS, path, overwrite=True)
    assert path.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("examples", "options", "error", "message"),
    [
        ([], {}, RecipeError, "there are no examples; give"),
        (["x = y", "x +"], {}, ParseError, "line 2"),
        (["x = y", "x = foo(y)"], {}, TreememError, "line 2"),
        ("x = y", {}, GraphError, "put a single one in brackets"),
        (["x = y", Tree("x")], {}, GraphError, "example 2: the root is 'x' with 0 children"),
        (EQUATIONS, {"most": 2}, RecipeError, "3 examples are more than 2; choose some of them, or set most=3"),
        (EQUATIONS, {"ids": ["a"]}, RecipeError, "1 ids for 3 examples"),
        (EQUATIONS, {"labels": [1, 0, 5]}, RecipeError, "label"),
    ],
)
def test_bad_input_gives_an_error_that_says_what_is_wrong_and_no_page(
    examples: Any, options: dict[str, Any], error: type[TreememError], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        explore(equation_model(), examples, tmp_path / "page.html", **options)
    assert not list(tmp_path.iterdir())


def test_labels_that_the_model_does_not_know_are_refused_by_their_name() -> None:
    with pytest.raises(VocabularyError, match="'z'"):
        page_data(toy_model(["x", "y"]), ["(f x z)"])


def test_numbers_are_shown_by_their_value_and_passes_both_ways_by_their_names() -> None:
    torch.manual_seed(0)
    network = NetworkConfig("TreeLSTM", {"hidden_size": 4, "direction": "both"})
    page = PageData(page_data(Model(EquationVerification(numeric=True), network), ["sin(2.5) = 0.6", "x = x"]))
    assert ["Number 2.5", "2.5"] in page.data["labels"]
    assert {"h", "up_h", "up_c", "down_h", "down_c"} <= set(page.fields)
    assert [len(example["outputs"]) for example in page.data["examples"]] == [3, 3]
    root = page.data["examples"][0]["trees"][0]["row"][-1]
    (place,) = page.data["rows"]["h"][root : root + 1]
    assert page.data["encodings"]["places"][0] == place


def test_more_examples_than_are_run_at_once_are_told_as_if_they_were_alone() -> None:
    model = equation_model()
    texts = [f"{'sin(' * (number % 5)}x{')' * (number % 5)} = y" for number in range(70)]
    together = PageData(page_data(model, texts))
    for number in (0, 63, 64, 69):
        alone = PageData(page_data(model, texts[number : number + 1]))
        (left, _), (expected, _) = (
            page.data["examples"][place]["trees"] for page, place in ((together, number), (alone, 0))
        )
        for name in ("h", "S"):
            told = [together.values(name, row) for row in left["row"]]
            wanted = [alone.values(name, row) for row in expected["row"]]
            np.testing.assert_allclose(told, wanted, rtol=2e-3, atol=1e-7)


@pytest.mark.parametrize("threshold", [0.01, 0.99])
def test_the_page_has_the_answers_at_the_threshold_of_the_model(threshold: float) -> None:
    rows = [{"tree": f"(f {'xyz'[row % 3]} y)", "class": "ab"[row % 2]} for row in range(6)]
    model = Model(task_from_table(rows, tree="tree", target="class"), NetworkConfig("TreeRNN", {"hidden_size": 4}))
    model.threshold = threshold
    trees, labels = [row["tree"] for row in rows], [row % 2 for row in range(6)]
    page = page_data(model.eval(), trees, labels=labels)
    predicted = [answer["prediction"] for answer in TreePredictor(model).predict([{"tree": tree} for tree in trees])]
    assert set(predicted) == {"b" if threshold < 0.5 else "a"}
    assert [example["prediction"] for example in page["examples"]] == predicted
    assert [example["correct"] for example in page["examples"]] == ["ab"[label] == predicted[0] for label in labels]
    chance = model.predict(trees)[:, int(threshold < 0.5)].tolist()
    assert [float(example["probability"]) for example in page["examples"]] == rounded(chance)


def test_a_predicted_number_has_six_digits_and_its_label_all() -> None:
    rows = [{"tree": "(f x y)", "size": 9.123456}, {"tree": "x", "size": 2.5}]
    model = Model(task_from_table(rows, tree="tree", target="size"), NetworkConfig("TreeRNN", {"hidden_size": 4}))
    (example,) = page_data(model.eval(), ["(f x y)"], labels=[9.123456])["examples"]
    assert example["prediction"] == f"{model.predict(['(f x y)'])[0]:.6g}"
    assert example["label"] == "9.123456"

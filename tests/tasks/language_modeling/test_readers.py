"""Corpora of text files: their vocabulary, and errors with file and line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from treemem.errors import RecipeError, VocabularyError
from treemem.tasks.language_modeling import LanguageDataOptions, LanguageModeling
from treemem.tasks.language_modeling.readers import corpus_files, read_corpus, read_treebank
from treemem.trees.forest import Forest


def corpus(folder: Path, train: str = "a b\n", valid: str = "a\n", test: str = "b\n") -> Path:
    for name, text in (("train", train), ("valid", valid), ("test", test)):
        (folder / f"ptb.{name}.txt").write_text(text)
    return folder


def lines_of(folder: Path, **options: int) -> dict[str, list[list[str]]]:
    forest, _ = read_corpus(folder, **options)
    sentences = forest.tokens("leaves").strings()
    split = forest.tree_data["split"]
    return {name: [words for words, own in zip(sentences, split, strict=True) if own == name] for name in set(split)}


def test_lines_are_sentences_and_blank_lines_are_empty_ones(tmp_path: Path) -> None:
    corpus(tmp_path, " the cat \n\n<unk> the\n", "dog the", "cat\n")
    found = lines_of(tmp_path)
    assert found == {
        "train": [["the", "cat"], [], ["<unk>", "the"]],
        "validation": [["<unk>", "the"]],
        "test": [["cat"]],
    }
    vocabulary = read_corpus(tmp_path).vocabulary
    assert vocabulary.leaves == ("<eos>", "the", "cat", "<unk>")
    assert vocabulary.unknown == "<unk>"


def test_rare_words_are_unknown_if_the_vocabulary_is_limited(tmp_path: Path) -> None:
    corpus(tmp_path, "a b a c a b d\n", "c a\n", "b z\n")
    assert read_corpus(tmp_path, most_words=3).vocabulary.leaves == ("<eos>", "<unk>", "a", "b")
    assert lines_of(tmp_path, most_words=3) == {
        "train": [["a", "b", "a", "<unk>", "a", "b", "<unk>"]],
        "validation": [["<unk>", "a"]],
        "test": [["b", "<unk>"]],
    }
    corpus(tmp_path, "a b a c a b <unk>\n", "c a\n", "b z\n")
    assert read_corpus(tmp_path, most_words=3).vocabulary.leaves == ("<eos>", "a", "b", "<unk>")
    assert lines_of(tmp_path, most_words=3)["train"] == [["a", "b", "a", "<unk>", "a", "b", "<unk>"]]


def test_the_end_of_a_sentence_as_a_word_is_known_and_does_not_count(tmp_path: Path) -> None:
    corpus(tmp_path, "a b a c a <eos> b d\n", "<eos> a\n", "b z\n")
    assert read_corpus(tmp_path, most_words=3).vocabulary.leaves == ("<eos>", "<unk>", "a", "b")
    lines = lines_of(tmp_path, most_words=3)
    assert lines["train"] == [["a", "b", "a", "<unk>", "a", "<eos>", "b", "<unk>"]]
    assert lines["validation"] == [["<eos>", "a"]]


def test_an_unknown_word_without_an_unknown_in_the_vocabulary_is_told(tmp_path: Path) -> None:
    corpus(tmp_path, "the cat\n", "cat\nthe cats\n")
    with pytest.raises(VocabularyError, match=r"ptb\.valid\.txt, line 2, column 5: the word 'cats' .*did you mean cat"):
        read_corpus(tmp_path)


def test_files_of_other_names_are_found_and_others_are_told(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="nowhere does not exist; name the folder"):
        corpus_files(tmp_path / "nowhere")
    with pytest.raises(RecipeError, match="has no file of the train part"):
        corpus_files(tmp_path)
    for name in ("wiki.train.tokens", "dev.txt", "test.txt.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"a\n") if name.endswith(".gz") else b"a\n")
    assert [file.name for file in corpus_files(tmp_path).values()] == ["wiki.train.tokens", "dev.txt", "test.txt.gz"]
    assert lines_of(tmp_path) == {"train": [["a"]], "validation": [["a"]], "test": [["a"]]}
    (tmp_path / "valid.txt").write_text("a\n")
    with pytest.raises(RecipeError, match=r"2 files \(dev\.txt, valid\.txt\) of the validation part"):
        corpus_files(tmp_path)


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_part_without_words_is_refused(part: str, tmp_path: Path) -> None:
    corpus(tmp_path, **{part: "\n\n"})
    with pytest.raises(RecipeError, match=rf"ptb\.{part}\.txt has no words"):
        read_corpus(tmp_path)


TREES = "(3 (2 The) (2 (2 cat) (2 35)))\n(2 (2 a) (2 cat))\n"


def test_a_treebank_is_its_trees_and_the_words_of_its_training_trees(tmp_path: Path) -> None:
    corpus(tmp_path, TREES, "(2 cat)\n", "(S (NP (DT The)\n (NN dog)) (VBZ is))\n")
    forest, vocabulary = read_treebank(tmp_path, 3)
    assert vocabulary.leaves == ("<eos>", "<unk>", "the", "cat")
    assert [str(tree) for tree in forest] == [
        "(3 the (2 cat <unk>))",
        "(2 <unk> cat)",
        "cat",
        "(S (NP the <unk>) <unk>)",
    ]
    assert forest.tree_data["split"].tolist() == ["train", "train", "validation", "test"]


def test_an_unknown_word_of_a_treebank_is_told_with_its_file_and_sentence(tmp_path: Path) -> None:
    corpus(tmp_path, TREES, "(2 cat)\n", "(2 (2 a) (2 cats))\n")
    with pytest.raises(
        VocabularyError,
        match=r"ptb\.test\.txt, column 3: sentence 1: the word 'cats' .*did you mean cat.*limit the vocab",
    ):
        read_treebank(tmp_path)


def penn(*words: str) -> str:
    return f"( (S {' '.join(f'(NN {word})' for word in words)} (. .)) )\n"


def test_one_file_of_trees_is_divided_in_order_and_more_text_comes_before_training(tmp_path: Path) -> None:
    trees = tmp_path / "wsj.mrg"
    trees.write_text("".join(penn("The", f"w{'abcdefghijk'[number]}") for number in range(11)))
    (tmp_path / "more.txt").write_text("``  I can't see\n\n...\nthe 12 dogs' , Bob's & mine\n")
    forest, vocabulary = read_treebank(trees, most_words=7, more_text=tmp_path / "more.txt")
    words = [[leaf.label for leaf in tree.leaves()] for tree in forest]
    assert words[:2] == [["i", "ca", "n't", "see"], ["the", "N", *["<unk>"] * 6]]
    assert words[2:] == [["the", "<unk>"]] * 11
    assert forest.tree_data["split"].tolist() == ["train"] * 11 + ["validation", "test"]
    assert vocabulary.leaves == ("<eos>", "<unk>", "i", "ca", "n't", "see", "the", "N")


def test_a_file_of_trees_with_an_unknown_word_or_too_few_trees_is_refused(tmp_path: Path) -> None:
    trees = tmp_path / "wsj.mrg"
    trees.write_text(penn("the", "cat") * 9 + penn("the", "dog"))
    with pytest.raises(VocabularyError, match=r"wsj\.mrg.*sentence 10: the word 'dog'"):
        read_treebank(trees)
    trees.write_text(penn("the", "cat") * 9)
    with pytest.raises(RecipeError, match="has 9 sentences; a tenth of them is the test part, so it needs ten"):
        read_treebank(trees)


def test_the_label_of_sentences_may_be_a_word(tmp_path: Path) -> None:
    forest, _ = read_corpus(corpus(tmp_path, "a Sequence b\n\n", "Sequence\n", "b\n"))
    assert len(set(forest.labels)) == len(forest.labels)
    assert forest.tokens("leaves").strings() == [["a", "Sequence", "b"], [], ["Sequence"], ["b"]]
    forest.save(tmp_path / "saved")
    assert Forest.load(tmp_path / "saved") == forest


def test_trees_without_a_place_are_not_replaced_by_the_grammar() -> None:
    with pytest.raises(
        RecipeError, match=r"treebank=True reads trees; name their folder or file with task_options\.path"
    ):
        LanguageModeling(treebank=True).make_data(LanguageDataOptions())

"""Whatever a command is given that is wrong: an error of one line, exit code 2, nothing overwritten or left behind."""

from __future__ import annotations

import builtins
import gzip
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import IO

import pyarrow
import pyarrow.parquet
import pytest
import torch
from published_state_dicts import whole_equation_network

from treemem.records import reader
from treemem.trees.formats.equations import tokens

Failing = Callable[..., str]
MODEL = Path(__file__).parent.parent / "checkpoints" / "stack_tree_lstm"

# The files that are no input, and what an error says of each; made by the fixture.
BAD_FILES = {
    "missing.txt": "cannot read missing.txt: No such file",
    "folder": "folder",
    "folder.csv": "folder.csv",
    "own.xyz": "own.xyz",
    "latin.txt": "latin.txt, line 2, column 5: byte 0xe9 is not UTF-8",
    "utf16.txt": "utf16.txt, line 1",
    "cut.jsonl": "cut.jsonl, line 2, column 17: the file ends in the middle of this record; it seems to be cut off",
    "cut.csv": "cut.csv, line 3, column 2: the file ends in the middle of this record; it seems to be cut off",
    "cut.txt.gz": "the packed data are damaged after this line",
    "empty.txt.gz": "empty.txt.gz",
    "empty.txt": "empty.txt",
    "empty.csv": "empty.csv",
    "empty.jsonl": "empty.jsonl",
    "empty.parquet": "empty.parquet",
    "columns.csv": "columns.csv has the columns ['a', 'b'], and none of equation, lhs, rhs, preorder, tree",
    "text.parquet": "text.parquet",
    "numbers.parquet": "numbers.parquet, line 1",
    "columns.parquet": "columns.parquet has the columns ['other', 'label'], and none of equation, lhs",
    "text.txt.gz": "text.txt.gz",
    "foreign.txt": "foreign.txt, line 1, column 1: unknown function 'zeta'",
    "symbols.jsonl": "symbols.jsonl, line 1",
    "secret.txt": "cannot read secret.txt: Permission denied",
}
READERS = {
    "predict": ("predict", MODEL, "FILE", "-o", "new.jsonl", "--strict", "--processes", "1"),
    "evaluate": ("evaluate", MODEL, "FILE"),
    "explore": ("explore", MODEL, "FILE", "-o", "new.html"),
    "generate": ("generate", "equation_verification", "-o", "new.jsonl", "data.path=FILE"),
}
_FEW_LISTS = ("data.training_size=9", "data.validation_size=2", "data.test_size=2", "data.pool=0")
_CONVERSION = ("stack_size=5", "activation=tanh", "output_activation=tanh", "normalize=true")
# Commands that write, and what they write; COMMAND -o PLACE.
WRITERS = {
    "predict": ("predict", MODEL, "own.txt", "--processes", "1", "-o"),
    "evaluate": ("evaluate", MODEL, "own.txt", "--json"),
    "explore": ("explore", MODEL, "own.txt", "-o"),
    "generate": ("generate", "listops", *_FEW_LISTS, "--format", "jsonl", "-o"),
    "compare": ("compare", "run", "-o"),
    "convert": ("convert", "weights.pt", *_CONVERSION, "-o"),
    "train": ("train", "toy.yaml", "training.epochs=1", "--networks", "sum", "-o"),
    "sweep": ("sweep", "toy.yaml", "training.epochs=1", "--trials", "1", "-o"),
}
BAD_RECIPES = {
    "missing.yaml": "missing.yaml",
    "folder": "folder",
    "own.xyz": "own.xyz",
    "latin.yaml": "latin.yaml",
    "empty.yaml": "empty.yaml",
    "open.yaml": "open.yaml",
    "list.yaml": "list.yaml",
    "more_x/none": "more_x/none",
    "no_task/small": "no_task/small",
    "secret.yaml": "secret.yaml",
}
RECIPES = {
    "train": ("train", "RECIPE"),
    "validate": ("validate", "RECIPE"),
    "sweep": ("sweep", "RECIPE", "--trials", "1"),
}
BAD_FIELDS = {
    "training.epohcs=3": "no field 'training.epohcs'; did you mean epochs?",
    "data.cuont=3": "no field 'data.cuont'; did you mean count?",
    "nonsense=1": "no field 'nonsense'",
    "training.epochs=x": "training.epochs",
}
DEVICES = {
    "predict": ("predict", MODEL, "own.txt", "-o", "new.jsonl", "--device", "DEVICE"),
    "evaluate": ("evaluate", MODEL, "own.txt", "--device", "DEVICE"),
    "explore": ("explore", MODEL, "own.txt", "-o", "new.html", "--device", "DEVICE"),
    "train": ("train", "toy.yaml", "training.accelerator=DEVICE"),
    "sweep": ("sweep", "toy.yaml", "--trials", "1", "training.accelerator=DEVICE"),
}
_LISTS = " ".join(_FEW_LISTS)
WORDS = [
    ("parse nothing x", "no task 'nothing'"),
    ("parse equation_verification foo(x)=y", "unknown function 'foo'"),
    ("parse listops", "no text to parse"),
    ("generate nothing -o new.jsonl", "no task 'nothing'"),
    ("generate more_x -o new.jsonl --format xml", "no format 'xml'"),
    (f"generate listops -o lists.xls {_LISTS}", "cannot tell the format of lists.xls from its name"),
    (f"generate listops -o lists.jsonl --format json {_LISTS}", "did you mean jsonl"),
    (f"generate listops -o lists.jsonl data.seed=-1 {_LISTS}", "data.seed must be at least 0"),
    ("predict there own.txt -o new.jsonl", "there is no checkpoint of treemem"),
    ("predict nowhere own.txt -o new.jsonl", "there is no checkpoint nowhere"),
    ("evaluate own.txt", "there is no checkpoint own.txt"),
    ("explore nowhere own.txt -o away/page.html", "there is no folder away"),
    ("compare there", "there"),
    ("compare nowhere", "there is no folder nowhere"),
    ("compare own.txt", "there is no folder own.txt"),
    ("convert missing.pt -o new", "missing.pt cannot be read: No such file"),
    ("convert own.txt -o new", "own.txt is not a file of torch.save"),
    ("convert own.txt -o new --options latin.txt", "latin.txt cannot be read"),
    ("compare broken", "results.jsonl"),
    ("trian x", "did you mean train"),
    ("tasks", "an argument is missing; write treemem tasks"),
    ("--verison", "--verison; did you mean --version"),
    ("train toy.yaml --sed 1", "unrecognized arguments: --sed 1; did you mean --seed"),
    ("train toy.yaml --seeds one", "Expected a whole number. Got value: one; see treemem train"),
    ("train toy.yaml -o", "argument -o/--output: expected one argument"),
    ("sweep toy.yaml", "an argument is missing; write treemem sweep RECIPE"),
    ("predict there own.txt", "write treemem predict CHECKPOINT INPUT -o OUTPUT"),
    ("explore there own.txt", "write treemem explore CHECKPOINT INPUT -o PAGE"),
    ("convert own.txt", "write treemem convert FILE -o FOLDER"),
    ("tasks describe listop", "no task 'listop'; did you mean listops"),
    ("validate listops/smal", "did you mean listops/small"),
    ("evaluate equation_verification --split tset", "split: invalid choice: 'tset'"),
    ("evaluate equation_verification x.csv data.size=3", "--set changes generated data"),
    ("evaluate equation_verification --batch-size 0", "0 does not conform"),
    ("explore equation_verification own.txt -o page.html --most 0", "0 does not conform"),
    ("explore equation_verification own.txt -o page.txt", "page.txt is not the name of an HTML page"),
]


def words_of(command: Sequence[object], **values: str) -> list[str]:
    words = [str(word) for word in command]
    for name, value in values.items():
        words = [word.replace(name, value) for word in words]
    return words


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file and folder; answers that predict gave before an error are kept on purpose."""
    found = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*") if ".partial" not in path.name}
    return {name: (seen.st_size, seen.st_mtime_ns) for name, seen in found.items()}


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    texts = {
        "own.txt": "x = x\t1\nx = 2*x\t0\n", "own.xyz": "x = x\t1\n", "columns.csv": "a,b\n1,2\n",
        "text.parquet": "no columns", "text.txt.gz": "not packed", "foreign.txt": "zeta(x) = x\t1\n",
        "symbols.jsonl": '{"tree": "(Equality (zeta x) x)", "label": 1}\n', "empty.yaml": "", "open.yaml": "task: [\n",
        "list.yaml": "- 1\n", "secret.txt": "x = x\t1\n", "secret.yaml": "task: more_x\n", "secret.pt": "",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    for name in ("empty.txt", "empty.csv", "empty.jsonl", "empty.parquet"):
        (folder / name).touch()
    (folder / "cut.jsonl").write_text('{"equation": "x = x", "label": 1}\n{"equation": "x ')
    (folder / "cut.csv").write_text("equation,label\nx = x,1\nx")
    (folder / "cut.txt.gz").write_bytes(gzip.compress(b"x = x\t1\nx = 2*x\t0\n")[:-9])
    (folder / "empty.txt.gz").touch()
    (folder / "latin.txt").write_bytes(b"x = x\t1\nsin(\xe9) = x\t0\n")
    (folder / "latin.yaml").write_bytes(b"task: \xe9\n")
    (folder / "utf16.txt").write_bytes("x = x\t1\n".encode("utf-16"))
    for name, column in (("numbers.parquet", "equation"), ("columns.parquet", "other")):
        pyarrow.parquet.write_table(pyarrow.table({column: [1], "label": [1]}), folder / name)
    for name in ("folder", "folder.csv", "there", "broken"):
        (folder / name).mkdir()
    (folder / "there" / "mine").write_text("mine")
    (folder / "broken" / "results.jsonl").write_text("{\n")
    return folder


@pytest.fixture(autouse=True)
def _in_a_folder_of_bad_files(folder: Path, bad_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(bad_files, folder, dirs_exist_ok=True)
    really_open = builtins.open

    def guarded(file: object, *arguments: object, **options: object) -> object:
        if "secret" in str(file):  # as of a file that its owner alone may read, which does not bind the root user
            raise PermissionError(13, "Permission denied", str(file))
        return really_open(file, *arguments, **options)  # type: ignore[call-overload]  # as they came

    for module in (builtins, io):
        monkeypatch.setattr(module, "open", guarded)


@pytest.fixture
def failing_cleanly(failing: Failing, folder: Path) -> Failing:
    """Run a command that must fail and leave the folder as it was, and give what it says."""

    def run(*words: str) -> str:
        before = files_below(folder)
        said = failing(*words)
        assert files_below(folder) == before
        first, *excerpt = said.splitlines()
        assert all(line.startswith("  ") for line in excerpt)
        assert len(excerpt) in (0, 2)
        return first

    return run


@pytest.mark.parametrize(("command", "name"), [*zip(cycle(READERS), BAD_FILES)])
def test_a_file_that_is_no_input_is_named(command: str, name: str, failing_cleanly: Failing) -> None:
    said = failing_cleanly(*words_of(READERS[command], FILE=name))
    assert BAD_FILES[name] in said


@pytest.mark.parametrize("command", READERS)
def test_a_file_that_grows_while_it_is_read_is_named(
    command: str, folder: Path, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = b'{"equation": "x = x", "label": 1}\n'
    read = reader._jsonl_records

    def growing(stream: IO[bytes]) -> Iterator[reader.Record]:
        yield from read(stream)
        os.truncate(folder / "own.jsonl", 3 * len(record))

    monkeypatch.setattr(reader, "_jsonl_records", growing)
    (folder / "own.jsonl").write_bytes(2 * record)
    said = failing(*words_of(READERS[command], FILE="own.jsonl"))
    assert not {"new.jsonl", "new.html"} & {path.name for path in folder.iterdir()}
    assert f"own.jsonl changed while it was read, from {2 * len(record)} to {3 * len(record)} bytes" in said


@pytest.mark.parametrize(("command", "recipe"), [*zip(cycle(RECIPES), BAD_RECIPES)])
def test_what_is_no_recipe_is_named(command: str, recipe: str, trained: Path, failing_cleanly: Failing) -> None:
    assert BAD_RECIPES[recipe] in failing_cleanly(*words_of(RECIPES[command], RECIPE=recipe))


@pytest.mark.parametrize(
    ("command", "field"),
    [*zip(cycle(["train", "validate", "sweep"]), BAD_FIELDS), ("generate", "data.cuont=3"), ("generate", "nonsense=1")],
)
def test_a_field_that_a_recipe_does_not_have_is_named(command: str, field: str, failing_cleanly: Failing) -> None:
    words = {"generate": ["more_x", "-o", "new.jsonl"], "sweep": ["toy.yaml", "--trials", "1"]}
    said = failing_cleanly(command, *words.get(command, ["toy.yaml"]), field)
    assert BAD_FIELDS[field] in said or command == "generate"
    assert field.partition("=")[0].rpartition(".")[2] in said


@pytest.mark.parametrize(("command", "device"), [*zip(DEVICES, cycle(["cuda", "tpu"]))])
def test_a_device_that_is_not_there_is_named(
    command: str, device: str, failing_cleanly: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = failing_cleanly(*words_of(DEVICES[command], DEVICE=device))
    assert ("no CUDA device" if device == "cuda" else "cpu") in said


@pytest.mark.parametrize(("words", "problem"), WORDS)
def test_words_that_name_nothing_are_told(words: str, problem: str, failing_cleanly: Failing) -> None:
    assert problem in failing_cleanly(*words.split())


@pytest.fixture
def _all_that_writers_read(trained: Path, folder: Path) -> None:
    torch.save(whole_equation_network(4), folder / "weights.pt")


@pytest.mark.usefixtures("_all_that_writers_read")
@pytest.mark.parametrize(
    ("command", "place"),
    [*((each, "there.png") for each in WRITERS), *zip(WRITERS, cycle(["/proc/new.png", "own.txt/new.png"]))],
)
def test_a_place_that_cannot_be_written_is_named_and_nothing_is_written_over(
    command: str, place: str, folder: Path, failing_cleanly: Failing
) -> None:
    place = place.replace(".png", ".html") if command == "explore" else place
    (folder / "there").with_suffix(Path(place).suffix).write_text("mine")
    form = ["--output-format", "jsonl"] if command == "predict" else []
    assert place.partition("/new")[0] in failing_cleanly(*words_of(WRITERS[command]), place, *form)


@pytest.mark.usefixtures("_all_that_writers_read")
@pytest.mark.parametrize("command", WRITERS)
def test_a_full_disk_is_told_and_what_was_there_stays(
    command: str, folder: Path, failing: Failing, request: pytest.FixtureRequest
) -> None:
    names = {"train": "new", "sweep": "new", "convert": "new", "explore": "new.html"}
    place = folder / names.get(command, "new.png")
    overwrite = []
    if command in ("evaluate", "explore", "compare", "generate", "predict"):
        place.write_text("mine")
        overwrite = ["--overwrite", *(["--output-format", "jsonl"] if command == "predict" else [])]
    request.getfixturevalue("full_disk")
    said = failing(*words_of(WRITERS[command]), place.name, *overwrite)
    assert "No space left on device" in said
    assert said.count("\n") == 1
    assert not overwrite or place.read_text() == "mine"


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_line_that_is_too_long_for_an_equation_is_named_with_its_length(
    command: str, folder: Path, failing_cleanly: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "long.txt").write_text("x = x\n" + "x + " * 100 + "x = x\n")
    monkeypatch.setattr(tokens, "LONGEST_TEXT", 100)
    said = failing_cleanly(*words_of(READERS[command], FILE="long.txt"))
    assert "long.txt, line 2, column 101: the text has 405 characters; expected at most 100 in one equation" in said


def test_a_closed_standard_input_that_is_read_is_told() -> None:
    line = f"{sys.executable} -m treemem predict {MODEL} - -o new.jsonl <&-"
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: standard input is closed; name a file, or pipe the records in\n"

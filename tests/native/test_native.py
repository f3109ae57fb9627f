"""How C++ is compiled and loaded, and how its exceptions become errors of Python."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from treemem import native
from treemem.errors import OutOfMemoryError, RecipeError, TreememError
from treemem.native import compile_mode, native_library
from treemem.ops import compile_steps

pytestmark = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
SOURCE = Path(__file__).with_name("throwing.cpp")
ANSWERS_MACROS = 'case "$*" in *-dM*) echo "#define __VERSION__ 1"; exit;; esac'


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A process that has compiled nothing yet, and a cache without libraries."""
    monkeypatch.setattr(compile_mode, "_broken", False)
    monkeypatch.setattr(native, "_warned", False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    native._library.cache_clear()
    native._macros.cache_clear()


def loaded() -> ctypes.CDLL:
    library = native_library(SOURCE, [torch.zeros(1)])
    assert library is not None
    return library


def doubles(library: ctypes.CDLL) -> bool:
    number = ctypes.c_int64(21)
    library.twice(ctypes.byref(number))
    return number.value == 42


@pytest.mark.parametrize("how", range(6))
def test_too_little_memory_is_an_error_of_python(how: int) -> None:
    with pytest.raises(OutOfMemoryError, match="out of memory in C"):
        loaded().out_of_memory(ctypes.c_int64(how))
    assert issubclass(OutOfMemoryError, TreememError)
    assert issubclass(OutOfMemoryError, MemoryError)
    assert issubclass(OutOfMemoryError, RuntimeError), "as torch's"
    assert doubles(loaded())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_an_exception_on_a_thread_lets_the_others_end(threads: int) -> None:
    passed = ctypes.c_int64()
    with pytest.raises(OutOfMemoryError):
        loaded().on_a_thread(ctypes.c_int64(threads), ctypes.byref(passed))
    assert passed.value == threads
    with pytest.raises(TreememError, match="three is too many"):
        loaded().in_a_loop(ctypes.c_int64(threads), ctypes.c_int64(9))
    loaded().in_a_loop(ctypes.c_int64(threads), ctypes.c_int64(3))


def test_a_matrix_too_wide_for_blas_is_refused() -> None:
    with pytest.raises(TreememError, match="too many for BLAS"):
        loaded().wide_product()


def test_the_exponential_of_nan_shifts_no_negative_number(tmp_path: Path) -> None:
    program, folder = tmp_path / "exponentials", Path(native.__file__).parent
    checks = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    command = [*compile_mode.compiler(), "-std=c++17", "-fopenmp", *checks, f"-I{folder}"]
    subprocess.run([*command, str(Path(__file__).with_name("exponentials.cpp")), "-o", str(program)], check=True)
    assert subprocess.run([str(program)], check=False).returncode == 0


def script(folder: Path, monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    """Make a compiler of shell commands."""
    compiler = folder / "compiler"
    compiler.write_bytes(b"#!/bin/sh\n" + lines.encode("latin-1") + b"\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("exec sleep 1000", "timed out after 0.2 seconds"),
        ("sleep 1000 & wait", "timed out after 0.2 seconds"),
        ("exec cat; exit 3", "No such file"),  # it waits for input
        (f"{ANSWERS_MACROS}; read answer || echo 'error: no input' >&2; exit 1", "error: no input"),
        (f"{ANSWERS_MACROS}; echo 'Fehler: error: ung\xfcltig' >&2; exit 1", "error: ung\N{REPLACEMENT CHARACTER}ltig"),
        ("echo '\xff\xfe'", "No such file"),  # it succeeds, and writes nothing
        (f"{ANSWERS_MACROS}; for last; do :; done; echo no library > $last", "too short|invalid ELF|not a mach-o"),
        (f"{ANSWERS_MACROS}; exit 7", "exit status 7"),
        ("kill -9 $$", "SIGKILL"),
    ],
)
def test_a_compiler_that_does_not_work_is_one_warning(
    lines: str, reason: str, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_mode, "_MOST_SECONDS", 0.2 if "sleep" in lines else 60)
    script(fresh, monkeypatch, lines)
    with pytest.warns(RuntimeWarning, match=f"steps run uncompiled.*({reason})") as found:
        assert native_library(SOURCE, [torch.zeros(1)]) is None
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native_library(SOURCE, [torch.zeros(1)]) is None
    assert not [*fresh.rglob("*.so")]


def test_what_a_compiler_has_started_ends_with_it(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_mode, "_MOST_SECONDS", 0.2)
    script(fresh, monkeypatch, f"sleep 1000 & echo $! > {fresh}/child; wait")
    with pytest.warns(RuntimeWarning, match="timed out"):
        native_library(SOURCE, [torch.zeros(1)])
    status = Path("/proc", (fresh / "child").read_text().strip(), "stat")

    def has_ended() -> bool:
        return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] == "Z"

    for _ in range(1000):  # what is killed ends when the processor has time for it
        if has_ended():
            break
        time.sleep(0.01)
    assert has_ended()


def test_a_processor_with_other_features_has_a_library_of_its_own(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = " ".join(compile_mode.compiler())
    script(fresh, monkeypatch, f'case "$*" in *-dM*) cat {fresh}/features;; esac; exec {real} "$@"')
    for feature, libraries in ("__AVX__", 1), ("__SVE__", 2), ("__AVX__", 2):
        (fresh / "features").write_text(f"#define {feature} 1\n")
        forget()
        assert doubles(loaded())
        assert len([*fresh.rglob("*.so")]) == libraries


def test_a_cache_that_cannot_be_used_is_one_warning(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh / "cache").write_text("a file")
    with pytest.warns(RuntimeWarning, match=r"kept in .*treemem-\d+, not in the user's cache: .*cache"):
        assert doubles(loaded())
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert doubles(loaded())


def test_networks_live_on_with_too_little_memory() -> None:
    script = Path(__file__).with_name("little_memory.py")
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["OrderedMemory", "StackTreeRNN"]


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_only_gcc_gets_its_own_flags(name: str, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    macros = f"echo '#define __{name}__ 1'"
    script(fresh, monkeypatch, f'case "$*" in *-dM*) {macros};; *) echo $* > {fresh}/flags; exit 1;; esac')
    with pytest.warns(RuntimeWarning, match="steps run uncompiled"):
        native_library(SOURCE, [torch.zeros(1)])
    assert ("-fvect-cost-model" in (fresh / "flags").read_text()) == (name == "gcc")


@pytest.mark.parametrize(
    ("variable", "forced", "expected"),
    [(None, None, True), ("1", None, True), ("0", None, False), ("0", True, True), ("1", False, False)],
)
def test_an_argument_goes_before_the_environment(
    variable: str | None, forced: bool | None, expected: bool, monkeypatch: pytest.MonkeyPatch, fresh: Path
) -> None:
    monkeypatch.delenv("TREEMEM_COMPILE", raising=False)
    if variable is not None:
        monkeypatch.setenv("TREEMEM_COMPILE", variable)
    with nullcontext() if forced is None else compile_steps(forced):
        assert compile_mode.native_wanted() == expected
    monkeypatch.setenv("TREEMEM_COMPILE", "yes")
    with pytest.raises(RecipeError, match="TREEMEM_COMPILE='yes'"):
        compile_mode.native_wanted()

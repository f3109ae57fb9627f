"""Puts faults into a copy of the project, one at a time, and tells which ones the tests notice.

    python tests/mutations/run.py [PART OF A NAME ...] [--json FILE]

``mutations.yaml`` has the faults, and for each the tests that must fail. First these tests run without a fault, and
must pass. A fault that no test notices is a gap in the tests, and the command ends with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SECONDS = 900  # a fault may make a loop endless; then it is noticed, too


def passes(copy: Path, tests: list[str]) -> tuple[bool, str]:
    """Return whether tests pass in a copy of the project, and the line about the first one that does not."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False, "it did not end"
    if done.returncode not in (0, 1, 2):  # 2: a module cannot be imported
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    told = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode == 0, told[0] if told else ""


def mutated(text: str, mutation: dict[str, Any]) -> str:
    """Return the text of a file with a fault.

    Raises:
        SystemExit: the file does not have the old text once.
    """
    count = text.count(mutation["old"])
    if count != 1:
        raise SystemExit(
            f"{mutation['name']}: {mutation['file']} has the text {mutation['old']!r} {count} times, not once"
        )
    return text.replace(mutation["old"], mutation["new"])


def main() -> int:
    """Run the faults whose names have one of the given parts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", help="of the names of faults; all by default")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    mutations = yaml.safe_load(Path(__file__).with_name("mutations.yaml").read_text(encoding="utf-8"))
    chosen = [each for each in mutations if not options.parts or any(part in each["name"] for part in options.parts)]
    for mutation in chosen:
        mutated((ROOT / mutation["file"]).read_text(encoding="utf-8"), mutation)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in names.rstrip("\0").split("\0"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
        if (ROOT.parent / "shared").is_dir():
            (Path(folder) / "shared").symlink_to(ROOT.parent / "shared")
        tests = list(dict.fromkeys(test for mutation in chosen for test in mutation["tests"].split()))
        good, line = passes(copy, tests)
        if not good:
            raise SystemExit(f"the tests fail without a fault: {line}")
        for number, mutation in enumerate(chosen, start=1):
            begin, file = time.monotonic(), copy / mutation["file"]
            before = file.read_text(encoding="utf-8")
            file.write_text(mutated(before, mutation), encoding="utf-8")
            survives, line = passes(copy, mutation["tests"].split())
            file.write_text(before, encoding="utf-8")
            seconds = time.monotonic() - begin
            results.append({"name": mutation["name"], "is_noticed": not survives, "seconds": round(seconds, 1)})
            found = "NOT NOTICED" if survives else "noticed"
            print(f"{number}/{len(chosen)} {found} ({seconds:.0f} s) {mutation['name']}: {line[:100]}", flush=True)
    if options.json:
        options.json.write_text("".join(json.dumps(each) + "\n" for each in results), encoding="utf-8")
    missed = sum(not each["is_noticed"] for each in results)
    print(f"{len(results) - missed} of {len(results)} faults are noticed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())

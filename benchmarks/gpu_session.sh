#!/usr/bin/env bash
# What only a GPU can tell, in under 10 minutes: tests, times, how long the GPU computes in a step, and a training.
#
#     benchmarks/gpu_session.sh OUT               on a machine with a GPU, in a Python that has what the tests need
#     benchmarks/gpu_session.sh --rehearse OUT    the same on the device of the tests, in small sizes
#
# Each part has a time limit and writes to OUT as it goes, so one that fails or hangs does not lose the others. At the end
# OUT/results.json has everything. Kernels multiply float32 as three products of TF32, the default.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
rehearse=()
if [ "${1:-}" = --rehearse ]; then rehearse=(--rehearse) && shift; fi
out=${1:?"usage: benchmarks/gpu_session.sh [--rehearse] OUT"}
mkdir -p "$out" && out=$(realpath "$out")
rm -rf "$out"/{parts,times,cpu}.jsonl "$out"/{training,graphs}
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1 TREEMEM_CUDA_KERNELS=1
workloads=(
  "equations 8-13 batch 1024" "sst hidden 256" "logic tree-cell hidden 200" "on-lstm 1150" "ordered memory random 50"
  "neural stack 128" "rnn 128 with a neural stack" "lstm 64 with registers" "crvnn 64" "spinn 64" "prpn 64" "ebt-grc 64"
  "bt-grc 64" "gumbel tree-lstm 64"
)
compiled=("${workloads[@]}")
small=()
tests=(tests/cuda tests/engines -m cuda)
if python -c "import xdist" 2>/dev/null; then tests+=(-n 4); fi
training=(data.training_size=40000 data.validation_size=500 data.test_size=1000 training.budget=20 training.epochs=2)
training+=(training.accelerator=cuda "networks.Ordered Memory.options.padding=right")
graphs=training.cuda_graphs=true
if [ ${#rehearse[@]} = 1 ]; then
  workloads=("on-lstm 1150" "logic tree-cell hidden 200" "sst hidden 256")
  compiled=("logic tree-cell hidden 200")
  small=(--small --rounds 1)
  tests=(tests/cuda/test_benchmarks.py)
  training=(data.training_size=200 data.validation_size=20 data.test_size=20 training.budget=0.2 training.epochs=2)
  training+=("networks.Ordered Memory.options.hidden_size=8" training.accelerator=cpu)
  graphs=training.cuda_graphs=false
  mkdir -p "$out/bin"
  printf '#!/bin/sh\necho "a GPU, 1, 2 MHz, 3 MHz, 4 MHz, 5 MHz, 6 W, 7 W, 8"\n' >"$out/bin/nvidia-smi"
  chmod +x "$out/bin/nvidia-smi"
  PATH=$out/bin:$PATH
fi

# part NAME SECONDS COMMAND...
part() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  failed=$((failed + (code != 0)))
  echo "{\"part\": \"$name\", \"code\": $code, \"seconds\": $((SECONDS - begin))}" | tee -a "$out/parts.jsonl"
}
failed=0
session=(python -m benchmarks.gpu_session)

part machine 30 "${session[@]}" machine "$out/machine.json"
part compile 100 "${session[@]}" compile --workloads "${compiled[@]}" "${rehearse[@]}" "${small[@]}"
part tests 120 python -m pytest "${tests[@]}" -o addopts="-q --import-mode=importlib -p no:cacheprovider" --junitxml="$out/tests.xml"
part times 160 "${session[@]}" measure --workloads "${workloads[@]}" "${rehearse[@]}" \
  --ways kernels graph peer torch --json "$out/times.jsonl" --limit 45 --threads 1 "${small[@]}"
for way in training graphs; do
  if [ $way = graphs ]; then training+=("$graphs"); fi
  part "$way" 50 python -m treemem train listops/published --networks "Ordered Memory" --seeds 1111 data.pool=0 \
    data.max_length=100 "${training[@]}" -o "$out/$way"
done
part cpu 60 "${session[@]}" measure --workloads "${workloads[@]}" --ways cpu --json "$out/cpu.jsonl" --limit 20 --threads 8 \
  --rounds 3 "${small[@]}"
part clocks 10 "${session[@]}" clocks "$out/clocks.json"
"${session[@]}" summary "$out" | tee "$out/summary.md"
exit "$failed"

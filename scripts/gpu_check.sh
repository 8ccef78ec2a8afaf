#!/usr/bin/env bash
# Builds, runs and measures the bundles for NVIDIA GPUs on this machine, and keeps the records.
#
#   scripts/gpu_check.sh [--project DIR] [--report DIR] [--targets cuda,tensorrt,...]
#
# Needs Linux on x86-64, NVIDIA's driver, Python 3.11 or newer with venv, and a way to PyPI. In the
# report's folder (default: gpu-report) it makes an environment with this project in it, then for
# each target: edge build, edge bench with the health run first and a profile of who ran each node.
# Left there: what the GPU says of itself, every command's output and exit code, the records
# (results.db), the report (report.md, report.html, report.json).
#
# tensorrt-plan runs where trtexec is; where pip cannot install tensorrt-rtx, that target fails with
# 3 and the others go on. Exit codes are edge's own, the worst of all: 0 good, 1 a gate said no, 2
# wrong usage, 3 something is not there, 4 a build or run failed, 5 inconclusive.
set -euo pipefail

unset CDPATH # with it cd prints
checkout=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
project=$checkout report=$PWD/gpu-report targets=cuda,tensorrt,tensorrt-plan,tensorrt-rtx

say() { printf '%s\n' "$*" >&2; }

while [ $# -gt 0 ]; do
  case $1 in
    --project | --report | --targets)
      if [ $# -lt 2 ]; then
        say "error: $1 needs a value"
        exit 2
      fi
      case $1 in
        --project) project=$2 ;;
        --report) report=$2 ;;
        --targets) targets=$2 ;;
      esac
      shift 2
      ;;
    -h | --help)
      sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      say "error: unknown option $1"
      say "  fix: known: --project, --report, --targets"
      exit 2
      ;;
  esac
done

# ------------------------------------------------------------ before anything is installed
IFS=, read -r -a chosen <<<"$targets"
if [ ${#chosen[@]} -eq 0 ]; then
  say "error: --targets names none"
  exit 2
fi
fields=name,compute_cap,driver_version,memory.total
if ! gpu=$(nvidia-smi --query-gpu=$fields --format=csv,noheader 2>&1) || [ -z "$gpu" ]; then
  say "error: this machine has no NVIDIA GPU that can be used (${gpu:-nvidia-smi lists none})"
  say "  fix: run it on a machine with an NVIDIA GPU and its driver, 580 or newer"
  exit 3
fi
if ! python3 -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))'; then
  say "error: python3 is not Python 3.11 or newer with venv"
  say "  fix: apt install python3 python3-venv"
  exit 3
fi
if [ ! -f "$project/edge.toml" ]; then
  say "error: $project has no edge.toml"
  exit 2
fi

mkdir -p "$report"
report=$(cd -- "$report" && pwd)
{
  printf '%s\n' "$fields" "$gpu"
  uname -srm
} >"$report/machine.txt"
say "GPU: $gpu"

# ------------------------------------------------------------------------------- install
python=$report/venv/bin/python
install() { "$python" -m pip install --quiet -e "$checkout[$1]" -c "$checkout/constraints.txt"; }

if [ ! -f "$report/venv/installed" ]; then
  say "installing into $report/venv"
  if ! { python3 -m venv "$report/venv" && install demo; } >&2; then
    say "error: $checkout cannot be installed, pip says why above"
    say "  fix: see to the way to PyPI (pip config list), and run this again"
    exit 3
  fi
  : >"$report/venv/installed"
fi
# Apart: NVIDIA's packages may not be there for this machine, and the other targets need none.
if ! "$python" -c 'import tensorrt_rtx' 2>/dev/null && ! install rtx >&2; then
  say "warning: pip cannot install tensorrt-rtx: that target will be missing, the others go on"
fi
"$python" -m pip freeze --exclude-editable >"$report/packages.txt"
edge=$report/venv/bin/edge

# ---------------------------------------------------------------------------------- run
# Worst last, in edge's own order (edge.pipeline.worst).
order=(0 5 1 3 2 4)
worst=0
rank() {
  local place
  for place in "${!order[@]}"; do
    if [ "${order[$place]}" = "$1" ]; then
      echo "$place"
      return
    fi
  done
  echo "${#order[@]}" # a code that is none of edge's
}

# run NAME WORDS...: its output goes to NAME.json, its log to NAME.log and the terminal, its code to
# codes.txt.
run() {
  local name=$1 code=0
  shift
  say "== $name"
  { "$edge" "$@" 2>&1 >"$report/$name.json" | tee "$report/$name.log" >&2; } || code=$?
  printf '%s\t%s\n' "$name" "$code" >>"$report/codes.txt"
  if [ "$(rank "$code")" -gt "$(rank "$worst")" ]; then worst=$code; fi
  return "$code"
}

: >"$report/codes.txt"
cd -- "$project"
export EDGE_STORE=${EDGE_STORE:-$report/store}
shared=(--output "$report/dist")
measure=(--device local --profile --results "$report/results.db")
for target in "${chosen[@]}"; do
  where=()
  if [ "$target" = tensorrt-plan ]; then
    if ! command -v trtexec >/dev/null && [ ! -x /usr/src/tensorrt/bin/trtexec ]; then
      say "== tensorrt-plan: left out, there is no trtexec"
      printf '%s\t%s\n' "tensorrt-plan" "left out: no trtexec" >>"$report/codes.txt"
      continue
    fi
    where=(--on local)
  fi
  run "build-$target" build -t "$target" "${where[@]}" "${shared[@]}" --json || continue
  run "bench-$target" bench "$target" "${measure[@]}" "${shared[@]}" --json || true
done

written=()
for kind in md html json; do written+=(--write "$report/report.$kind"); done
run report report "${shared[@]}" --results "$report/results.db" "${written[@]}" --json || true

say "written to $report: report.md, report.html, results.db, codes.txt"
exit "$worst"

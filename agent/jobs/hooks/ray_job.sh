#!/bin/bash
# Ray: submit a job, follow it, and when it fails fetch the logs of all its processes and diagnose them.
#   RAY_ADDRESS=http://head:8265 ./doctor-ray-job.sh python train.py --epochs 3
# Needs `ray[default]` (the job client) and doctor on the machine that submits; the cluster needs nothing more.
# The exit code is 0 where the job succeeded, 1 where it failed, whatever doctor did.
set -u

# ---- Settings ----
DOCTOR=@DOCTOR@
SECONDS_AT_MOST=@SECONDS@
RAY=${RAY:-ray}
# Variables for every process of the job. They cost nothing and keep what helps afterwards.
RUNTIME_ENV=${RUNTIME_ENV:-'{"env_vars": {"PYTHONFAULTHANDLER": "1", "NCCL_DEBUG": "WARN", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_FR_BUFFER_SIZE": "2000"}}'}
# ------------------

if [[ $# == 0 ]]; then echo "usage: $0 COMMAND [ARGUMENT ...]" >&2; exit 2; fi
: "${RAY_ADDRESS:?set it to the address of the cluster, as in http://head:8265}"
id=job-$(date +%Y%m%d-%H%M%S)-$$
run=doctor-runs/$id
mkdir -p "$run" || exit 1

"$RAY" job submit --address "$RAY_ADDRESS" --submission-id "$id" --working-dir . --runtime-env-json "$RUNTIME_ENV" \
  -- "$@" 2>&1 | tee "$run/driver.log"
code=${PIPESTATUS[0]}
status=$("$RAY" job status --address "$RAY_ADDRESS" "$id" 2>&1)
if [[ $code != 0 || $status == *FAILED* || $status == *STOPPED* ]]; then
  "$RAY" job logs --address "$RAY_ADDRESS" "$id" >"$run/driver.log.whole" 2>/dev/null &&
    mv "$run/driver.log.whole" "$run/driver.log"
  printf '%s\n' "$status" >"$run/ray-status.txt"
  # The processes' own logs stand on their nodes. RAY_CLUSTER (host:6379) reaches them; the job client does not.
  if [[ -n ${RAY_CLUSTER:-} ]]; then
    timeout -k 5 "$SECONDS_AT_MOST" "$DOCTOR" collect --ray "$RAY_CLUSTER" --into "$run/nodes" || true
  fi
  timeout -k 5 "$SECONDS_AT_MOST" "$DOCTOR" triage "$run" --write --offline --quiet || true
  [[ $code != 0 ]] || code=1
fi
exit "$code"

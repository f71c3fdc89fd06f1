#!/bin/bash
# Slurm: one job that explains itself. Copy the marked parts into your batch script, or start from this one.
# The report lands in doctor-runs/JOBID/ under the folder you submit from. The job's exit code stays what it is.
#SBATCH --job-name=train
#SBATCH --output=%x-%j.out
#SBATCH --signal=B:USR1@120        # two minutes before the time limit this script hears of it, and tells training
#SBATCH --open-mode=append         # a job that is requeued keeps what it wrote before

# ---- doctor: settings ----
DOCTOR=@DOCTOR@                    # on the nodes; where it is missing the job runs as it would without
SECONDS_AT_MOST=@SECONDS@          # for a diagnosis after a failure; the allocation waits for it
SAVE=auto                          # near the time limit: auto, yes or no (see `near_limit`)
RUN=doctor-runs/${SLURM_JOB_ID:?this is a batch script: submit it with sbatch}

supervised() { if [[ -x $DOCTOR ]]; then "$DOCTOR" run --run "$RUN" -- "$@"; else "$@"; fi; }

explain() {                        # what failed before or beside the supervised command is diagnosed here
  local code=$?
  trap - EXIT
  if [[ $code != 0 && -x $DOCTOR && ! -e $RUN/doctor-report.json ]]; then
    timeout -k 5 "$SECONDS_AT_MOST" "$DOCTOR" triage --slurm "$SLURM_JOB_ID" --write --offline --quiet --plain || true
  fi
  exit "$code"
}
trap explain EXIT

# Two minutes before the limit. SIGUSR1 ends a program that has no handler for it, so it is passed on only where every
# process of the job's steps on this node has one (Lightning's, or signal.signal(signal.SIGUSR1, save) in your script).
near_limit() {
  echo "two minutes are left until the time limit"
  if [[ $SAVE == yes ]] || { [[ $SAVE == auto ]] && all_listen; }; then
    echo "training is told to save (SIGUSR1)" && scancel --signal=USR1 "$SLURM_JOB_ID"
  else
    echo "training is not told (SAVE=$SAVE): it does not listen to SIGUSR1"
  fi
}

all_listen() {                     # bit 9 of the signals that a process catches or ignores, as the kernel shows them
  local pid name value mask seen=1
  for pid in /proc/[0-9]*; do
    grep -qsz "^SLURM_JOB_ID=$SLURM_JOB_ID$" "$pid/environ" && grep -qsz '^SLURM_STEP_ID=' "$pid/environ" || continue
    mask=0
    while read -r name value; do
      if [[ $name == SigIgn: || $name == SigCgt: ]]; then mask=$((mask | 16#${value: -8})); fi
    done < <(cat "$pid/status" 2>/dev/null)
    ((mask & 0x200)) || [[ ! -e $pid ]] || return
    seen=0
  done
  return "$seen"
}
trap near_limit USR1

waited() {                         # bash hears signals while it waits, not while a command is in the foreground
  job=$1
  local code
  while :; do
    wait "$job"
    code=$?
    kill -0 "$job" 2>/dev/null || return "$code"
  done
}
# ---- doctor: end ----

supervised srun @COMMAND@ &
waited $!

#!/bin/bash
# torchrun: one word in front of the launch line. Nothing of the job changes: exit code, signals, output, arguments.
#   ./launch.sh        the report, if it fails: doctor-runs/TIME-NAME/doctor-report.md
# On several nodes start it on each, as you start torchrun; give each node a --run folder of its own, or a shared one.
set -u

DOCTOR=@DOCTOR@

# Where doctor is missing the job runs as it would without.
if [[ -x $DOCTOR ]]; then supervised=("$DOCTOR" run --); else supervised=(); fi

exec "${supervised[@]}" torchrun \
  --nnodes "${NNODES:-1}" --nproc-per-node "${NPROC_PER_NODE:-gpu}" --max-restarts 0 \
  --rdzv-backend c10d --rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
  @COMMAND@ "$@"

# In the script itself, one import lets torchrun tell which rank failed first, and with what traceback:
#
#   from torch.distributed.elastic.multiprocessing.errors import record
#
#   @record
#   def main():
#       ...
#
#   if __name__ == "__main__":
#       main()
#
# Without it torchrun knows the exit code alone ("error_file: <N/A>").

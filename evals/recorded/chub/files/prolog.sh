# per-job scratch of the node, gone when the job is
mkdir -p scratch
mount -t tmpfs -o size=${SCRATCH_SIZE:-5m} scratch scratch
df -h scratch

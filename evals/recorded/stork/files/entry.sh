uname -sr
df -h . /tmp /dev/shm | awk '{print $2, $4, $5, $6}'
exec python train.py --config tiles.yaml

echo "== $(date) job 4417 =="
ulimit -a
nproc
python train.py stations 2
status=$?
echo "== end, status $status =="
exit $status

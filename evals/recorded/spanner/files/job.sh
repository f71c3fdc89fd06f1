export HF_DATASETS_CACHE=$PWD/scratch/datasets TMPDIR=$PWD/scratch
python train.py > train.log 2>&1
status=$?
{ echo "exit $status"; df -h scratch .; free -m; } > epilog.txt
exit $status

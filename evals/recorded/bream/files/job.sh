#!/bin/bash
#SBATCH --job-name=recipes --time=00:20:00 --cpus-per-task=2
# local scratch while training, project share afterwards
SCRATCH=scratch; SHARE=share/recipes
mkdir -p $SCRATCH $SHARE
cp $SHARE/step_*.pt $SCRATCH/ 2>/dev/null
python train.py --ckpt $SCRATCH --steps $1 --save-every 100 --lr 0.002
status=$?
source site/epilog.sh
for f in $SCRATCH/step_*.pt; do [ -e $SHARE/$(basename $f) ] || cp $f $SHARE/; done
echo "epilog: $(ls $SHARE | wc -l) checkpoints on the share, train.py status $status"
rm -rf $SCRATCH
exit $status

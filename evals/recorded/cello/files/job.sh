python train.py --steps 600 --save-every 60 --out out > train.log 2>&1
status=$?
{ date; ls -l out | awk '{print $5, $9}'; df -k out; } > epilogue.txt
exit $status

# common to all jobs on the login class
ulimit -c 0
ulimit -n 4096
ulimit -f 96
export TMPDIR=/tmp

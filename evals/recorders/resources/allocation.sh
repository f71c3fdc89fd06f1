# usage: allocation.sh LIMIT NAME COMMAND ...   runs a command in a memory group of its own
group=/sys/fs/cgroup/memory/$2
mkdir -p $group
echo $1 > $group/memory.limit_in_bytes
(echo $BASHPID > $group/tasks; exec "${@:3}")
status=$?
{
  echo "== $2 =="
  for f in memory.limit_in_bytes memory.max_usage_in_bytes memory.failcnt memory.oom_control; do
    echo "$f: $(cat $group/$f | tr '\n' ' ')"
  done
} > accounting.txt
dmesg | awk '/invoked oom-killer/{buf=""} {buf=buf $0 "\n"} END{printf "%s", buf}' > kernel.txt
for left in $(cat $group/tasks); do kill -9 $left; done
sleep 0.3
rmdir $group 2> /dev/null
exit $status

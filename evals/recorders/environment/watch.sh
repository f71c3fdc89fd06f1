#!/bin/bash
# usage: watch.sh PID LOG - ends a job that has stopped writing
source watch.env
while kill -0 "$1" 2>/dev/null; do
  age=$(( $(date +%s) - $(stat -c %Y "$2") ))
  if [ "$age" -ge "$IDLE_SECONDS" ]; then
    echo "$(date +%H:%M:%S) watch: $2 is ${age}s old, state $(awk '/State/ {print $2}' /proc/$1/status), cpu $(ps -o pcpu= -p $1)%"
    kill -KILL "$1"
    exit 1
  fi
  sleep 1
done

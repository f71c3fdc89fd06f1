#!/bin/bash
# Slurm: when a job failed, `doctor` diagnoses it as the job's own user, and puts the report beside the job's log, in
# doctor-slurm-JOBID/doctor-report.{md,html,json}.
#
# To install (about ten minutes):
#   1. Look at the five lines under "Settings". DOCTOR must run on the compute nodes, for every user; try it on one:
#        runuser -u SOMEBODY -- /path/of/doctor --version
#   2. Put this file, owned by root and writable by root alone, on every compute node, as /etc/slurm/doctor-epilog.sh.
#   3. In slurm.conf:   Epilog=/etc/slurm/doctor-epilog.sh     then: scontrol reconfigure
#      (You have an Epilog already? Make it a folder: Epilog=/etc/slurm/epilog.d/* runs all files of it.)
#   4. Try it, as a user:   sbatch --wrap 'echo step 1; exit 3'
#      On the node of that job, half a minute later:   cat LOGS/job-*.log     (LOGS: see below)
#   To take it out: remove the line from slurm.conf, scontrol reconfigure.
#
# What it does: jobs that failed, ran out of memory or time, were preempted, or lost a node while others live. Not jobs
# that were cancelled or put back into the queue. A job whose only node died has no node left to do it: doctor triage
# --slurm JOBID tells as much afterwards; or use this file as EpilogSlurmctld too, where slurmctld runs as root (that of
# a user `slurm` cannot become the job's user).
# What it never does: it returns at once and always with 0, so that no node is drained and no job is held; it never
# reads or writes a user's file as root; it asks no model and no network; it is ended after SECONDS_AT_MOST.
# What it costs: `scontrol show job` once or twice a job, on the job's first node (of many nodes, on three); a diagnosis is some
# seconds of one core at low priority, and 200 MB.

# ---- Settings ----
DOCTOR=@DOCTOR@                    # must be executable for users, on the nodes
LOGS=@LOGS@                        # on the node; one small file for each job that failed; kept for 14 days
SECONDS_AT_MOST=@SECONDS@          # for one job, waiting included
AT_ONCE=2                          # diagnoses at the same time on one machine
WAITING=20                         # jobs that wait for their turn; those beyond are left out, with a line in LOGS
# ------------------

export PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
job=${SLURM_JOB_ID:-}
user=${SLURM_JOB_USER:-}
listed=${SLURM_JOB_NODELIST:-${SLURM_NODELIST:-}}   # slurmctld calls it the one, slurmd the other
as=() home=                                         # how to become the user; a home of ours that has to go again

say() { printf '%s doctor-epilog: %s\n' "$(date '+%F %T')" "$*"; }

# The first part: start the second part on its own, return. It touches nothing that can be on a shared disk.
begin() {
  [[ $job =~ ^[0-9]+$ ]] || return
  local self=$0 limit=$((SECONDS_AT_MOST + 90)) name
  if [[ $EUID == 0 && -d /run/systemd/system ]] && command -v systemd-run >/dev/null; then
    local -a told=()
    for name in JOB_ID JOB_USER JOB_UID JOB_NODELIST NODELIST CONF JOB_EXIT_CODE2 JOB_DERIVED_EC; do
      name=SLURM_$name
      [[ -n ${!name:-} ]] && told+=(--setenv="$name=${!name}")
    done
    [[ -n ${SLURMD_NODENAME:-} ]] && told+=(--setenv=SLURMD_NODENAME="$SLURMD_NODENAME")
    timeout 5 systemd-run --quiet --collect --no-block --unit="doctor-job-$job" --nice=10 \
      -p RuntimeMaxSec="$limit" -p MemoryMax=6G "${told[@]}" bash "$self" --work && return
  fi
  # slurmd kills what is left in its epilog's process group once this script has ended: on a busy machine also a
  # second part that has no session of its own yet. So wait for its first word.
  cd / && read -r -t 20 < <(
    setsid -f bash -c 'echo begun; exec nice -n 10 timeout -k 10 "$@" >/dev/null' -- "$limit" bash "$self" --work \
      </dev/null
  )
}

# Whether this is the node that does it: the first of the job's; of a job that lost nodes the first that is left.
mine() {
  [[ -n ${SLURMD_NODENAME:-} && -n $listed && $listed != "$SLURMD_NODENAME" ]] || return 0
  local -a names
  mapfile -t names < <(timeout 10 scontrol show hostnames "$listed" 2>/dev/null)
  if [[ $state == NODE_FAIL ]]; then
    mapfile -t names < <(timeout 10 sinfo -h -N -n "$listed" -o '%N %T' 2>/dev/null |
      grep -Eiv 'down|fail|unk|no_respond|reboot|power|\*' | cut -d' ' -f1 | uniq)
  fi
  # Three nodes ask, since the first may be the one that was lost; of a thousand that would be a storm.
  [[ ${1:-} == asking ]] && names=(" ${names[*]:0:3} ") || names=(" ${names[*]:0:1} ")
  [[ ${names[0]} == *" $SLURMD_NODENAME "* ]]
}

# Ask Slurm how the job ended. On a node it is COMPLETING until all of its nodes are done with it; where one of them
# takes minutes, as with a process that cannot be killed, the accounting knows already.
ask() {
  local ends=$((SECONDS + 60)) pause=1 kept
  while :; do
    state=$(timeout 10 scontrol --oneliner show job "$job" 2>/dev/null | grep -o -m 1 ' JobState=[A-Z_]*')
    state=${state#*=}
    [[ -n $state && $state != RUNNING && $state != COMPLETING ]] && return
    [[ $SECONDS -ge $ends ]] && break
    sleep "$pause"
    pause=$((pause * 2))
  done
  kept=$(timeout 20 sacct -n -X -P -j "$job" -o State 2>/dev/null | tail -n 1)
  state=${kept:-$state}
  state=${state%% *}                                  # "CANCELLED by 1000"
}

# Hold one of N numbered places, at most for that many seconds. The files are only held, never named to the user.
place() {
  local kind=$1 count=$2 ends=$((SECONDS + $3)) number fd
  while :; do
    for ((number = 0; number < count; number++)); do
      : >>"$LOGS/.$kind-$number.lock" && exec {fd}<"$LOGS/.$kind-$number.lock" || return
      flock -n "$fd" && { held=$fd; return 0; }
      exec {fd}<&-
    done
    [[ $SECONDS -lt $ends ]] || return
    sleep 1
  done
}

# The second part, on its own: wait until Slurm says how the job ended, then diagnose as its user.
work() {
  local state= held= waits ends=$((SECONDS + SECONDS_AT_MOST))
  # A variable that is set and empty would hide Slurm's default place for its configuration.
  [[ -n ${SLURM_CONF:-} ]] || unset SLURM_CONF
  mine asking || return
  ask
  case $state in
    COMPLETED | PENDING | CONFIGURING | SUSPENDED | REQUEUED) return ;;    # it is well, or is back in the queue
    CANCELLED) return ;;                              # on purpose; take this line out to have these told too
    '' | RUNNING | COMPLETING)                        # Slurm does not say: only what failed by its own exit code
      [[ ${SLURM_JOB_EXIT_CODE2:-0:0} == 0:0 ]] && return ;;
  esac
  mine || return
  umask 077                                           # what a job wrote is for its user, and for you
  mkdir -p -m 755 "$LOGS" && exec >>"$LOGS/job-$job.log" 2>&1 || return
  exec 8<"$LOGS/job-$job.log" && flock -n 8 || return                       # once a job
  local by_hand="By hand: doctor triage --slurm $job"
  place wait "$WAITING" 0 || { say "left out: $WAITING others wait here. $by_hand"; return; }
  waits=$held
  place slot "$AT_ONCE" "$((ends - SECONDS))" || { say "left out: no turn in time. $by_hand"; return; }
  exec {waits}<&-
  diagnose "$((ends - SECONDS > 30 ? ends - SECONDS : 30))"
  find "$LOGS" -maxdepth 1 -type f -name 'job-*.log' -mtime +14 -delete
}

# What runs as the user keeps its place on the machine (an open lock) also where it cannot be ended, as on a shared disk
# that hangs: there are never more than AT_ONCE of them.
diagnose() {
  [[ $user =~ ^[A-Za-z0-9_.@-]+$ ]] || user=$(timeout 10 id -nu "${SLURM_JOB_UID:-}") || return
  if [[ $EUID == 0 ]]; then
    as=(runuser -u "$user" --)
  elif [[ $(id -nu) != "$user" ]]; then
    say "runs as $(id -nu), who cannot become $user: use it as Epilog on the nodes"
    return
  fi
  say "job $job of $user ended ${state:-in a way that Slurm does not tell}"
  timeout -k 2 10 "${as[@]}" test -x "$DOCTOR" || { say "$user cannot run $DOCTOR on $(uname -n): set DOCTOR"; return; }
  local own
  own=$(timeout 10 getent passwd "$user" | cut -d: -f6)
  # Users without a home that can be written: everything of doctor's own goes to a folder that is theirs alone.
  if ! timeout -k 2 10 "${as[@]}" test -w "${own:-/nonexistent}" 2>/dev/null; then
    trap 'timeout 10 "${as[@]}" rm -rf -- "$home"' EXIT
    home=$("${as[@]}" mktemp -d "${TMPDIR:-/tmp}/doctor-home-XXXXXX") || return
    own=$home
  fi
  local -a clean=(env -i HOME="$own" USER="$user" LOGNAME="$user" PATH="$PATH" LANG=C.UTF-8 NO_COLOR=1)
  [[ -n ${SLURM_CONF:-} ]] && clean+=(SLURM_CONF="$SLURM_CONF")
  "${as[@]}" timeout -k 5 "$1" "${clean[@]}" "$DOCTOR" triage --slurm "$job" --write --offline --plain 8<&- 2>&1 |
    head -c 65536
  local code=${PIPESTATUS[0]}
  [[ $code == 124 || $code == 137 ]] && say "doctor was ended after $1 s"
  say "done: doctor ended $code"
}

if [[ ${1:-} == --work ]]; then work; else begin >/dev/null 2>&1 || true; fi
exit 0

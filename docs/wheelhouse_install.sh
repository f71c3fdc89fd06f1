#!/bin/sh
# Installs doctor @VERSION@ from the files beside this script, without a network, into an environment of its own:
#
#     ./install.sh /opt/doctor            or ~/doctor, or a folder that all nodes see
#
# Your training environments are neither read nor changed, and the one that is active now is left alone. Run again with
# a newer folder of files, this updates what it installed. To take doctor away, delete the folder.
#
#     --python PATH   the Python @PYTHON@ to use, where it is not on PATH
#     --no-warm       do not prepare patterns and index for this user (the first use does it then)

set -eu

say() { printf '%s\n' "doctor: $*" >&2; }
refuse() { say "$*"; exit 2; }

target='' python='' warm=yes
while [ $# -gt 0 ]; do
    case "$1" in
    --python) [ $# -gt 1 ] || refuse "--python wants a path"; python=$2; shift ;;
    --no-warm) warm='' ;;
    -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) refuse "no such option: $1 (./install.sh --help)" ;;
    *) [ -z "$target" ] || refuse "one folder only: $target or $1"; target=$1 ;;
    esac
    shift
done
[ -n "$target" ] || refuse "name a folder to install into, as in ./install.sh /opt/doctor"
case "$target" in /*) ;; *) target=$(pwd)/$target ;; esac
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

# Never into an environment of somebody else's: doctor's versions would break a training, and a training's doctor.
for active in "${VIRTUAL_ENV:-}" "${CONDA_PREFIX:-}"; do
    case "$target/" in "${active:-/nowhere}"/*) refuse "$target belongs to the active environment: name another folder" ;; esac
done
if [ -e "$target" ] && [ ! -f "$target/.doctor-environment" ]; then
    [ -d "$target" ] || refuse "$target is not a folder"
    if [ -e "$target/pyvenv.cfg" ] || [ -d "$target/conda-meta" ]; then
        refuse "$target is an environment that this script did not make: name another folder"
    fi
    [ -z "$(ls -A "$target")" ] || refuse "$target is not empty: name another folder"
fi

if [ -z "$python" ]; then
    python=$(command -v python@PYTHON@ || command -v python3 || true)
    [ -n "$python" ] || refuse "no Python @PYTHON@ on PATH: name one by --python"
fi
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP
facts=$("$python" -I -c 'import platform, sys
print("%d.%d" % sys.version_info[:2], platform.machine(), (platform.libc_ver()[1] or "2.0").split(".")[1])' 2>/dev/null) ||
    refuse "$python does not start"
# shellcheck disable=SC2086
set -- $facts
[ "$1" = "@PYTHON@" ] || refuse "$python is Python $1, and these files are for @PYTHON@: name one by --python"
[ "$2" = "@MACHINE@" ] || refuse "this machine is $2, and these files are for @MACHINE@"
[ "$3" -ge "@GLIBC@" ] || refuse "glibc here is 2.$3, and these files need 2.@GLIBC@ or newer"

say "checking the files"
(cd "$here" && sha256sum --quiet --check SHA256SUMS) || refuse "files are damaged or missing: copy the folder again"

made=''
[ -e "$target/pyvenv.cfg" ] || made=yes
undo() {
    code=$?
    if [ "$code" -ne 0 ] && [ -n "$made" ]; then rm -rf -- "$target"; say "nothing was installed"; fi
    exit "$code"
}
trap undo EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say "installing into $target"
"$python" -I -m venv --without-pip "$target"
: >"$target/.doctor-environment"
new=$target/bin/python
pip=$(ls "$here"/pip-*-py3-none-any.whl)
# Settings of this user's pip may name servers; they do not count here.
for name in $(env | sed -n 's/^\(PIP_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
PIP_CONFIG_FILE=/dev/null "$new" "$pip/pip" install --quiet --no-index --no-cache-dir --disable-pip-version-check \
    --no-warn-script-location --upgrade --find-links "$here" "traindoctor@EXTRAS@==@VERSION@"
"$target/bin/doctor" --version >/dev/null
made=''

if [ -n "$warm" ]; then
    say "preparing patterns and index for $(id -un)"
    "$target/bin/doctor" index build --quiet || say "the index could not be prepared; the first use tries again"
fi
say "done: $target/bin/doctor. To have it on your PATH:  ln -s $target/bin/doctor ~/.local/bin/doctor"

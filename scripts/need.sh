#!/usr/bin/env bash
# Installs the Debian packages named, those that a command shows to be missing:
# scripts/need.sh 'COMMAND' PACKAGE…
set -euo pipefail
check=$1
shift
if bash -c "$check" >/dev/null 2>&1; then
	exit 0
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
	sudo=sudo
	command -v sudo >/dev/null || { echo "missing: $*; install them as root: apt-get install $*" >&2; exit 1; }
fi
command -v apt-get >/dev/null || { echo "missing: $*; this system has no apt-get" >&2; exit 1; }
echo "installing $*" >&2
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "$@" >/dev/null

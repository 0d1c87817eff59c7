#!/usr/bin/env bash
# Runs a command on a throw-away host: scripts/host.sh FOLDER COMMAND [ARG…]
#
# The host is this machine's systemd, as process 1 of namespaces of its own: it has its own
# processes, network (a loopback), name and cgroups, and this machine's files as they are;
# what it writes is in memory and goes with it. FOLDER is seen there as /mnt/share, to be
# read. It needs root, and overlay mounts. Who has made the namespaces already calls it with
# --init ROOT NAME, as test/rollout does.
set -euo pipefail

# init runs as process 1 of the new host, with the host's files at $1.
if [ "${1:-}" = --init ]; then
	root=$2
	ip link set lo up
	cd "$root"
	echo "${3:-stele-host}" >etc/hostname
	mount -t proc proc proc
	mount -t sysfs -o ro sysfs sys
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mount -t tmpfs -o mode=755 dev dev
	mknod -m 666 dev/null c 1 3
	mknod -m 666 dev/zero c 1 5
	mknod -m 666 dev/full c 1 7
	mknod -m 666 dev/random c 1 8
	mknod -m 666 dev/urandom c 1 9
	mknod -m 666 dev/tty c 5 0
	mkdir dev/shm dev/pts
	mount -t tmpfs -o mode=1777 shm dev/shm
	mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
	ln -s pts/ptmx dev/ptmx
	mount -t tmpfs -o mode=755 run run
	mount -t tmpfs -o mode=1777 tmp tmp
	# What is about hardware, the clock or this machine's disks is not this host's.
	: >etc/fstab
	rm -f usr/sbin/policy-rc.d # by which a container keeps packages from starting and stopping anything
	mkdir -p run/systemd/system
	for unit in systemd-udevd systemd-sysctl systemd-modules-load systemd-remount-fs systemd-random-seed \
		systemd-timesyncd systemd-update-utmp systemd-binfmt systemd-journal-flush; do
		ln -s /dev/null run/systemd/system/$unit.service
	done
	# Not chroot: the kernel lets nobody make a user namespace in one.
	mkdir -p run/old
	pivot_root . run/old
	umount -l run/old
	exec env -i PATH="$PATH" container=other /lib/systemd/systemd --system --unit=basic.target --show-status=0 </dev/null >/dev/null 2>&1
fi

# The rest runs twice: to get a mount namespace, and in it.
if [ "${1:-}" != --inside ]; then
	[ "$(id -u)" -eq 0 ] || { echo "a host of its own needs root" >&2; exit 1; }
	"$(dirname "$0")/need.sh" 'test -x /lib/systemd/systemd && systemctl --version' systemd systemd-sysv
	"$(dirname "$0")/need.sh" 'ip -V' iproute2
	share=$(realpath "$1")
	shift
	dir=$(mktemp -d)
	trap 'rmdir "$dir"' EXIT
	unshare -m --propagation private bash "$0" --inside "$dir" "$share" "$@"
	exit
fi
dir=$2 share=$3
shift 3
mount -t tmpfs host "$dir"
mkdir "$dir"/{upper,work,root,cgroup}
mount -t overlay host -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" "$dir/root"
mkdir -p "$dir/root/mnt/share"
mount --bind -o ro "$share" "$dir/root/mnt/share"
mount -t cgroup2 cgroup2 "$dir/cgroup"
group=$dir/cgroup/stele-host-$$
mkdir "$group"
(
	echo 0 >"$group/cgroup.procs"
	exec unshare -m -p -f -C -u -i -n --kill-child=KILL bash "$0" --init "$dir/root"
) &
host=$!
end() {
	kill -KILL $host 2>/dev/null || true
	wait $host 2>/dev/null || true
	for _ in $(seq 50); do # until the last process is gone
		find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
		sleep 0.1
	done
}
trap end EXIT
for _ in $(seq 100); do
	init=$(pgrep -P $host || true)
	case $([ -z "$init" ] || nsenter -t "$init" -m -p -r -w systemctl is-system-running --wait 2>/dev/null) in
	running | degraded) break ;;
	esac
	sleep 0.3
done
enter="nsenter -t $init -m -p -C -u -i -n -r -w"
state=$($enter systemctl is-system-running || true)
# Degraded is a host some of whose other services failed: not what anybody tries here.
[ "$state" = running ] || [ "$state" = degraded ] || { echo "the host is $state" >&2; $enter systemctl --no-pager --failed >&2; exit 1; }
$enter env -C / -i PATH="$PATH" HOME=/root LANG=C.UTF-8 SYSTEMD_PAGER= "$@"

# shellcheck shell=bash
# Hosts to roll out on: this file is sourced by run.sh, in mount and network namespaces of its
# own. Each host is this machine's systemd with sshd, as process 1 of namespaces of its own,
# on one bridge; its files are this machine's with a layer in memory over them. $work is an
# empty folder; what is made in it and in the network is gone with the namespaces.

declare -A init under # of each host: process 1, as seen from here, and what waits for it

# hosts_begin makes the network: this machine's side of it is 10.77.0.1.
hosts_begin() {
	mount -t tmpfs sta-hosts "$work"
	mkdir "$work/cgroup"
	mount -t cgroup2 cgroup2 "$work/cgroup"
	group=$work/cgroup/sta-hosts-$$
	mkdir "$group"
	ip link set lo up
	ip link add sta-br type bridge
	ip addr add 10.77.0.1/16 dev sta-br
	ip link set sta-br up
	ssh-keygen -q -t ed25519 -N '' -C stele-rollout -f "$work/key"
}

# host_up NAME ADDRESS starts a host, and returns when one can log in as root.
host_up() {
	local name=$1 address=$2 dir=$work/$1 waited=0
	mkdir -p "$dir"/{upper,work,root} "$group/$name"
	mount -t overlay "sta-$name" -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" "$dir/root"
	install -d -m 700 "$dir/root/root/.ssh"
	install -m 600 "$work/key.pub" "$dir/root/root/.ssh/authorized_keys"
	(
		echo 0 >"$group/$name/cgroup.procs"
		exec unshare -m -p -f -C -u -i -n --kill-child=KILL bash scripts/host.sh --init "$dir/root" "$name"
	) >"$dir/log" 2>&1 &
	under[$name]=$!
	until init[$name]=$(pgrep -P "${under[$name]}") && [ -d "/proc/${init[$name]}" ] &&
		[ "$(readlink "/proc/${init[$name]}/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do
		[ $((waited += 1)) -lt 100 ] && kill -0 "${under[$name]}" 2>/dev/null || { cat "$dir/log" >&2; die "host $name does not start"; }
		sleep 0.1
	done
	ip link add "sta-$name" type veth peer name eth0 netns "${init[$name]}"
	ip link set "sta-$name" master sta-br up
	nsenter -t "${init[$name]}" -n sh -c "ip addr add $address/16 dev eth0; ip link set eth0 up"
	waited=0
	until on "$name" systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'; do
		[ $((waited += 1)) -lt 300 ] || { on "$name" systemctl --no-pager --failed >&2 || true; die "host $name does not get up"; }
		sleep 0.2
	done
	on "$name" systemctl start ssh
}

# on NAME COMMAND… runs a command on a host.
on() {
	local pid=${init[$1]}
	shift
	nsenter -t "$pid" -m -p -C -u -i -n -r -w env -C / -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		HOME=/root LANG=C.UTF-8 SYSTEMD_PAGER= "$@"
}

# host_die NAME ends a host as a power failure does.
host_die() {
	kill -KILL "${init[$1]}"
	while kill -0 "${init[$1]}" 2>/dev/null; do sleep 0.1; done
	unset "init[$1]"
}

hosts_end() {
	local name
	for name in "${!init[@]}"; do
		kill -KILL "${init[$name]}" 2>/dev/null || true
	done
	wait "${under[@]}" 2>/dev/null || true
	for _ in $(seq 50); do # until the last process is gone
		find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
		sleep 0.1
	done
}

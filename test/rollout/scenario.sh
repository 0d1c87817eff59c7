# shellcheck shell=bash
# What is done with the hosts; run.sh sources it.

# Seconds in which three bare hosts are to be a cluster that serves. They reach nothing but each other: no package is
# downloaded meanwhile.
FOUNDED_MAX=120

# inventory HOST… writes the inventory: these are the hosts of the cluster. $package is what they run, and $unit what
# their units have; h5 is given the program alone.
inventory() {
	local host
	{
		cat <<-END
			all:
			  vars:
			    ansible_user: root
			    ansible_ssh_private_key_file: $work/key
			    ansible_python_interpreter: /usr/bin/python3
			    monitoring_cluster: rollout
			    monitoring_credential_file: "${STELE_CREDENTIAL:-}"
			stele:
			  vars:
			    stele_credential_file: $work/admin.pem
			    stele_settings: {memory: 256MiB, extent_size: 1MiB}
			    stele_unit: {$unit}
			    stele_drain_timeout: 120
			    stele_heal_timeout: 180
			    stele_start_timeout: 90
		END
		echo "  hosts:"
		for host in "$@"; do
			if [ "$host" = h5 ]; then
				echo "    $host: {ansible_host: $(address "$host"), stele_binary: $first}"
			else
				echo "    $host: {ansible_host: $(address "$host"), stele_package: $package}"
			fi
		done
		echo "monitoring: {hosts: {h1: {}}}"
	} >"$work/inventory.yml"
	members=("$@")
}
address() { echo "10.77.0.1${1#h}"; }
addresses() { for host in "${members[@]}"; do echo -n "$(address "$host"):7106,"; done | sed 's/,$//'; }

configure_ansible() {
	cat >"$work/ansible.cfg" <<-END
		[defaults]
		inventory = $work/inventory.yml
		host_key_checking = False
		retry_files_enabled = False
		[ssh_connection]
		pipelining = True
		ssh_args = -o ControlMaster=auto -o ControlPersist=5m -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR
		control_path_dir = $work/control
	END
	export ANSIBLE_CONFIG=$work/ansible.cfg
}

# play PLAYBOOK [ARG…] runs a playbook, which must succeed; the log is .cache/rollout/NUMBER-PLAYBOOK.
plays=0
play() {
	log=$logs/$((plays += 1))-$1
	local began=$SECONDS
	ansible-playbook "steledb.stele.$1" "${@:2}" >"$log" 2>&1 || { tail -n 60 "$log" >&2; report >&2; die "playbook $*"; }
	took=$((SECONDS - began))
}

# stops PLAYBOOK WHY runs a playbook, which must stop for that reason.
stops() {
	log=$logs/$((plays += 1))-$1-stops
	! ansible-playbook "steledb.stele.$1" >"$log" 2>&1 || die "playbook $1 has not stopped"
	grep -q "$2" "$log" || { tail -n 60 "$log" >&2; die "playbook $1 stopped, and not for \"$2\""; }
}

# refused PLAYBOOK WHY runs a playbook, which must stop for that reason before it changes anything.
refused() {
	stops "$@"
	! grep -E 'changed=[1-9]' "$log" >&2 || die "playbook $1 has changed something before it stopped"
}

# again PLAYBOOK [ARG…] runs a playbook that must change nothing.
again() {
	play "$@"
	if grep -qE 'changed=[1-9]' "$log"; then
		grep -B 8 '^changed:' "$log" | head -n 40 >&2
		die "a second run of $1 changes something"
	fi
}

# report tells what the nodes say, when something went wrong.
report() {
	local host
	"$first" --addr "$(addresses)" status --timeout 15s || true
	"$first" --addr "$(addresses)" blob status --timeout 15s || true
	for host in "${!init[@]}"; do
		echo "--- $host"
		on "$host" journalctl -u stele --no-pager -q -o cat -n 15 || true
	done
}

# check VERSION looks at the cluster from outside: its nodes are the members and run that version, and all is well.
check() {
	/usr/bin/python3 test/rollout/check.py "$first" "$(addresses)" "$1" "${members[@]}" || { report >&2; die "the cluster is not as it should be"; }
}

# ask QUESTION asks the load, and leaves what it says in $answer.
ask() {
	echo "$1" >&"${users[1]}"
	read -r answer <&"${users[0]}" || { cat "$work/load.log" >&2; die "the load has ended"; }
}

# unfailing WHAT: since it was last asked, no operation of the load has failed.
unfailing() {
	ask phase
	case $answer in
	"failed 0 of 0 "*) die "$1: there was no load" ;;
	"failed 0 of "*) ok "$1; $answer" ;;
	*)
		cat "$work/load.log" >&2
		report >&2
		die "$1: $answer"
		;;
	esac
}

scenario() {
	local host second unit=
	package=$(echo "$dist"/stele_0.0.1_*.deb)
	second=$(echo "$dist"/stele_0.0.2_*.deb)
	configure_ansible
	for host in h1 h2 h3 h4 h5; do host_up $host "$(address $host)"; done
	ok "five hosts are up, with systemd and sshd"

	inventory h1 h2 h3
	play site
	secured
	check v0.0.1
	[ "$took" -lt "$FOUNDED_MAX" ] || die "three bare hosts are a cluster after $took s, and should be within $FOUNDED_MAX s"
	ok "three bare hosts are a cluster, after $took s"
	mistaken
	again site
	ok "site.yml again: nothing changes"

	coproc users { exec "$load" --addr "$(addresses)" --credential "$STELE_CREDENTIAL" 2>"$work/load.log"; }
	read -r -t 60 answer <&"${users[0]}" && [ "$answer" = loading ] || { cat "$work/load.log" >&2; die "there is no load"; }
	monitored
	unfailing "the load runs"

	package=$second unit='Environment: STELE_MEMORY=much'
	inventory h1 h2 h3
	stops upgrade "its service has failed"
	"$first" --addr "$(addresses)" node list --json 2>/dev/null | grep '"state":"alive"' | grep -c '"version":"v0.0.1"' | grep -qx 2 ||
		{ report >&2; die "more than one node has been touched"; }
	unfailing "an upgrade with which no node starts has stopped at the first"

	unit=
	inventory h1 h2 h3
	play upgrade
	check v0.0.2
	unfailing "upgraded, after $took s"
	again upgrade
	unfailing "upgrade.yml again: nothing changes"

	play backout
	check v0.0.1
	unfailing "taken back, after $took s"
	again backout
	package=$(echo "$dist"/stele_0.0.1_*.deb)
	unfailing "backout.yml again: nothing changes"

	host_die h3
	inventory h1 h2 h4
	play replace -e stele_dead=h3
	check v0.0.1
	ask phase
	ok "h3 is lost for good, and replaced by h4 after $took s; $answer"
	again replace -e stele_dead=h3
	unfailing "replace.yml again: nothing changes"

	inventory h1 h2 h4 h5
	play grow
	check v0.0.1
	unfailing "grown by h5, from the program alone, after $took s"
	again grow
	unfailing "grow.yml again: nothing changes"

	play remove -e stele_leaving=h2
	again remove -e stele_leaving=h2
	! on h2 systemctl is-active --quiet stele || die "h2 was removed, and its node runs"
	inventory h1 h4 h5
	check v0.0.1
	unfailing "h2 has left, after $took s, and remove.yml again changes nothing"
	again site
	unfailing "site.yml again: nothing changes"

	ask verify
	case $answer in "verified "*" rows") ok "$answer: each that was acknowledged is there" ;; *) cat "$work/load.log" >&2; die "verify: $answer" ;; esac
}

# secured looks at what the cluster has come with, and has everybody use the credential.
secured() {
	local host
	[ "$(stat -c %a "$work/admin.pem")" = 600 ] || die "the credential on the controller: $(stat -c '%a %n' "$work/admin.pem")"
	"$first" --addr "$(addresses)" node list --timeout 5s >/dev/null 2>&1 && die "a stranger is answered"
	for host in "${members[@]}"; do
		! on "$host" test -e /run/stele-init -o -e /run/stele-join.token || die "secrets have stayed on $host"
		[ "$(on "$host" stat -c '%U %a' /var/lib/stele/security)" = 'stele 700' ] || die "the keys of $host are open to others"
	done
	! grep -lE 'PRIVATE KEY' "$logs"/* >&2 || die "a key stands in a log"
	export STELE_CREDENTIAL=$work/admin.pem
	inventory "${members[@]}"
	ok "secured: strangers are turned away, and the credential is on the controller alone"
}

# mistaken has playbooks refuse a host that has a node without keys, and to scrape the cluster without a credential.
mistaken() {
	on h4 mkdir -p /var/lib/stele/raft # what is left of a node that ran without keys
	on h4 touch /var/lib/stele/identity
	inventory h1 h2 h3 h4
	refused grow "and no keys"
	on h4 rm -r /var/lib/stele
	STELE_CREDENTIAL='' inventory h1 h2 h3
	refused monitoring "answers only who has a credential"
	inventory h1 h2 h3
	ok "the cluster takes no host that has a node without keys, and is not scraped without a credential"
}

# overdrawn has a write refused for a quota: who is never refused has no metric of it, for which an alert asks.
overdrawn() {
	local stele=("$first" --addr "$(addresses)")
	{ "${stele[@]}" table create quotas --family f && "${stele[@]}" quota set quotas --write-bytes 1; } >"$work/quota.log" 2>&1 ||
		{ cat "$work/quota.log" >&2; die "a table with a quota"; }
	for _ in $(seq 20); do
		"${stele[@]}" put quotas row f:q=value --timeout 5s >/dev/null 2>&1 || { [ $? = 9 ] && return; }
		sleep 0.1
	done
	die "no write is refused for a quota of a byte a second"
}

# monitored has Prometheus look at the cluster, and asks it.
monitored() {
	overdrawn
	play monitoring
	again monitoring
	/usr/bin/python3 test/rollout/monitoring.py "http://$(address h1):9090" "${#members[@]}" || die "monitoring"
	ok "Prometheus scrapes the nodes: all that alerts and dashboard ask for is there, no alert fires, and monitoring.yml again changes nothing"
}

#!/usr/bin/env bash
# Tries the playbooks of ansible/ on hosts of their own: test/rollout/run.sh
#
# The hosts are namespaces of this machine with systemd, sshd and files of their own, see hosts.sh. On them a cluster is
# formed, upgraded, taken back, and changed host by host, over SSH, while users read and write: none of their operations may
# fail, save while a host is lost, and no row that was acknowledged may be gone. Each playbook is run a second time, and must
# change nothing. It takes root. Once all that it needs is built, it ends after LIMIT (15m: it took 11 on two cores),
# whatever happens. Logs of playbooks are in .cache/rollout/.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache logs=$PWD/.cache/rollout
go=${GO:-go}
ok() { printf 'ok   %4d s  %s\n' $SECONDS "$*"; }
die() { echo "FAIL $*" >&2; exit 1; }

# What it needs, which is put in place here; then again in namespaces.
prepare() {
	[ "$(id -u)" -eq 0 ] || die "hosts of their own need root"
	scripts/need.sh 'test -x /lib/systemd/systemd && systemctl --version' systemd systemd-sysv
	scripts/need.sh 'ip -V' iproute2
	scripts/need.sh 'test -x /usr/sbin/sshd && command -v ssh ssh-keygen' openssh-server openssh-client
	scripts/need.sh '/usr/bin/python3 -c "import apt"' python3 python3-apt
	scripts/need.sh 'python3 -c "import venv, ensurepip"' python3 python3-venv
	scripts/need.sh 'promtool --version' prometheus
	unshare -m -n --propagation private sh -c 'ip link add sta-br type bridge && mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w /mnt/r &&
		mount -t overlay o -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r && unshare -p -f -C -u -i true' 2>"$work/why" ||
		die "this kernel, or the container that this runs in, forbids namespaces, bridges or overlay mounts: $(cat "$work/why")"
	if ! cmp -s test/rollout/requirements.txt "$cache/ansible/requirements.txt"; then
		rm -rf "$cache/ansible"
		python3 -m venv "$cache/ansible" || die "cannot make a virtual environment: apt-get install python3-venv"
		"$cache/ansible/bin/pip" install --quiet --disable-pip-version-check -r test/rollout/requirements.txt || die "pip cannot install Ansible"
		cp test/rollout/requirements.txt "$cache/ansible/"
	fi
	rm -rf "$logs"
	mkdir -p "$logs" "$cache/collections"
	"$go" build -o "$work/load" ./test/rollout
	GO=$go VERSION=v0.0.1 scripts/package.sh "$work/dist" >/dev/null
	GO=$go VERSION=v0.0.2 scripts/package.sh "$work/dist" >/dev/null
	mkdir "$work/first"
	dpkg-deb --fsys-tarfile "$work"/dist/stele_0.0.1_*.deb | tar -x -C "$work/first" ./usr/bin/stele
	ansible-galaxy collection install --force -p "$cache/collections" ansible >/dev/null
	(cd ansible && ansible-lint --offline --strict --profile production >"$logs/lint" 2>&1) || { grep -v WARNING "$logs/lint" >&2; die "ansible-lint"; }
	promtool check rules ansible/roles/monitoring/files/stele.rules.yml >"$logs/promtool" || { cat "$logs/promtool" >&2; die "alerts"; }
	(cd ansible/roles/monitoring/files && promtool test rules stele.rules*.test.yml) >>"$logs/promtool" 2>&1 || { cat "$logs/promtool" >&2; die "alerts do not do what they should"; }
	for alert in $(sed -n 's/^ *- alert: //p' ansible/roles/monitoring/files/stele.rules.yml); do
		grep -q "$alert" ansible/roles/monitoring/files/stele.rules*.test.yml || die "no test names alert $alert"
	done
	ok "built; ansible-lint and promtool have nothing to say"
}

export PATH=$cache/ansible/bin:$PATH ANSIBLE_COLLECTIONS_PATH=$cache/collections LANG=C.UTF-8 NO_COLOR=1 ANSIBLE_HOME=$cache/ansible-home
if [ "${1:-}" != --inside ]; then
	work=$(mktemp -d "${TMPDIR:-/tmp}/stele-rollout.XXXXXX")
	inside=
	end() {
		if [ -n "$inside" ]; then
			kill "$inside" 2>/dev/null || true
			wait "$inside" || true
		fi
		rm -rf "$work"
	}
	trap end EXIT
	trap 'exit 130' INT TERM
	prepare
	timeout -k 30 "${LIMIT:-15m}" unshare -m -n --propagation private bash "$0" --inside "$work" "$SECONDS" &
	inside=$!
	code=0
	wait $inside || code=$?
	inside=
	[ $code -ne 124 ] || echo "FAIL not done after ${LIMIT:-15m}" >&2
	exit $code
fi

dist=$2/dist first=$2/first/usr/bin/stele load=$2/load work=$2/hosts
SECONDS=$3
mkdir "$work"
# shellcheck source=test/rollout/hosts.sh
. test/rollout/hosts.sh
# shellcheck source=test/rollout/scenario.sh
. test/rollout/scenario.sh
users_PID=
leave() {
	[ -z "$users_PID" ] || kill "$users_PID" 2>/dev/null || true
	hosts_end
}
trap leave EXIT
trap 'exit 143' TERM
hosts_begin
scenario

#!/usr/bin/env bash
# Tries a Debian package on throw-away hosts: scripts/package-test.sh PACKAGE
# It is installed, configured, run, frozen, upgraded, removed and purged there, by systemd
# and dpkg themselves; lintian looks at it before.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" != --on-host ]; then
	[ $# -eq 1 ] || { echo "usage: scripts/package-test.sh PACKAGE" >&2; exit 2; }
	scripts/need.sh 'lintian --version' lintian
	lintian --fail-on error,warning "$1"
	echo "ok   lintian has no errors and no warnings"
	share=$(mktemp -d)
	trap 'rm -rf "$share"' EXIT
	cp "$1" "$share/1.deb"
	cp scripts/package-test.sh "$share/"
	# The next version: it has another /etc/default/stele.
	dpkg-deb -R "$1" "$share/next"
	sed -i 's/^Version: .*/&+next/' "$share/next/DEBIAN/control"
	echo '# what the next version says' >>"$share/next/etc/default/stele"
	dpkg-deb --root-owner-group -Znone --build "$share/next" "$share/2.deb" >/dev/null
	rm -r "$share/next"
	scripts/host.sh "$share" bash /mnt/share/package-test.sh --on-host
	exit
fi

cd /
export DEBIAN_FRONTEND=noninteractive
ok() { echo "ok   $*"; }
die() {
	echo "FAIL $*" >&2
	systemctl status --no-pager -l stele.service >&2 || true
	journalctl --no-pager -u stele.service -n 40 >&2 || true
	exit 1
}
# until SECONDS COMMAND…: waits for it to succeed
until_() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || die "not so in time: $*"
		sleep 0.2
	done
}
property() { systemctl show -P "$1" stele.service; }
is() { [ "$(property "$1")" = "$2" ]; }

# Installed, it does nothing, and says what to do.
dpkg -i /mnt/share/1.deb >/tmp/out 2>&1 || { cat /tmp/out; die "install"; }
grep -q 'systemctl enable --now stele' /tmp/out || die "the package does not say what is next: $(cat /tmp/out)"
is ActiveState inactive || die "it was started"
! systemctl --quiet is-enabled stele || die "it was enabled"
[ "$(stat -c '%U:%G %a' /var/lib/stele)" = 'stele:stele 750' ] || die "data folder: $(stat -c '%U:%G %a' /var/lib/stele)"
! systemctl start stele 2>/tmp/out || die "a node without configuration starts"
is ActiveState inactive || die "a node without configuration runs"
[ -z "$(ls -A /var/lib/stele)" ] || die "a node without configuration has made data"
man -w stele-serve stele.yaml >/dev/null || die "no manual pages"
bash -c '. /usr/share/bash-completion/completions/stele && complete -p stele' >/dev/null || die "no completion"
ok "installed: nothing runs, and no node starts that nobody has configured"

# A wrong setting is told, and not tried again.
sed 's/^#memory: .*/memory: 256MB/; s/^#extent_size: .*/extent_size: 1MiB/; s/^#name: .*/nmae: h1/' \
	/usr/share/doc/stele/examples/stele.yaml >/etc/stele/stele.yaml
! systemctl start stele 2>/dev/null || die "a node with a wrong setting starts"
is ExecMainStatus 4 || die "exit status $(property ExecMainStatus)"
sleep 6 # more than RestartSec
is NRestarts 0 || die "a wrong setting was tried again"
until_ 10 journalctl -u stele -g 'did you mean name' -q
ok "a wrong setting: $(journalctl -u stele -g 'unknown key' -o cat -q | tail -1)"
systemctl reset-failed stele
sed -i 's/^nmae/name/; s/^memory: .*/memory: 256MiB/' /etc/stele/stele.yaml
runuser -u stele -- stele config check >/dev/null || die "the configuration is refused"

# The file of the join token is checked with the settings.
cp /etc/stele/stele.yaml /tmp/good.yaml
printf '%s\n' 'join: 127.0.0.2' 'token_file: /etc/stele/token' >>/etc/stele/stele.yaml
install -m 640 -o root -g stele /dev/stdin /etc/stele/token <<<'no token'
! systemctl start stele 2>/dev/null || die "a host joins by no token"
is ExecMainStatus 4 || die "exit status $(property ExecMainStatus)"
sleep 6 # more than RestartSec
is NRestarts 0 || die "a token that is none was tried again"
ok "no token: refused, and not tried again"
systemctl reset-failed stele
mv /tmp/good.yaml /etc/stele/stele.yaml
rm /etc/stele/token

# It serves when systemctl start returns, confined.
mkdir -p /run/systemd/system/stele.service.d
printf '[Service]\nWatchdogSec=6s\nTimeoutAbortSec=6s\n' >/run/systemd/system/stele.service.d/test.conf
systemctl daemon-reload
systemctl enable --now stele 2>/dev/null || die "it does not start"
stele status --timeout 10s >/dev/null || die "it is started, and does not serve"
case $(property StatusText) in "serves clients"*) ;; *) die "status $(property StatusText)" ;; esac
is MemoryMax $((320 << 20)) || die "MemoryMax is $(property MemoryMax), and memory 256MiB"
pid=$(property MainPID)
fact() { awk -v k="$1:" '$1 == k { print $2 }' "/proc/$pid/status"; }
[ "$(fact CapEff) $(fact CapBnd) $(fact NoNewPrivs) $(fact Seccomp)" = '0000000000000000 0000000000000000 1 2' ] ||
	die "capabilities $(fact CapEff) $(fact CapBnd), no new privileges $(fact NoNewPrivs), filter $(fact Seccomp)"
[ "$(fact Uid)" = "$(id -u stele)" ] || die "it runs as $(fact Uid)"
root=/proc/$pid/root # as the node sees the files
for file in /etc/stele/x /usr/x /root/x /var/lib/x; do
	! touch "$root$file" 2>/dev/null || die "the node may write $file"
done
touch "$root/var/lib/stele/x" && rm /var/lib/stele/x || die "the node may not write its data"
! nsenter -t "$pid" -m true 2>/dev/null || die "other programs than stele run where the node does"
ok "started: ready, without capabilities, under a filter, with its data alone to write"

stele table create t --family f 2>/dev/null
stele put t r1 f:q=v1 2>/dev/null
sleep 8 # more than WatchdogSec
is NRestarts 0 && is MainPID "$pid" || die "it was restarted while it lived"
until_ 10 journalctl -u stele -q STELE_RPC=127.0.0.1:7106 STELE_NAME=h1 PRIORITY=6 -g 'node serves'
until_ 10 journalctl -u stele -q -p err -g '^error: .*unknown key'
ok "the watchdog is content, and the journal has fields"

# A node that hangs is ended and started again; nothing is lost.
kill -STOP "$pid"
until_ 60 is NRestarts 1
until_ 60 is ActiveState active
[ "$(stele get t r1 | cut -f4)" = v1 ] || die "after the watchdog: $(stele get t r1)"
until_ 10 journalctl -u stele -q -g 'watchdog timeout'
ok "a node that hangs was started again by the watchdog, and has its data"

# One that crashes, too. What the watchdog sends is told with what each goroutine did.
kill -ABRT "$(property MainPID)"
until_ 60 is NRestarts 2
until_ 60 is ActiveState active
[ "$(stele get t r1 | cut -f4)" = v1 ] || die "after a crash"
until_ 10 journalctl -u stele -q -g '^SIGABRT: abort'
until_ 10 journalctl -u stele -q -g 'rpc.*Serve'
ok "a node that was ended was started again, and the journal has what it did"

# An upgrade leaves the node running and people's changes alone.
echo 'STELE_LOG_LEVEL=debug' >>/etc/default/stele
cp /etc/default/stele /etc/stele/stele.yaml /tmp/
pid=$(property MainPID)
dpkg --force-confold -i /mnt/share/2.deb >/tmp/out 2>&1 || { cat /tmp/out; die "upgrade"; }
grep -q 'systemctl restart stele' /tmp/out || die "the upgrade does not say what is next: $(cat /tmp/out)"
is MainPID "$pid" || die "the upgrade restarted the node"
cmp /tmp/stele /etc/default/stele && cmp /tmp/stele.yaml /etc/stele/stele.yaml || die "the upgrade changed people's files"
grep -q 'next version' /etc/default/stele.dpkg-dist || die "what the next version says is not there"
began=$SECONDS
systemctl restart stele || die "it does not start again"
[ $((SECONDS - began)) -lt 60 ] || die "a restart took $((SECONDS - began)) s"
[ "$(stele get t r1 | cut -f4)" = v1 ] || die "after the upgrade"
until_ 10 journalctl -u stele -q -g '^stopped$' "_PID=$pid"
ok "upgraded: the node ran on, /etc is as it was, and a restart took $((SECONDS - began)) s"

# Removed and purged: the node is gone, its data is not.
dpkg -r stele >/tmp/out 2>&1 || die "remove: $(cat /tmp/out)"
[ ! -e "/proc/$(property MainPID)/exe" ] || is MainPID 0 || die "the node of the removed package runs: $(cat /tmp/out)"
[ ! -e /usr/bin/stele ] && [ ! -e /etc/systemd/system/multi-user.target.wants/stele.service ] || die "not all is removed"
[ -e /etc/default/stele ] && [ -e /etc/stele/stele.yaml ] || die "a removal took the configuration"
printf 'token\n' >/etc/stele/token
dpkg -P stele >/tmp/out 2>&1 || die "purge: $(cat /tmp/out)"
grep -q 'the data stays in /var/lib/stele' /tmp/out || die "a purge says nothing of the data: $(cat /tmp/out)"
[ ! -e /etc/default/stele ] && [ ! -e /etc/stele/stele.yaml ] || die "a purge left the configuration"
[ -e /etc/stele/token ] && [ -e /var/lib/stele/identity ] || die "a purge took what people need: $(ls /var/lib/stele)"
ok "removed, purged: the data stays, and what is said of it is true"

# What was purged can be had again, with its data.
dpkg -i /mnt/share/2.deb >/dev/null 2>&1
printf 'memory: 256MiB\nextent_size: 1MiB\n' >/etc/stele/stele.yaml
systemctl start stele || die "it does not start after a purge"
[ "$(stele get t r1 | cut -f4)" = v1 ] || die "after a purge"
ok "installed anew: the data is there"

# Data elsewhere takes a word to systemd, and the node says which.
systemctl stop stele
install -d -o stele -g stele /data1
sed -i '1i data_dir: /data1/stele' /etc/stele/stele.yaml
! systemctl start stele 2>/dev/null || die "it writes to /data1 without leave"
until_ 10 journalctl -u stele -q -g '^hint: .*ReadWritePaths=FOLDER'
printf '[Service]\nReadWritePaths=/data1\n' >/run/systemd/system/stele.service.d/test.conf
systemctl daemon-reload
systemctl restart stele || die "it does not start with leave to write to /data1"
stele status --timeout 10s >/dev/null || die "it does not serve from /data1"
ok "data elsewhere: refused with a hint, and served with leave"

# Data is encrypted by a key of a file, which is replaced, and of a command.
systemctl stop stele
systemctl reset-failed stele 2>/dev/null || true # and the count of starts
keys() { # from standard input
	install -m 640 -o root -g stele /dev/stdin /etc/stele/encryption
}
openssl rand -hex 32 | keys
sed -i 's|^data_dir: .*|data_dir: /data1/encrypted|' /etc/stele/stele.yaml
echo 'encryption_key_file: /etc/stele/encryption' >>/etc/stele/stele.yaml
systemctl start stele || die "it does not start with a key"
stele table create t --family f 2>/dev/null
stele put t r1 f:q=attack-at-dawn 2>/dev/null
systemctl stop stele
! grep -rq attack-at-dawn /data1/encrypted || die "data is in the clear"
stele check /data1/encrypted --encryption-key-command 'cat /etc/stele/encryption' >/tmp/out || die "check: $(cat /tmp/out)"
{ openssl rand -hex 32; cat /etc/stele/encryption; } >/tmp/keys
keys </tmp/keys
systemctl start stele || die "it does not start with another key before its own"
until_ 10 journalctl -u stele -q STELE_FOLDER=/data1/encrypted/blobs STELE_DATA_KEYS=2 -g 'data keys wrapped'
systemctl stop stele
head -n 1 /tmp/keys | keys
systemctl start stele || die "it does not start with the new key alone"
[ "$(stele get t r1 | cut -f4)" = attack-at-dawn ] || die "after the key was replaced"
systemctl stop stele
sed -i 's|^encryption_key_file: .*|encryption_key_command: cat /etc/stele/encryption|' /etc/stele/stele.yaml
! systemctl start stele 2>/dev/null || die "it executes programs without leave"
is ExecMainStatus 4 || die "exit status $(property ExecMainStatus)"
until_ 10 journalctl -u stele -q -g '^hint: .*ExecPaths'
printf '[Service]\nReadWritePaths=/data1\nExecPaths=/usr/bin /usr/lib /usr/lib64\n' >/run/systemd/system/stele.service.d/test.conf
systemctl daemon-reload
systemctl start stele || die "it does not start with a command for the key"
[ "$(stele get t r1 | cut -f4)" = attack-at-dawn ] || die "with a command for the key"
printf '[Service]\nReadWritePaths=/data1\n' >/run/systemd/system/stele.service.d/test.conf
systemctl daemon-reload
rm /etc/stele/encryption /tmp/keys
ok "encrypted: by a key, by another one, and by that of a command, with leave to execute it"

# One that waits for others says so, as long as it takes, and stops at a word.
systemctl stop stele
printf '%s\n' 'data_dir: /data1/fresh' 'memory: 256MiB' 'extent_size: 1MiB' 'join: 127.0.0.2' 'expect: 3' >/etc/stele/stele.yaml
systemctl start --no-block stele
until_ 30 sh -c 'systemctl show -P StatusText stele | grep -q "^starting: waiting for other nodes"'
sleep 3
is ActiveState activating || die "a node without the others is $(property ActiveState)"
began=$SECONDS
systemctl stop stele
[ $((SECONDS - began)) -lt 20 ] && is Result success || die "it did not stop: $(property Result) after $((SECONDS - began)) s"
ok "a node that waits for others says so, and stops"

# What is empty goes.
rm -r /var/lib/stele/* /etc/stele/token
dpkg -P stele >/dev/null 2>&1
[ ! -e /var/lib/stele ] && [ ! -e /etc/stele ] || die "an empty folder stays: $(ls -d /var/lib/stele /etc/stele)"
ok "purged without data: nothing stays"

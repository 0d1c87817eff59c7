#!/usr/bin/env bash
# Builds the Debian package: scripts/package.sh [FOLDER]
# It is for this machine's architecture, or GOARCH; VERSION is of git describe, unless set.
# The same commit gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-dist}
go=${GO:-go}
need() { scripts/need.sh "$@"; }
need 'dpkg-deb --version' dpkg
need 'systemd-analyze --version' systemd

version=${VERSION:-$(git describe --tags --always --dirty)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
case $version in
v[0-9]* | [0-9]*.*) deb=${version#v} deb=${deb//-/+} ;;
*) deb=0~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).${version//-/+} ;;
esac
arch=$("$go" env GOARCH)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root
flags="-s -w -X github.com/steledb/stele/node.version=$version"

# put FILE PATH [MODE]
put() { install -D -m "${3:-644}" "$1" "$root$2"; }

CGO_ENABLED=0 "$go" build -trimpath -ldflags "$flags" -o "$stage/stele" ./cmd/stele
here=$stage/stele
if [ "$arch" != "$("$go" env GOHOSTARCH)" ]; then # what prints pages and completion must run here
	here=$stage/here
	GOARCH='' CGO_ENABLED=0 "$go" build -trimpath -ldflags "$flags" -o "$here" ./cmd/stele
fi
put "$stage/stele" /usr/bin/stele 755
put packaging/stele.service /usr/lib/systemd/system/stele.service
put packaging/stele.sysusers /usr/lib/sysusers.d/stele.conf
put packaging/stele.tmpfiles /usr/lib/tmpfiles.d/stele.conf
put packaging/stele.default /etc/default/stele
install -d -m 755 "$root/etc/stele"
"$here" man "$root/usr/share/man" 2>/dev/null
doc=$root/usr/share/doc/stele
install -d "$doc/examples"
"$here" config example >"$doc/examples/stele.yaml"
for shell in bash zsh fish; do
	"$here" completion $shell >"$stage/$shell"
done
put "$stage/bash" /usr/share/bash-completion/completions/stele
put "$stage/zsh" /usr/share/zsh/vendor-completions/_stele
put "$stage/fish" /usr/share/fish/vendor_completions.d/stele.fish
cp README.md docs/*.md "$doc/"
cp CHANGELOG.md "$doc/changelog"
cp packaging/deb/copyright "$doc/"
printf 'stele (%s) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- The Stele authors <steledb@users.noreply.github.com>  %s\n' \
	"$deb" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" >"$doc/changelog.Debian"
find "$root/usr/share/man" -type f -exec gzip -9n {} +
gzip -9n "$doc"/*.md "$doc/changelog" "$doc/changelog.Debian"
put packaging/deb/lintian-overrides /usr/share/lintian/overrides/stele

# The unit, as it will be: right, and as tight as it was made.
mkdir "$stage/unit"
sed "s,=/usr/bin/stele,=$stage/stele," packaging/stele.service >"$stage/unit/stele.service"
systemd-analyze verify --man=no "$stage/unit/stele.service"
exposure=$(systemd-analyze security --offline=true --no-pager --threshold=12 "$stage/unit/stele.service" | grep Overall) ||
	{ echo "stele.service is more exposed than 1.2: $exposure" >&2; exit 1; }
echo "unit:    ${exposure#→ }"

install -d "$root/DEBIAN"
install -m 755 packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$root/DEBIAN/"
echo /etc/default/stele >"$root/DEBIAN/conffiles"
size=$(du -k -s --apparent-size "$root" | cut -f1)
sed "s/@VERSION@/$deb/; s/@ARCH@/$arch/; s/@SIZE@/$size/" packaging/deb/control >"$root/DEBIAN/control"
(cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
chmod -R u=rwX,go=rX "$root"
mkdir -p "$out"
file=$out/stele_${deb}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$file" >/dev/null
echo "package: $file ($(du -h "$file" | cut -f1))"

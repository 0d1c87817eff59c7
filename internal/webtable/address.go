package webtable

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/idna"

	"github.com/steledb/stele/table"
)

// ErrNoRow means that a URL has no row: it is not http or https, or is malformed.
var ErrNoRow = errors.New("not a web address")

// An Address is a URL in normal form, without its fragment, and its row.
type Address struct {
	URL string
	Row string
}

// AddressOf returns the address of an absolute URL. Errors: ErrNoRow.
func AddressOf(u *url.URL) (Address, error) {
	scheme := strings.ToLower(u.Scheme)
	if scheme != "http" && scheme != "https" || u.Opaque != "" {
		return Address{}, fmt.Errorf("%w: scheme %q", ErrNoRow, u.Scheme)
	}
	host, reversed, err := hostForms(u.Hostname())
	if err != nil {
		return Address{}, err
	}
	port, err := portSuffix(scheme, u.Port())
	if err != nil {
		return Address{}, err
	}
	path := removeDots(normalEscapes(u.EscapedPath(), inPath))
	query := ""
	if u.RawQuery != "" {
		query = "?" + normalEscapes(u.RawQuery, inQuery)
	}
	a := Address{URL: scheme + "://" + host + port + path + query, Row: reversed + port}
	if path != "/" || query != "" {
		a.Row += path + query
	}
	if limits := table.DefaultLimits(); int64(len(a.Row)) > limits.RowKeyBytes {
		return Address{}, fmt.Errorf("%w: %d bytes long", ErrNoRow, len(a.Row))
	}
	return a, nil
}

// hostForms returns a host in normal form, and reversed.
func hostForms(host string) (normal, reversed string, err error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		normal = ip.WithZone("").String()
		if ip.Is6() {
			normal = "[" + normal + "]"
		}
		return normal, normal, nil
	}
	normal = strings.ToLower(strings.TrimSuffix(host, "."))
	if strings.ContainsFunc(normal, func(r rune) bool { return r >= 0x80 }) {
		if normal, err = idna.Lookup.ToASCII(normal); err != nil {
			return "", "", fmt.Errorf("%w: host %q: %v", ErrNoRow, host, err)
		}
	}
	labels := strings.Split(normal, ".")
	for _, label := range labels {
		if label == "" || strings.ContainsFunc(label, func(r rune) bool { return !inHost(r) }) {
			return "", "", fmt.Errorf("%w: host %q", ErrNoRow, host)
		}
	}
	slices.Reverse(labels)
	return normal, strings.Join(labels, "."), nil
}

// inHost reports whether a host name may contain r. Underscores are not valid in host names, but
// such hosts exist.
func inHost(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}

func portSuffix(scheme, port string) (string, error) {
	digits := strings.TrimLeft(port, "0")
	switch {
	case port == "", scheme == "http" && digits == "80", scheme == "https" && digits == "443":
		return "", nil
	case digits == "" || len(digits) > 5:
		return "", fmt.Errorf("%w: port %q", ErrNoRow, port)
	}
	return ":" + digits, nil
}

// normalEscapes percent-encodes bytes that are not allowed, decodes those that need no encoding,
// and writes the remaining escapes in upper case.
func normalEscapes(s string, allowed func(c byte) bool) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = allowed(s[i])
	}
	if plain {
		return s
	}
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(s)+8)
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) {
			if hi, lo := unhex(s[i+1]), unhex(s[i+2]); hi >= 0 && lo >= 0 {
				c = byte(hi<<4 | lo)
				i += 2
				if unreserved(c) {
					out = append(out, c)
				} else {
					out = append(out, '%', hex[c>>4], hex[c&15])
				}
				continue
			}
		}
		if allowed(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// The character classes of RFC 3986. Unreserved characters never need encoding. The others may
// appear unencoded where the grammar of a path or of a query allows them.
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func inPath(c byte) bool  { return unreserved(c) || strings.IndexByte("!$&'()*+,;=:@/", c) >= 0 }
func inQuery(c byte) bool { return inPath(c) || c == '?' }

// removeDots removes "." and ".." segments. path is empty or starts with a slash; the result starts
// with a slash.
func removeDots(path string) string {
	if !strings.Contains(path, "/.") {
		return "/" + strings.TrimPrefix(path, "/")
	}
	var kept []string
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		if s == ".." && len(kept) > 0 {
			kept = kept[:len(kept)-1]
		}
		if s == "." || s == ".." {
			if i == len(segments)-1 {
				kept = append(kept, "") // the result is a directory
			}
			continue
		}
		kept = append(kept, s)
	}
	return "/" + strings.Join(kept, "/")
}

package node_test

import (
	"crypto/x509"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/security/pki"
)

// TestTurnedAwayAtTLS: whose connection is not taken is in refusals.log, with why and from where, each reason once however
// often. Connections that just end are not.
func TestTurnedAwayAtTLS(t *testing.T) {
	t.Parallel()
	f, first, log := secureTestCluster(t, 1)
	f.startAll()
	addr, now := f.nodes[0].RPCAddr(), time.Now()
	probe := good(net.Dial("tcp", addr)) // as a load balancer does
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	foreign := good(pki.NewAuthority(first.Authority.Cluster(), now))
	other := good(pki.NewAuthority("another", now))
	sign := func(a *pki.Authority, name string, from time.Time, ttl time.Duration) *pki.Credential {
		return issue(t, a, func(r []byte) (*x509.Certificate, error) { return a.SignPrincipal(r, name, 1, ttl, from) })
	}
	const tries = 5
	for code, caller := range map[string]*pki.Credential{
		"expired":       sign(first.Authority, "late", now.Add(-48*time.Hour), time.Hour),
		"not_yet_valid": sign(first.Authority, "early", now.Add(48*time.Hour), time.Hour),
		"untrusted":     sign(foreign, "forged", now, time.Hour),
		"other_cluster": sign(other, "far", now, time.Hour),
	} {
		blind := pki.NewEndpoint(caller, pki.Options{}).DialNode("")
		blind.VerifyConnection = nil // it accepts any server
		for i := range tries {
			if got := send(t, addr, blind, []byte{0x94, 0x00, 0x01, 0xa4, 'p', 'i', 'n', 'g', 0x90}); got != "" {
				t.Errorf("%s, try %d: answered %q", code, i, got)
			}
		}
	}
	send(t, addr, nil, []byte("GET / HTTP/1.0\r\n\r\n"))
	broken := good(net.Dial("tcp", addr))
	if err := broken.Close(); err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for line := range strings.Lines(f.audited("refusals.log")) {
		var r struct {
			Kind, From, Action, Code, Name, Text, Outcome string
			Repeated                                      int
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if r.Kind != "anonymous" || r.Name != "" || r.Action != "connect" || r.Outcome != "refused" || !strings.HasPrefix(r.From, "127.0.0.1:") || r.Text == "" {
			t.Errorf("%s", line)
		}
		lines[r.Code] += max(1, r.Repeated)
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "connection rejected") && strings.Contains(line, "EOF") {
			t.Errorf("a connection that just ended is logged: %s", line)
		}
	}
	if !strings.Contains(log.String(), "connection rejected") {
		t.Error("no rejected connection is logged")
	}
	for _, code := range []string{"expired", "not_yet_valid", "untrusted", "other_cluster"} {
		if lines[code] != tries {
			t.Errorf("%d refusals of connections with a certificate that is %s, want %d", lines[code], code, tries)
		}
	}
	if lines["no_tls"] != 1 || len(lines) != 5 {
		t.Errorf("refusals: %v", lines)
	}
}

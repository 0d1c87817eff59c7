package certs

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/steledb/stele/security/pki"
)

// TestLocalNames: a certificate has the names of this host, and leaves out none that the operator gave.
func TestLocalNames(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	all := WithLocal([]string{"a.example", "127.0.0.1"}, "n1")
	for _, want := range []string{"a.example", "localhost", "127.0.0.1", "::1", "n1", host} {
		if i := slices.Index(all, want); i < 0 || slices.Contains(all[i+1:], want) {
			t.Errorf("%q is not there once: %q", want, all)
		}
	}
	if got := WithLocal([]string{"no name!"}, "no name!"); got[0] != "no name!" || slices.Contains(got[1:], "no name!") {
		t.Errorf("what the operator gave is to be refused when it is signed, and a strange --name to be left out: %q", got)
	}
	var many []string
	for i := range pki.HostsMax - 1 {
		many = append(many, fmt.Sprintf("host%d.example", i))
	}
	if got := WithLocal(many, "n1"); len(got) != pki.HostsMax || !slices.Equal(got[:len(many)], many) {
		t.Errorf("of many names: %q", got)
	}
}

package authz

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/steledb/stele/security/pki"
)

// TestWhyTurnedAway: a connection that broke is not recorded as rejected.
func TestWhyTurnedAway(t *testing.T) {
	for _, x := range []struct {
		err  error
		want string
	}{
		{&pki.PeerError{Why: pki.ErrRefused}, "removed"},
		{&pki.PeerError{Why: pki.ErrNoCertificate}, "bad_handshake"},
		{&pki.ManyConnsError{Name: "ann", Max: 1}, "many_connections"},
		{errors.New("tls: invalid signature by the client certificate"), "bad_handshake"},
		{context.DeadlineExceeded, ""},
		{fmt.Errorf("handshake: %w", io.EOF), ""},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, ""},
	} {
		if got := rejectionCode(x.err); got != x.want {
			t.Errorf("%v: %q, want %q", x.err, got, x.want)
		}
	}
}

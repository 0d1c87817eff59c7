package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// CM3: each kind of error has one exit code, however it is wrapped, and also if it comes from a node.
func TestExitCodes(t *testing.T) {
	refused := &client.UnreachableError{Addr: "h:1", Err: &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}}
	for _, c := range []struct {
		err  error
		code int
		text string // in the error, or else in the hint
	}{
		{refused, exitUnreachable, "cannot reach h:1: connection refused"},
		{&client.UnreachableError{Addr: "h:1", Err: &net.DNSError{Err: "no such host"}}, exitUnreachable, "h:1: no such host"},
		{&client.UnreachableError{Addr: "h:1", Err: context.DeadlineExceeded}, exitUnreachable, "no answer in time"},
		{context.DeadlineExceeded, ExitTimeout, "--timeout"},
		{context.Canceled, ExitError, "interrupted"},
		{&client.AmbiguousError{Method: "mutate", Err: errors.New("connection lost")}, ExitError, "outcome unknown"},
		{&client.AmbiguousError{Method: "mutate", Err: context.DeadlineExceeded}, ExitTimeout, "outcome unknown"},
		{&client.AmbiguousError{Method: "mutate", Err: api.FromRPC(api.ToRPC(fmt.Errorf("%w: disk full", api.ErrOutcomeUnknown)))}, ExitError, "outcome unknown"},
		{api.FromRPC(api.ToRPC(api.ErrDiskFull)), ExitDiskFull, "disk space"},
		{syscall.ENOSPC, ExitDiskFull, "disk space"},
		{api.FromRPC(api.ToRPC(&api.OverloadedError{Reason: "memory"})), ExitUnhealthy, "stele status"},
		{api.FromRPC(api.ToRPC(api.ErrNotServing)), ExitUnhealthy, "which tablets are not served, and why"},
		{api.FromRPC(api.ToRPC(api.ErrUnavailable)), ExitUnhealthy, "starting or stopping"},
		{api.FromRPC(api.ToRPC(&api.CorruptError{File: "x", Offset: 5})), ExitUnhealthy, "stele check"},
		{api.FromRPC(api.ToRPC(api.ErrNoTable)), ExitNotFound, "stele table list"},
		{api.FromRPC(api.ToRPC(&table.NoFamilyError{Table: "t", Family: "f"})), ExitNotFound, "stele family set t f"},
		{&table.NoFamilyError{}, ExitNotFound, "stele table describe"},
		{api.FromRPC(api.ToRPC(api.ErrTableExists)), ExitError, "stele family set"},
		{api.FromRPC(api.ToRPC(api.ErrConflict)), ExitError, "and retry"},
		{api.FromRPC(api.ToRPC(&table.NoViewError{Table: "t", View: "v"})), ExitNotFound, "stele table view list t"},
		{table.ErrNoView, ExitNotFound, "stele table view list TABLE"},
		{api.FromRPC(api.ToRPC(table.ErrViewExists)), ExitError, "stele table view drop"},
		{api.FromRPC(api.ToRPC(table.ErrViewChanged)), ExitError, "stele table view describe"},
		{api.FromRPC(api.ToRPC(table.ErrProtected)), ExitError, "stele table protect TABLE/VIEW --off"},
		{&client.AmbiguousError{Method: "remove_node", Err: errors.New("connection lost")}, ExitError, "stele node list"},
		{api.FromRPC(api.ToRPC(api.ErrNodeNotFound)), ExitNotFound, "stele node list"},
		{fmt.Errorf("serve: %w", removal.ErrRemoved), ExitNotFound, "removed from the cluster"},
		{fmt.Errorf("serve: %w", &identity.CorruptError{File: "/d/identity", Reason: "its checksum is wrong"}), ExitUnhealthy, "/d/identity is corrupt"},
		{&client.UnreachableError{Addr: "h:1", Err: client.ErrNoCredential}, ExitDenied, "h:1: the node requires authentication"},
		{&client.UnreachableError{Addr: "h:1", Err: &pki.PeerError{Why: pki.ErrOtherCluster}}, ExitDenied, "the same cluster"},
		{&client.UnreachableError{Addr: "h:1", Err: &pki.PeerError{Why: pki.ErrExpired}}, ExitDenied, "clocks"},
		{&client.UnreachableError{Addr: "h:1", Err: &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}}, ExitDenied, "h:1: the node rejects the credential"},
		{&client.UnreachableError{Addr: "h:1", Err: tls.RecordHeaderError{Msg: "no TLS"}}, ExitDenied, "h:1: the node has no certificate"},
		{&client.UnreachableError{Addr: "h:1", Err: tls.RecordHeaderError{Msg: "no TLS", RecordHeader: [5]byte([]byte("HTTP/"))}}, exitUnreachable, "h:1 is not the port for clients"},
		{&client.UnreachableError{Addr: "h:1", Err: tls.RecordHeaderError{Msg: "no TLS", RecordHeader: [5]byte{0, 0, 0x12, 4}}}, exitUnreachable, "7106 unless it is set"},
		{fmt.Errorf("show it: %w", client.ErrUnauthenticated), ExitDenied, "--credential"},
		{fmt.Errorf("may not: %w", client.ErrPermission), ExitDenied, "to grant it"},
		{api.FromRPC(api.ToRPC(&api.TokenRefusedError{Reason: api.TokenSpent, Text: "it is spent"})), ExitDenied, "which nodes have used this one"},
		{api.FromRPC(api.ToRPC(&api.TokenRefusedError{Reason: api.TokenTaken, Text: "it is taken"})), ExitDenied, "it is taken"},
		{api.FromRPC(api.ToRPC(&api.TokenRefusedError{Reason: api.TokenUnknown, Text: "it is unknown"})), ExitDenied, "stele token list"},
		{api.FromRPC(api.ToRPC(&api.NodeInUseError{Node: "n1", Reason: "it is alive"})), ExitError, "--force"},
		{api.FromRPC(api.ToRPC(api.ErrStaleEpoch)), ExitError, "another master"},
		{api.FromRPC(api.ToRPC(api.ErrNotNumber)), ExitError, "counter"},
		{api.FromRPC(api.ToRPC(&api.RowTooLargeError{Limit: 5})), ExitError, "--column"},
		{api.FromRPC(api.ToRPC(&table.LimitError{What: "value bytes", Limit: 1, Got: 2})), ExitUsage, "value bytes"},
		{api.FromRPC(api.ToRPC(&table.NameError{What: "table name", Name: "a b", Reason: "has a space"})), ExitUsage, ""},
		{&table.FilterError{Path: "chain[0]", Reason: "bad"}, ExitUsage, "RE2"},
		{table.ErrBadRowKey, ExitUsage, ""},
		{vfs.ErrLocked, ExitError, "stop it first"},
		{syscall.EADDRINUSE, ExitError, "--listen"},
		{fs.ErrNotExist, ExitNotFound, ""},
		{fs.ErrPermission, ExitError, ""},
		{errors.New("anything else"), ExitError, "anything else"},
		{Usagef("do so", "wrong"), ExitUsage, "do so"},
		{NotFoundf("", "not there"), ExitNotFound, "not there"},
		{Damagedf("corrupt"), ExitUnhealthy, "corrupt"},
		{WithHint(fs.ErrNotExist, "look elsewhere"), ExitNotFound, "look elsewhere"},
	} {
		for _, err := range []error{c.err, fmt.Errorf("while trying: %w", c.err), errors.Join(c.err, nil)} {
			a, _, errs := testApp()
			if code := a.Report(err); code != c.code {
				t.Errorf("%v: exit code %d, want %d", err, code, c.code)
			}
			if !strings.HasPrefix(errs.String(), "error: ") || !strings.Contains(errs.String(), c.text) {
				t.Errorf("%v is reported as %q, want %q in it", err, errs, c.text)
			}
		}
	}
	a, _, errs := testApp()
	if a.Report(nil) != ExitOK || a.Report(SilentExit(ExitUnhealthy)) != ExitUnhealthy || errs.Len() > 0 {
		t.Errorf("printed %q", errs)
	}
}

// Control characters in errors of a node do not reach the terminal.
func TestErrorsAreEscaped(t *testing.T) {
	a, _, errs := testApp()
	a.Report(errors.New("bad \x1b[2J name\nsecond line"))
	if want := "error: bad \\x1b[2J name\nsecond line\n"; errs.String() != want {
		t.Errorf("%q, want %q", errs, want)
	}
}

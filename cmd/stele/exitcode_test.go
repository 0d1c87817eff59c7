package main

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
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// C3: each kind of error has one exit code, however it is wrapped, and also if it comes from a node.
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
		{context.DeadlineExceeded, exitTimeout, "--timeout"},
		{context.Canceled, exitError, "interrupted"},
		{&client.AmbiguousError{Method: "mutate", Err: errors.New("connection lost")}, exitError, "outcome unknown"},
		{&client.AmbiguousError{Method: "mutate", Err: context.DeadlineExceeded}, exitTimeout, "outcome unknown"},
		{&client.AmbiguousError{Method: "mutate", Err: api.FromRPC(api.ToRPC(fmt.Errorf("%w: disk full", api.ErrOutcomeUnknown)))}, exitError, "outcome unknown"},
		{api.FromRPC(api.ToRPC(api.ErrDiskFull)), exitDiskFull, "disk space"},
		{syscall.ENOSPC, exitDiskFull, "disk space"},
		{api.FromRPC(api.ToRPC(&api.OverloadedError{Reason: "memory"})), exitUnhealthy, "stele status"},
		{api.FromRPC(api.ToRPC(api.ErrNotServing)), exitUnhealthy, "which tablets are not served, and why"},
		{api.FromRPC(api.ToRPC(api.ErrUnavailable)), exitUnhealthy, "starting or stopping"},
		{api.FromRPC(api.ToRPC(&api.CorruptError{File: "x", Offset: 5})), exitUnhealthy, "stele check"},
		{api.FromRPC(api.ToRPC(api.ErrNoTable)), exitNotFound, "stele table list"},
		{api.FromRPC(api.ToRPC(&table.NoFamilyError{Table: "t", Family: "f"})), exitNotFound, "stele family set t f"},
		{&table.NoFamilyError{}, exitNotFound, "stele table describe"},
		{api.FromRPC(api.ToRPC(api.ErrTableExists)), exitError, "stele family set"},
		{api.FromRPC(api.ToRPC(api.ErrConflict)), exitError, "and retry"},
		{&client.AmbiguousError{Method: "remove_node", Err: errors.New("connection lost")}, exitError, "stele node list"},
		{api.FromRPC(api.ToRPC(api.ErrNodeNotFound)), exitNotFound, "stele node list"},
		{fmt.Errorf("serve: %w", removal.ErrRemoved), exitNotFound, "removed from the cluster"},
		{nodeFailure(fmt.Errorf("serve: %w", removal.ErrRemoved)), exitNotFound, "removed from the cluster"},
		{nodeFailure(&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}), exitError, "open x"},
		{nodeFailure(fmt.Errorf("serve: %w: yesterday", node.ErrExpired)), exitDenied, "has expired"},
		{nodeFailure(api.FromRPC(api.ToRPC(&api.TokenRefusedError{Reason: api.TokenSpent, Text: "it is spent"}))), exitDenied, "which nodes have used this one"},
		{nodeFailure(&pki.PeerError{Why: pki.ErrExpired}), exitError, "clocks"}, // of a node that renews its certificate just now
		{nodeFailure(fmt.Errorf("open the log: %w", client.ErrPermission)), exitError, "to grant it"},
		{&client.UnreachableError{Addr: "h:1", Err: client.ErrNoCredential}, exitDenied, "h:1: the node requires authentication"},
		{&client.UnreachableError{Addr: "h:1", Err: &pki.PeerError{Why: pki.ErrOtherCluster}}, exitDenied, "the same cluster"},
		{&client.UnreachableError{Addr: "h:1", Err: &pki.PeerError{Why: pki.ErrExpired}}, exitDenied, "clocks"},
		{&client.UnreachableError{Addr: "h:1", Err: &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}}, exitDenied, "h:1: the node rejects the credential"},
		{&client.UnreachableError{Addr: "h:1", Err: tls.RecordHeaderError{Msg: "no TLS"}}, exitDenied, "h:1: the node has no certificate"},
		{fmt.Errorf("show it: %w", client.ErrUnauthenticated), exitDenied, "--credential"},
		{fmt.Errorf("may not: %w", client.ErrPermission), exitDenied, "to grant it"},
		{api.FromRPC(api.ToRPC(&api.TokenRefusedError{Reason: api.TokenSpent, Text: "it is spent"})), exitDenied, "which nodes have used this one"},
		{api.FromRPC(api.ToRPC(&api.TokenRefusedError{Reason: api.TokenTaken, Text: "it is taken"})), exitDenied, "it is taken"},
		{api.FromRPC(api.ToRPC(&api.TokenRefusedError{Reason: api.TokenUnknown, Text: "it is unknown"})), exitDenied, "stele token list"},
		{nodeFailure(syscall.ENOSPC), exitDiskFull, "disk space"},
		{api.FromRPC(api.ToRPC(&api.NodeInUseError{Node: "n1", Reason: "it is alive"})), exitError, "--force"},
		{api.FromRPC(api.ToRPC(api.ErrStaleEpoch)), exitError, "another master"},
		{api.FromRPC(api.ToRPC(api.ErrNotNumber)), exitError, "counter"},
		{api.FromRPC(api.ToRPC(&api.RowTooLargeError{Limit: 5})), exitError, "--column"},
		{api.FromRPC(api.ToRPC(&table.LimitError{What: "value bytes", Limit: 1, Got: 2})), exitUsage, "value bytes"},
		{api.FromRPC(api.ToRPC(&table.NameError{What: "table name", Name: "a b", Reason: "has a space"})), exitUsage, ""},
		{&table.FilterError{Path: "chain[0]", Reason: "bad"}, exitUsage, "RE2"},
		{table.ErrBadRowKey, exitUsage, ""},
		{vfs.ErrLocked, exitError, "stop it first"},
		{syscall.EADDRINUSE, exitError, "--listen"},
		{fs.ErrNotExist, exitNotFound, ""},
		{fs.ErrPermission, exitError, ""},
		{errors.New("anything else"), exitError, "anything else"},
		{usagef("do so", "wrong"), exitUsage, "do so"},
		{notFoundf("", "not there"), exitNotFound, "not there"},
		{damagedf("corrupt"), exitUnhealthy, "corrupt"},
		{withHint(fs.ErrNotExist, "look elsewhere"), exitNotFound, "look elsewhere"},
	} {
		for _, err := range []error{c.err, fmt.Errorf("while trying: %w", c.err), errors.Join(c.err, nil)} {
			a, _, errs := testApp()
			if code := a.report(err); code != c.code {
				t.Errorf("%v: exit code %d, want %d", err, code, c.code)
			}
			if !strings.HasPrefix(errs.String(), "error: ") || !strings.Contains(errs.String(), c.text) {
				t.Errorf("%v is reported as %q, want %q in it", err, errs, c.text)
			}
		}
	}
	a, _, errs := testApp()
	if a.report(nil) != exitOK || a.report(silentExit(exitUnhealthy)) != exitUnhealthy || errs.Len() > 0 {
		t.Errorf("printed %q", errs)
	}
}

// Control characters in errors of a node do not reach the terminal.
func TestErrorsAreEscaped(t *testing.T) {
	a, _, errs := testApp()
	a.report(errors.New("bad \x1b[2J name\nsecond line"))
	if want := "error: bad \\x1b[2J name\nsecond line\n"; errs.String() != want {
		t.Errorf("%q, want %q", errs, want)
	}
}

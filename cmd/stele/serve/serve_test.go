package serve

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
	"github.com/steledb/stele/cmd/stele/config"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/security/pki"
)

// The invitation is a valid command line.
func TestInvitation(t *testing.T) {
	const flags = "--data-dir /d1 --data-dir /d2 --security-dir /keys --listen 10.0.0.5:7206 --gossip 10.0.0.5:7207 --name a"
	const want = "stele serve --data-dir /d1 --data-dir /d2 --listen 0.0.0.0:7206 --gossip 0.0.0.0:7207 --join 10.0.0.5:7206 --token-file token"
	a, _, _ := clitest.New()
	serve := serveCommand(a)
	if err := serve.ParseFlags(strings.Fields("--config " + os.DevNull + " " + flags)); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(serve, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := invitation(c, "10.0.0.5:7206"); got != want {
		t.Errorf("invitation %q, want %q", got, want)
	}
	if err := serveCommand(a).ParseFlags(strings.Fields(want)[2:]); err != nil {
		t.Errorf("invitation %q: %v", want, err)
	}
}

// The exit code of a failed node decides whether systemd restarts it.
func TestNodeFailureExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{nodeFailure(fmt.Errorf("serve: %w", removal.ErrRemoved)), cli.ExitNotFound, "removed from the cluster"},
		{nodeFailure(&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}), cli.ExitError, "open x"},
		{nodeFailure(fmt.Errorf("serve: %w: yesterday", enrol.ErrExpired)), cli.ExitDenied, "has expired"},
		{nodeFailure(api.FromRPC(api.ToRPC(&api.TokenRefusedError{Reason: api.TokenSpent, Text: "it is spent"}))), cli.ExitDenied, "which nodes have used this one"},
		{nodeFailure(&pki.PeerError{Why: pki.ErrExpired}), cli.ExitError, "clocks"}, // of a node that renews its certificate just now
		{nodeFailure(fmt.Errorf("open the log: %w", client.ErrPermission)), cli.ExitError, "to grant it"},
		{nodeFailure(syscall.ENOSPC), cli.ExitDiskFull, "disk space"},
	} {
		a, _, errs := clitest.New()
		if code := a.Report(c.err); code != c.code || !strings.Contains(errs.String(), c.text) {
			t.Errorf("%v: exit code %d, want %d, reported as %q, want %q in it", c.err, code, c.code, errs, c.text)
		}
	}
}

package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
	"github.com/steledb/stele/node"
)

// notified returns the socket of a fake supervisor.
func notified(t *testing.T) *net.UnixConn {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return c
}

func nextState(t *testing.T, c *net.UnixConn, within time.Duration) string {
	t.Helper()
	b := make([]byte, 4096)
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	n, err := c.Read(b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// An invalid is a node that a test can make fail.
type fakeNode struct{ failed atomic.Pointer[error] }

func (p *fakeNode) Alive(context.Context) error {
	if err := p.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (p *fakeNode) Health() string { return "" }

func TestSupervisor(t *testing.T) {
	c := notified(t)
	t.Setenv("WATCHDOG_USEC", strconv.Itoa(150_000))
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	s := newSupervisor(slog.New(slog.DiscardHandler))
	defer s.close()
	s.waiting("a leader")
	s.waiting("a leader") // sent once
	if got := nextState(t, c, time.Minute); got != "STATUS=starting: waiting for a leader" {
		t.Errorf("start: %q", got)
	}
	p := &fakeNode{}
	s.ready(p, "serves")
	if got := nextState(t, c, time.Minute); got != "READY=1\nSTATUS=serves" {
		t.Errorf("ready: %q", got)
	}
	for range 2 {
		if got := nextState(t, c, time.Minute); got != "WATCHDOG=1" {
			t.Errorf("alive: %q", got)
		}
	}
	// A failed node sends no watchdog notification, and its status once.
	failed := errors.New("no sign of life\nfrom it")
	p.failed.Store(&failed)
	got := nextState(t, c, time.Minute)
	for got == "WATCHDOG=1" { // one may have been in flight
		got = nextState(t, c, time.Minute)
	}
	if got != "STATUS=failed: no sign of life; from it" {
		t.Errorf("ill: %q", got)
	}
	if got := nextState(t, c, 300*time.Millisecond); got != "" {
		t.Errorf("ill, later: %q", got)
	}
	s.stopping(10 * time.Second)
	s.stopping(time.Second)
	if got := nextState(t, c, time.Minute); got != "STOPPING=1\nSTATUS=stopping: finishing requests\nEXTEND_TIMEOUT_USEC=15000000" {
		t.Errorf("stop: %q", got)
	}
	if got := nextState(t, c, time.Minute); got != "WATCHDOG=1" {
		t.Errorf("while it stops: %q", got)
	}
	s.status("more")
	if got := nextState(t, c, time.Minute); got != "WATCHDOG=1" {
		t.Errorf("while it stops, later: %q", got)
	}
}

// A supervisor that does not read holds up neither the node nor its stop.
func TestSupervisorDoesNotRead(t *testing.T) {
	c := notified(t)
	s := newSupervisor(slog.New(slog.DiscardHandler))
	for range 1000 { // more than the socket holds
		if _, err := s.notify("WATCHDOG=1"); err != nil {
			break
		}
	}
	began := time.Now()
	s.ready(&fakeNode{}, "serves")
	s.stopping(time.Second)
	s.close()
	if took := time.Since(began); took > 3*notifyTimeout {
		t.Errorf("the stop took %v", took)
	}
	if got := nextState(t, c, time.Minute); got != "WATCHDOG=1" {
		t.Errorf("what the supervisor reads later begins with %q", got)
	}
}

// A node under systemd sends READY, WATCHDOG and STOPPING.
func TestServeIsSupervised(t *testing.T) {
	c := notified(t)
	t.Setenv("WATCHDOG_USEC", strconv.Itoa(600_000))
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a, _, errs := clitest.New()
	ended := make(chan int, 1)
	go func() {
		ended <- a.Run(ctx, groups(a), strings.Fields("serve --config "+os.DevNull+" --listen 127.0.0.1:0 --gossip off --http off --bigtable off --memory 256MiB --drain-timeout 5s --data-dir "+t.TempDir()))
	}()
	var states []string
	await := func(part string) {
		t.Helper()
		for {
			state := nextState(t, c, time.Minute)
			if state == "" {
				t.Fatalf("no %q among %q", part, states)
			}
			if states = append(states, state); strings.Contains(state, part) {
				return
			}
		}
	}
	await("STATUS=starting: waiting for the block store")
	await("READY=1\nSTATUS=serves clients and nodes at 127.0.0.1:")
	await("WATCHDOG=1")
	cancel()
	await("STOPPING=1\n")
	if last := states[len(states)-1]; !strings.Contains(last, "EXTEND_TIMEOUT_USEC=40000000") { // 5 s, closeTimeout, stopMargin
		t.Errorf("stopping: %q", last)
	}
	if code := <-ended; code != cli.ExitOK {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// stuck is a node whose Close hangs.
type stuck struct{ closed chan context.Context }

func (s stuck) Close(ctx context.Context) error {
	s.closed <- ctx
	select {}
}

func (s stuck) Err() error { return nil }

// A start and a stop that hang return after their bounds.
func TestStopIsBounded(t *testing.T) {
	n := stuck{make(chan context.Context, 1)}
	err := stopNode(n, 10*time.Millisecond, 50*time.Millisecond, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "did not close within 50ms; the next start recovers") {
		t.Errorf("a node that does not close: %v", err)
	}
	if ctx := <-n.closed; !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		t.Errorf("the context of Close ended with %v", context.Cause(ctx))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := startWithin(ctx, 50*time.Millisecond, func() (*node.Node, error) { select {} }); err == nil || !strings.Contains(err.Error(), "did not return within 50ms") {
		t.Errorf("a start that hangs: %v", err)
	}
}

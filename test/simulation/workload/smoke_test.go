package workload_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/testport"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/test/simulation/judge"
	"github.com/steledb/stele/test/simulation/workload"
)

// loopback is a cluster of nodes in this process, with real time and connections.
type loopback struct {
	addrs []string
	names []string
	admin *pki.Credential // nil in an open cluster
}

// startLoopback starts n nodes. A secured cluster has one node.
func startLoopback(t *testing.T, n int, secured bool) *loopback {
	t.Helper()
	l := &loopback{}
	var cfgs []node.Config
	for i := range n {
		addr, err := testport.New()
		if err != nil {
			t.Fatal(err)
		}
		l.addrs, l.names = append(l.addrs, addr), append(l.names, fmt.Sprintf("n%d", i+1))
		cfg := node.Config{DataDirs: []string{t.TempDir()}, Listen: addr, Gossip: "127.0.0.1:0", HTTP: "off", MemoryBytes: 256 << 20, ExtentBytes: 8 << 20, Name: l.names[i], VoterStable: time.Second}
		if secured {
			cfg.Security = filepath.Join(cfg.DataDirs[0], certs.FolderName)
			if l.admin, err = enrol.Initialise(cfg.DataDirs, cfg.Security, []string{"127.0.0.1"}, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if os.Getenv("STELE_SMOKE_LOG") != "" {
			cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", cfg.Name)
		}
		cfgs = append(cfgs, cfg)
	}
	var all sync.WaitGroup
	for i := range cfgs {
		if n > 1 {
			cfgs[i].Expect, cfgs[i].Join = n, l.addrs
		}
		all.Go(func() {
			started, err := node.Start(t.Context(), cfgs[i])
			if err != nil {
				t.Errorf("start %s: %v", cfgs[i].Name, err)
				return
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				if err := started.Close(ctx); err != nil {
					t.Errorf("stop %s: %v", cfgs[i].Name, err)
				}
			})
		})
	}
	if all.Wait(); t.Failed() {
		t.FailNow()
	}
	return l
}

func (l *loopback) config(as *pki.Credential) client.Config {
	if as == nil {
		as = l.admin
	}
	return client.Config{Credential: as}
}

func (l *loopback) Open(ctx context.Context, n int, as *pki.Credential) (*client.Client, error) {
	return client.Open(ctx, l.addrs[n%len(l.addrs)], l.config(as))
}

func (l *loopback) OpenToken(ctx context.Context, n int, as token.Token) (*client.Client, error) {
	return client.Open(ctx, l.addrs[n%len(l.addrs)], client.Config{Token: as})
}

func (l *loopback) OpenLocks(int) (*session.Client, error) {
	cfg := session.Config{Locator: session.Addresses(l.addrs), Logger: slog.New(slog.DiscardHandler)}
	if l.admin != nil {
		endpoint := pki.NewEndpoint(l.admin, pki.Options{})
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return endpoint.Dial(ctx, "", addr) }
	}
	return session.NewClient(cfg)
}

func (l *loopback) Nodes() []string { return l.names }
func (l *loopback) Up(string) bool  { return true }

// TestSmoke runs all features for some seconds on a cluster without faults, and judges them.
func TestSmoke(t *testing.T) {
	for _, secured := range []bool{false, true} {
		t.Run(fmt.Sprintf("secured=%t", secured), func(t *testing.T) {
			t.Parallel()
			nodes := 3
			if secured {
				nodes = 1
			}
			smoke(t, startLoopback(t, nodes, secured), secured)
		})
	}
}

func smoke(t *testing.T, l *loopback, secured bool) {
	plan := workload.NewPlan(testseed.New(t), secured, 8)
	plan.Features = workload.AllFeatures(secured)
	plan.Pace, plan.Rest, plan.EraLength, plan.Slow = 5*time.Millisecond, 0, time.Second, 50*time.Millisecond
	w := workload.New(l, plan)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	if err := w.Setup(ctx); err != nil {
		t.Fatal(err)
	}
	w.Run(whileUseful(ctx, w.History()))
	if err := w.Final(ctx); err != nil {
		t.Error(err)
	}
	c, err := l.Open(ctx, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	r := judge.Judge(w.History().Ops(), judge.Options{})
	t.Logf("judged %d operations, %d rows, %d files, %d locks in %v", len(w.History().Ops()), r.Rows, r.Files, r.Locks, time.Since(start))
	for _, v := range append(r.Violations, checkMetadata(ctx, t, c, w.History())...) {
		t.Errorf("%v", v)
	}
	for _, what := range r.Undecided {
		t.Errorf("undecided: %s", what)
	}
	var counts strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(r.Outcomes)) {
		fmt.Fprintf(&counts, " %s %d,", kind, r.Outcomes[kind])
	}
	t.Log(counts.String())
	if kind := missing(w.History().Ops()); kind != "" {
		t.Errorf("no operation is %s ok", kind)
	}
}

// whileUseful returns a context that lasts 5 s, and longer until an operation of each kind of mustSucceed succeeds.
func whileUseful(ctx context.Context, h *workload.History) context.Context {
	running, stop := context.WithTimeout(ctx, time.Minute)
	go func() {
		defer stop()
		time.Sleep(5 * time.Second)
		for running.Err() == nil && missing(h.Ops()) != "" {
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return running
}

var mustSucceed = []workload.Kind{
	workload.Read, workload.Write, workload.ScanAll, workload.Check, workload.Modify, workload.SetFile, workload.HoldLock,
	workload.CreateBackup, workload.ScanRestored,
}

// missing returns a kind of mustSucceed of which no operation has succeeded, or "".
func missing(ops []workload.Op) workload.Kind {
	for _, kind := range mustSucceed {
		if !slices.ContainsFunc(ops, func(op workload.Op) bool { return op.Kind == kind && op.Outcome == workload.OK }) {
			return kind
		}
	}
	return ""
}

// checkMetadata checks METADATA until it is right, for some seconds: servers may still finish splits
// and merges.
func checkMetadata(ctx context.Context, t *testing.T, c *client.Client, h *workload.History) (bad []judge.Violation) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		rows, err := workload.ReadMetadata(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		tables, err := c.Tables().List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		bad = judge.Check(rows, tables, h.Now())
		for _, schema := range tables {
			info, err := c.Tables().Describe(ctx, schema.Name)
			if err != nil {
				t.Fatal(err)
			}
			bad = append(bad, judge.CheckServed(schema.Name, judge.ServedOf(info.Tablets), h.Now())...)
		}
		if len(bad) == 0 {
			return nil
		}
	}
	return bad
}

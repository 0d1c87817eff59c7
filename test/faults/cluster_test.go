package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	clientapi "github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/netlab"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
)

const (
	rpcPort    = 7106
	gossipPort = 7107
	judgePort  = 7200
)

// cluster is a set of nodes on the hosts of a lab.
type cluster struct {
	t     *testing.T
	lab   *netlab.Lab
	dir   string // of data directories, logs and histories
	nodes []*node
	// settings are additional flags of all nodes.
	settings []string
	program  string
	bugs     string // planted bugs of the program
	keys     *keys  // of its nodes, once created
}

// node is a process of the program, or successive ones, on a host.
type node struct {
	c      *cluster
	number int
	host   *netlab.Host
	args   []string // of this node only
	disks  []*disk  // of its data directories; if empty, it has one on the machine's disk
	keys   *keys
	id     string // once known
	proc   *netlab.Process
	starts int
	// shouldRun is set while the process should run; if it exits meanwhile, it has failed.
	shouldRun bool
	paused    bool
	// mayExit is set if the process may exit because of a fault.
	mayExit bool

	mu   sync.Mutex
	conn *client.Client // kept across calls
	at   string         // address of conn
}

// newCluster creates a cluster without starting its nodes. Its directory is kept if the test fails.
func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "stele-faults-run-")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: dir, program: program()}
	t.Cleanup(func() { // runs last, after the lab's
		if !t.Failed() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
			return
		}
		for _, n := range c.nodes {
			_ = os.RemoveAll(filepath.Join(n.data(), "blobs")) // large, and not needed for the analysis
		}
		t.Logf("logs, histories and data: %s", dir)
	})
	c.lab = netlab.New(t, nodes)
	for i, h := range c.lab.Hosts() {
		c.nodes = append(c.nodes, &node{c: c, number: i + 1, host: h})
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.shouldRun = false
			n.disconnect()
		}
	})
	return c
}

// formed returns a cluster whose nodes all vote.
func formed(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := newCluster(t, nodes)
	c.form()
	return c
}

// form starts all nodes and waits until they form one cluster.
func (c *cluster) form() {
	c.t.Helper()
	c.prepare()
	for _, n := range c.nodes {
		n.start()
	}
	c.settled(90*time.Second, min(len(c.nodes), 5))
}

// prepare gives all nodes keys, and the flags with which they form one cluster. The first founds
// it.
func (c *cluster) prepare() {
	c.t.Helper()
	c.keys = c.secure(c.nodes...)
	for _, n := range c.nodes {
		n.args = []string{"--join", strings.Join(c.addresses(), ",")}
	}
}

func (c *cluster) addresses() (all []string) {
	for _, n := range c.nodes {
		all = append(all, n.address())
	}
	return all
}

func (n *node) String() string  { return fmt.Sprintf("n%d", n.number) }
func (n *node) address() string { return n.host.Port(rpcPort) }
func (n *node) data() string    { return filepath.Join(n.c.dir, n.String(), "data") }
func (n *node) logFile() string { return filepath.Join(n.c.dir, n.String()+".log") }
func (n *node) log() string     { b, _ := os.ReadFile(n.logFile()); return string(b) }

// start starts the process.
func (n *node) start() {
	n.c.t.Helper()
	out, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.c.t.Fatal(err)
	}
	defer out.Close()
	n.starts++
	fmt.Fprintf(out, "--- start %d at %s\n", n.starts, n.address())
	if _, err := os.Stat(n.clockFile()); err != nil {
		n.setClock(0)
	}
	args := []string{
		"serve", "--name", n.String(), "--memory", "256MiB", "--reserve", "64MiB", "--extent-size", "4MiB",
		"--listen", n.address(), "--gossip", n.host.Port(gossipPort), "--http", "off", "--bigtable", "off",
		"--voter-stable", "1s", "--drain-timeout", "10s", "--log-format", "text", "--log-level", "debug",
	}
	for _, f := range n.folders() {
		args = append(args, "--data-dir", f)
	}
	cmd := exec.Command(n.c.program, slices.Concat(args, n.c.settings, n.args)...)
	// without STELE_… variables, which configure nodes
	cmd.Env = []string{"HOME=" + n.c.dir, "TMPDIR=" + n.c.dir, "PATH=" + os.Getenv("PATH"), "GORACE=halt_on_error=1", clockEnv + "=" + n.clockFile()}
	if n.c.bugs != "" {
		cmd.Env = append(cmd.Env, bugEnv+"="+n.c.bugs)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if n.proc, err = n.host.Start(cmd); err != nil {
		n.c.t.Fatal(err)
	}
	n.shouldRun = true
}

// folders returns the data directories.
func (n *node) folders() []string {
	if len(n.disks) == 0 {
		return []string{n.data()}
	}
	var all []string
	for _, d := range n.disks {
		all = append(all, d.folder())
	}
	return all
}

// kill kills the process. Data that it wrote without syncing is kept: see losePower.
func (n *node) kill() {
	n.shouldRun, n.paused = false, false
	n.proc.Kill()
}

// stop stops the process cleanly.
func (n *node) stop() {
	n.c.t.Helper()
	if err := n.stopWithin(faultStop); err != nil {
		n.c.t.Errorf("stop %v: exited with %v", n, err)
	}
}

// stopWithin stops the process within the given time and returns its exit error.
func (n *node) stopWithin(most time.Duration) error {
	n.c.t.Helper()
	n.shouldRun = false
	if err := n.proc.Signal(syscall.SIGTERM); err != nil {
		n.c.t.Fatal(err)
	}
	select {
	case <-n.proc.Done():
		return n.proc.Err()
	case <-time.After(most):
		n.c.t.Errorf("%v did not stop in %v", n, most)
		n.stacks()
	}
	return nil
}

// stacks makes the process log its goroutines, and kills it.
func (n *node) stacks() {
	_ = n.proc.Signal(syscall.SIGQUIT) // it is killed in any case
	select {
	case <-n.proc.Done():
	case <-time.After(5 * time.Second):
	}
	n.kill()
}

func (n *node) pause() {
	n.c.t.Helper()
	if err := n.proc.Pause(); err != nil {
		n.c.t.Fatal(err)
	}
	n.paused = true
}

func (n *node) resume() {
	n.c.t.Helper()
	if err := n.proc.Resume(); err != nil {
		n.c.t.Fatal(err)
	}
	n.paused = false
}

// ended returns an error if a node that should run has exited.
func (c *cluster) ended() error {
	for _, n := range c.nodes {
		if !n.shouldRun || n.mayExit {
			continue
		}
		select {
		case <-n.proc.Done():
			return fmt.Errorf("%v ended by itself: %v\n%s", n, n.proc.Err(), tail(n.log(), 15))
		default:
		}
	}
	return nil
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// connect returns a client of this node only.
func (n *node) connect(ctx context.Context) (*client.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn != nil && n.at == n.address() {
		return n.conn, nil
	}
	conn, err := client.Open(ctx, n.address(), n.keys.as(client.Config{DialTimeout: time.Second, RetryTimeMax: -1}))
	if err != nil {
		return nil, err
	}
	n.conn, n.at = conn, n.address()
	return conn, nil
}

func (n *node) disconnect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn != nil {
		_ = n.conn.Close()
		n.conn = nil
	}
}

// callTimeout bounds a call to a node that may be paused or disconnected.
const callTimeout = 2 * time.Second

func (n *node) status() (*client.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	conn, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	s, err := conn.Status(ctx)
	if err == nil && s.NodeID != "" {
		n.id = s.NodeID
	}
	return s, err
}

func (n *node) raft() (*client.RaftStatus, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	conn, err := n.connect(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Nodes().RaftStatus(ctx)
}

// leader returns the node that leads the lock service, or nil.
func (c *cluster) leader() *node {
	type found struct {
		n    *node
		term uint64
	}
	all := make(chan found, len(c.nodes))
	for _, n := range c.nodes {
		go func() {
			f := found{}
			if n.shouldRun && !n.paused {
				if s, err := n.status(); err == nil && s.Leader {
					if r, err := n.raft(); err == nil {
						f = found{n, r.Term}
					}
				}
			}
			all <- f
		}()
	}
	var best found
	for range c.nodes { // a deposed leader may not know it yet
		if f := <-all; f.n != nil && f.term >= best.term {
			best = f
		}
	}
	return best.n
}

// settled waits until all running nodes are one cluster with the given number of voters, all alive,
// and agree on leader and master.
func (c *cluster) settled(atMost time.Duration, voters int) {
	c.t.Helper()
	start := time.Now()
	if err := await(atMost, func() error { return c.unsettled(voters) }); err != nil {
		if ended := c.ended(); ended != nil {
			c.t.Fatal(ended)
		}
		c.t.Fatalf("not settled after %v: %v", atMost, err)
	}
	c.t.Logf("settled in %v", time.Since(start).Round(10*time.Millisecond))
}

// unsettled returns an error that describes what is missing.
func (c *cluster) unsettled(voters int) error {
	var cluster, leader, master string
	for _, n := range c.nodes {
		if !n.shouldRun {
			continue
		}
		s, err := n.status()
		if err != nil {
			return fmt.Errorf("%v: %w", n, err)
		}
		if !s.Ready {
			return fmt.Errorf("%v is not ready: %s", n, s.Reason)
		}
		r, err := n.raft()
		if err != nil {
			return fmt.Errorf("%v: %w", n, err)
		}
		if cluster == "" {
			cluster, leader, master = s.Cluster, r.Leader, r.Master
		}
		switch {
		case s.Cluster != cluster:
			return fmt.Errorf("%v belongs to cluster %s, the first node to %s", n, s.Cluster, cluster)
		case r.Leader == "" || r.Leader != leader:
			return fmt.Errorf("%v reports leader %q, the first node %q", n, r.Leader, leader)
		case r.Master == "" || r.Master != master:
			return fmt.Errorf("%v reports master %q, the first node %q", n, r.Master, master)
		case r.Master != r.Leader:
			return fmt.Errorf("%v reports master %s, but leader %s", n, r.Master, r.Leader)
		}
		vote := 0
		for _, x := range r.Servers {
			if x.Voter && x.State == clientapi.NodeAlive {
				vote++
			}
		}
		if vote != voters || len(r.Servers) != voters {
			return fmt.Errorf("%v sees %d voters alive among %d servers, want %d", n, vote, len(r.Servers), voters)
		}
	}
	return nil
}

// service returns a client of the lock service in the test's own network.
func (c *cluster) service() *session.Client {
	c.t.Helper()
	lib, err := session.NewClient(session.Config{Locator: session.Addresses(c.addresses()), Dial: dialer(c.keys.node), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := lib.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return lib
}

// direct calls the lock service of this node, whether it is the leader or not.
func (n *node) direct(ctx context.Context, f func(api.Service) error) error {
	conn, err := rpc.Dial(ctx, n.address(), rpc.ConnConfig{Dialer: dialer(n.keys.node)})
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(api.Remote(conn))
}

// agree waits until all nodes hold the same files under dir as the leader. Files may still change:
// a request that a disconnected client had sent may reach the leader seconds after the client has
// ended.
func (c *cluster) agree(lib *session.Client, dir string, atMost time.Duration) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), atMost)
	defer cancel()
	files := 0
	err := await(atMost, func() (err error) {
		files, err = c.disagreement(ctx, lib, dir)
		return err
	})
	if err != nil {
		c.t.Errorf("the nodes do not agree on %s in %v: %v", dir, atMost, err)
		return
	}
	c.t.Logf("all nodes hold the same %d files in %s", files, dir)
}

// disagreement returns the number of files, and an error if a node has others.
func (c *cluster) disagreement(ctx context.Context, lib *session.Client, dir string) (int, error) {
	files, err := lib.List(ctx, dir)
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		return 0, fmt.Errorf("list %s: %w", dir, err)
	}
	var want []api.File
	for _, st := range files {
		f, err := lib.Get(ctx, st.Path)
		if err != nil {
			return 0, fmt.Errorf("get %s: %w", st.Path, err)
		}
		want = append(want, f)
	}
	for _, n := range c.nodes {
		if err := n.has(ctx, want); err != nil {
			return 0, fmt.Errorf("%v: %w", n, err)
		}
	}
	return len(files), nil
}

// has returns an error if the node has a different state of a file.
func (n *node) has(ctx context.Context, all []api.File) error {
	return n.direct(ctx, func(s api.Service) error {
		for _, want := range all {
			got, err := s.GetStale(ctx, want.Path)
			if err != nil {
				return err
			}
			if got.Generation != want.Generation || !bytes.Equal(got.Data, want.Data) {
				return fmt.Errorf("%s is %q of generation %d, the leader has %q of %d", want.Path, got.Data, got.Generation, want.Data, want.Generation)
			}
		}
		return nil
	})
}

// checkLogs searches the logs for lines that no node may write.
func (c *cluster) checkLogs() {
	c.t.Helper()
	for _, n := range c.nodes {
		for line := range strings.Lines(n.log()) {
			for _, bad := range []string{"BUG:", "panic:", "DATA RACE", "fatal error:"} {
				if strings.Contains(line, bad) {
					c.t.Errorf("%v logged: %s", n, line)
				}
			}
		}
	}
}

// stopAll stops all running nodes cleanly, and checks their logs.
func (c *cluster) stopAll() {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.shouldRun {
			n.stop()
		}
	}
	c.checkLogs()
}

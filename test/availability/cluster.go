package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
)

// cluster is the set of nodes under test.
type cluster struct {
	program string
	dir     string
	memory  string
	nodes   []*process
	c       *client.Client
}

// process is a node. It keeps its addresses across restarts.
type process struct {
	name, rpc, gossip string
	cmd               *exec.Cmd
	done              chan error
}

const nodes = 3

// settleTimeout bounds the wait for the cluster to settle before a run is aborted.
const settleTimeout = 3 * time.Minute

// newCluster starts the nodes in a directory and returns when they form one cluster.
func newCluster(ctx context.Context, program, dir, memory string) (*cluster, error) {
	f := &cluster{program: program, dir: dir, memory: memory}
	for i := range nodes {
		p, err := newProcess(fmt.Sprintf("n%d", i+1))
		if err != nil {
			return nil, err
		}
		f.nodes = append(f.nodes, p)
	}
	for _, p := range f.nodes {
		if err := f.start(p); err != nil {
			return f, err
		}
	}
	for _, p := range f.nodes {
		if err := f.await(ctx, p); err != nil {
			return f, err
		}
	}
	var err error
	f.c, err = client.Open(ctx, f.addrs(), client.Config{Replay: client.ReplayAll, RetryTimeMax: time.Minute})
	if err != nil {
		return f, err
	}
	return f, until(ctx, "three voters", func() error {
		raft, err := f.c.Nodes().RaftStatus(ctx)
		if err == nil && len(raft.Servers) < nodes {
			err = fmt.Errorf("%d of %d nodes vote", len(raft.Servers), nodes)
		}
		return err
	})
}

// newProcess returns a node with free addresses, which is not started.
func newProcess(name string) (*process, error) {
	p := &process{name: name}
	for _, addr := range []*string{&p.rpc, &p.gossip} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*addr = l.Addr().String()
		l.Close()
	}
	return p, nil
}

func (f *cluster) addrs() string {
	var all []string
	for _, p := range f.nodes {
		all = append(all, p.rpc)
	}
	return strings.Join(all, ",")
}

// start starts a node without waiting for it. Nodes end with this process.
func (f *cluster) start(p *process) error {
	log, err := os.OpenFile(filepath.Join(f.dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(f.program, "serve", "--config", os.DevNull, "--name", p.name, "--data-dir", filepath.Join(f.dir, p.name),
		"--listen", p.rpc, "--gossip", p.gossip, "--http", "off", "--bigtable", "off", "--join", f.addrs(), "--expect", fmt.Sprint(nodes),
		"--voter-stable", "1s", "--memory", f.memory, "--reserve", "64MiB", "--log-format", "text")
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.done = make(chan error, 1)
	go func() { p.done <- p.cmd.Wait() }()
	return nil
}

// await returns when a node is ready.
func (f *cluster) await(ctx context.Context, p *process) error {
	return until(ctx, p.name+" serves", func() error {
		c, err := client.Open(ctx, p.rpc, client.Config{RetryTimeMax: -1})
		if err != nil {
			return err
		}
		defer c.Close()
		s, err := c.Status(ctx)
		if err == nil && !s.Ready {
			err = errors.New(s.Reason)
		}
		return err
	})
}

// end ends a node with a signal.
func (f *cluster) end(p *process, s os.Signal) {
	_ = p.cmd.Process.Signal(s)
	<-p.done
}

func (f *cluster) stop() {
	if f.c != nil {
		f.c.Close()
	}
	for _, p := range f.nodes {
		if p.cmd != nil {
			f.end(p, syscall.SIGKILL)
		}
	}
}

// run runs a command of the program.
func (f *cluster) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, f.program, append(args, "--addr", f.addrs())...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("stele %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out, err
}

// leader returns the node that leads the lock service and is the master.
func (f *cluster) leader(ctx context.Context) (*process, error) {
	raft, err := f.c.Nodes().RaftStatus(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(f.nodes, func(p *process) bool { return p.name == raft.LeaderName })
	if i < 0 || raft.Leader != raft.Master {
		return nil, fmt.Errorf("leader is %q, master %q", raft.LeaderName, raft.MasterName)
	}
	return f.nodes[i], nil
}

// place is the location of a tablet according to METADATA.
type place struct {
	end  string
	addr string // of the node; empty if unassigned
}

// places returns the locations of a table's tablets in order.
func (f *cluster) places(ctx context.Context, id uint64) (all []place, err error) {
	from, to := metadata.TableRange(id)
	s := f.c.Table(metadata.Name).Scan(ctx, client.Start(string(from)), client.End(string(to)), client.Filter(metadata.Places()))
	defer s.Close()
	for s.Next() {
		r, err := metadata.Decode(s.Row())
		if err != nil {
			return nil, err
		}
		p := place{end: string(r.End)}
		if r.Server != "" {
			p.addr = r.Addr
		}
		all = append(all, p)
	}
	return all, s.Err()
}

// settled returns when all nodes are ready, all tablets are assigned and balanced, no tablet has
// moved for quietTime, and logs have all their replicas.
func (f *cluster) settled(ctx context.Context, id uint64) error {
	for _, p := range f.nodes {
		if err := f.await(ctx, p); err != nil {
			return err
		}
	}
	var last []place
	since := time.Now()
	return until(ctx, "the cluster has settled", func() error {
		now, err := f.places(ctx, id)
		if err != nil {
			return err
		}
		count := map[string]int{}
		for _, p := range now {
			count[p.addr]++
		}
		if count[""] > 0 || len(count) < nodes || !slices.Equal(now, last) {
			last, since = now, time.Now()
			return fmt.Errorf("tablets by node: %v", count)
		}
		if time.Since(since) < quietTime {
			return errors.New("tablets moved recently")
		}
		return f.complete(ctx)
	})
}

// complete returns an error unless all nodes see each other, have their logs on all replicas, and have a leader.
func (f *cluster) complete(ctx context.Context) error {
	for _, p := range f.nodes {
		s, err := f.status(ctx, p)
		if err != nil {
			return err
		}
		if s.LogReplicas < s.Replicas || s.NodesAlive < nodes {
			return fmt.Errorf("%s has logs on %d of %d nodes, and sees %d nodes", p.name, s.LogReplicas, s.Replicas, s.NodesAlive)
		}
	}
	_, err := f.leader(ctx)
	return err
}

// quietTime is how long no tablet must have moved.
const quietTime = 1500 * time.Millisecond

// nodeStatus is the part of a node's status that is used here.
type nodeStatus struct {
	NodesAlive    int   `json:"nodes_alive"`
	MemtableBytes int64 `json:"memtable_bytes"`
	LogReplicas   int64 `json:"log_replicas"`
	Replicas      int64 `json:"replicas"`
}

func (f *cluster) status(ctx context.Context, p *process) (s nodeStatus, err error) {
	out, err := exec.CommandContext(ctx, f.program, "status", "--json", "--addr", p.rpc).Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	return s, err
}

// until repeats try until it succeeds, for at most settleTimeout.
func until(ctx context.Context, what string, try func() error) error {
	deadline := time.Now().Add(settleTimeout)
	for {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func init() { runtime.LockOSThread() } // nodes end with the thread that starts them

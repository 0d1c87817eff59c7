package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
)

// A devNode is a node of a development cluster: a process of this program.
type devNode struct {
	name, log            string
	listen, gossip, http string
	args                 []string

	// Of the process that was started last.
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how; nil until then
	gone bool          // it has ended, and its end was told
}

const (
	// devPortStep is how far the ports of a development cluster's nodes are apart.
	devPortStep = 10
	// devExtentSize is the size of its extents: each node prepares about ten of them for
	// logs, which need not be 64 MiB here.
	devExtentSize = "8MiB"
	// devVoterStable is how long they must be there before they vote: somebody waits.
	devVoterStable = "1s"
)

// devNodes says how the nodes are to run, each with data and a log in dir.
func devNodes(c *configuration, dir string, count int) (nodes []*devNode, err error) {
	prefix := orElse(c.text("name"), "n")
	for i := range count {
		n := &devNode{name: prefix + strconv.Itoa(i+1)}
		n.log = filepath.Join(dir, n.name+".log")
		for _, port := range []struct {
			key   string
			field *string
		}{{"listen", &n.listen}, {"gossip", &n.gossip}, {"http", &n.http}} {
			l, addr, err := devAddr(c.text(port.key), i)
			if err != nil {
				return nil, fmt.Errorf("%s (%s): %w", port.key, c.origin[port.key], err)
			}
			if l != nil {
				defer l.Close() // when all are chosen: no two get the same
			}
			*port.field = addr
		}
		nodes = append(nodes, n)
	}
	shared, err := devSettings(c, count)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if err := os.MkdirAll(filepath.Join(dir, n.name), 0o777); err != nil {
			return nil, fmt.Errorf("make the data folder of %s: %w", n.name, err)
		}
		n.args = append([]string{
			"serve", "--config", os.DevNull, "--name", n.name, "--data-dir", filepath.Join(dir, n.name),
			"--listen", n.listen, "--gossip", n.gossip, "--http", n.http,
			"--join", joinAddrs(nodes), "--expect", strconv.Itoa(count),
		}, shared...)
	}
	return nodes, nil
}

// devSettings returns the flags that all nodes get: what this process was told, and what suits several
// nodes on one machine.
func devSettings(c *configuration, count int) (flags []string, err error) {
	values := map[string]string{"extent_size": devExtentSize, "voter_stable": devVoterStable}
	memory, err := node.DefaultMemory()
	if err != nil {
		return nil, err
	}
	values["memory"] = strconv.FormatInt(max(memory/int64(count), node.MemoryMin), 10)
	for _, s := range settings {
		switch s.key {
		case "name", "data_dir", "listen", "gossip", "http", "join", "expect", "advertise":
			continue // each has its own
		}
		if c.origin[s.key] != "default" {
			values[s.key] = c.text(s.key)
		}
		if v, ok := values[s.key]; ok {
			flags = append(flags, "--"+s.flag()+"="+v)
		}
	}
	return flags, nil
}

// devAddr returns the address of the i-th node, of which the first has addr. One whose port is
// 0 is free now, and kept so until the listener is closed; one that is not free is an error.
func devAddr(addr string, i int) (net.Listener, string, error) {
	if addr == "off" {
		return nil, addr, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, "", err
	}
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		return nil, "", err
	}
	if number > 0 {
		number += i * devPortStep
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(number)))
	if err != nil {
		return nil, "", withHint(err, "does another cluster run? --listen, --gossip and --http choose other ports, 127.0.0.1:0 any that are free")
	}
	_, port, _ = net.SplitHostPort(l.Addr().String()) // which is one of TCP
	return l, net.JoinHostPort(host, port), nil
}

// start starts the node's process, and does not wait for it to serve. When it has ended the node is sent to
// ended, which has room.
func (n *devNode) start(ended chan<- *devNode) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	log, err := os.Create(n.log)
	if err != nil {
		return fmt.Errorf("make the log of %s: %w", n.name, err)
	}
	defer log.Close() // the process has it open
	cmd := exec.Command(self, n.args...)
	cmd.Stderr = log
	cmd.Env = slices.DeleteFunc(os.Environ(), isSetting)
	// Ctrl-C is for this process, which passes it on.
	cmd.SysProcAttr = heldAttributes(true)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	done := make(chan struct{})
	n.cmd, n.done, n.err = cmd, done, nil
	go func() {
		n.err = cmd.Wait()
		close(done)
		ended <- n
	}()
	return nil
}

// isSetting says whether an environment variable sets what this process has read already.
func isSetting(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return name == "STELE_CONFIG" || slices.ContainsFunc(settings, func(s setting) bool { return s.variable() == name })
}

// await returns when the node serves, and knows of so many nodes, of which as many vote as should.
func (n *devNode) await(ctx context.Context, count int) error {
	c, err := client.Open(ctx, n.listen, client.Config{})
	for ; err != nil; c, err = client.Open(ctx, n.listen, client.Config{}) {
		if pause(ctx, awaitPause); ctx.Err() != nil {
			return err
		}
	}
	defer c.Close()
	for {
		err := n.look(ctx, c, count)
		if err == nil {
			return nil
		}
		if pause(ctx, awaitPause); ctx.Err() != nil {
			return err
		}
	}
}

// look says what await waits for.
func (n *devNode) look(ctx context.Context, c *client.Client, count int) error {
	s, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if !s.Ready || s.NodesAlive < int64(count) {
		return fmt.Errorf("%s; it knows of %d nodes", orElse(s.Reason, "it serves"), s.NodesAlive)
	}
	raft, err := c.RaftStatus(ctx)
	if err != nil {
		return err
	}
	voters := 0
	for _, m := range raft.Servers {
		if m.Voter {
			voters++
		}
	}
	if want := votersOf(count); voters < want {
		return fmt.Errorf("%d of %d nodes vote", voters, want)
	}
	return nil
}

// votersOf returns how many of so many nodes vote: an odd number, up to five, but both of two.
func votersOf(nodes int) int {
	if nodes > 2 && nodes%2 == 0 {
		nodes--
	}
	return min(nodes, 5)
}

// awaitPause is the pause between two looks at a node.
const awaitPause = 50 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (n *devNode) pid() int { return n.cmd.Process.Pid }

// signal sends a signal to the process, if it is there.
func (n *devNode) signal(s os.Signal) { _ = n.cmd.Process.Signal(s) }

func (n *devNode) hasEnded() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// fate says how the process has ended.
func (n *devNode) fate() error {
	if n.err == nil {
		return errors.New("it has stopped in good order")
	}
	return n.err
}

const (
	logEndBytes = 8 << 10
	logEndLines = 10
)

// logEnd returns the last lines of the node's log.
func (n *devNode) logEnd() string {
	f, err := os.Open(n.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-logEndBytes), io.SeekStart)
	}
	b, _ := io.ReadAll(io.LimitReader(f, logEndBytes))
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	lines = lines[max(0, len(lines)-logEndLines):]
	return n.log + " ends with:\n  " + strings.Join(lines, "\n  ")
}

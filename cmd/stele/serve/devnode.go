package serve

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
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/config"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node"
)

// A devNode is a node of a development cluster: a process of this program.
type devNode struct {
	name, log            string
	listen, gossip, http string
	bigtable             string
	args                 []string

	// Of the process that was started last.
	cmd      *exec.Cmd
	done     chan struct{} // closed when the process has exited
	err      error         // the result of Wait; read it only after done is closed
	reported bool          // the exit has been reported
}

const (
	// devPortStep is the distance between the ports of consecutive nodes.
	devPortStep = 10
	// devExtentBytes is the extent size. Each node preallocates about ten extents for logs, for which
	// the default of 64 MiB is too much here.
	devExtentBytes = 8 << 20
	// devVoterStable is the voter_stable of the nodes: short, since the user waits for the cluster.
	devVoterStable = "1s"
)

// devNodes returns count nodes with their addresses and arguments. It creates their data folders in
// dir, and does not start them.
func devNodes(c *config.Config, dir string, count int) (nodes []*devNode, err error) {
	prefix := cli.OrElse(c.Text("name"), "n")
	for i := range count {
		n := &devNode{name: prefix + strconv.Itoa(i+1)}
		n.log = filepath.Join(dir, n.name+".log")
		for _, port := range []struct {
			key   string
			field *string
		}{{"listen", &n.listen}, {"gossip", &n.gossip}, {"http", &n.http}, {"bigtable", &n.bigtable}} {
			l, addr, err := devAddr(c.Text(port.key), i)
			if err != nil {
				return nil, fmt.Errorf("%s (%s): %w", port.key, c.Source(port.key), err)
			}
			if l != nil {
				defer l.Close() // only after all are chosen, so that they differ
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
			return nil, fmt.Errorf("create the data folder of %s: %w", n.name, err)
		}
		n.args = append([]string{
			"serve", "--config", os.DevNull, "--name", n.name, "--data-dir", filepath.Join(dir, n.name),
			"--listen", n.listen, "--gossip", n.gossip, "--http", n.http, "--bigtable", n.bigtable,
			"--join", joinAddrs(nodes), "--expect", strconv.Itoa(count),
		}, shared...)
	}
	return nodes, nil
}

// devSettings returns the flags that all nodes share: the settings of this process that are not
// defaults, and values that suit several nodes on one machine.
func devSettings(c *config.Config, count int) (flags []string, err error) {
	values := map[string]string{"extent_size": strconv.Itoa(devExtentBytes), "voter_stable": devVoterStable}
	memory, err := node.DefaultMemory()
	if err != nil {
		return nil, err
	}
	values["memory"] = strconv.FormatInt(max(memory/int64(count), node.MemoryMin), 10)
	for _, s := range config.Settings {
		switch s.Key {
		case "name", "data_dir", "listen", "gossip", "http", "bigtable", "join", "expect", "advertise":
			continue // set for each node
		}
		if !c.IsDefault(s.Key) {
			values[s.Key] = c.Text(s.Key)
		}
		if v, ok := values[s.Key]; ok {
			flags = append(flags, "--"+s.Flag()+"="+v)
		}
	}
	return flags, nil
}

// devAddr returns the address of the i-th node; addr is that of the first. For port 0 it chooses a
// free port. The listener reserves the port until it is closed. A port in use is an error.
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
		return nil, "", cli.WithHint(err, "another cluster may be running; choose other ports by --listen, --gossip, --http and --bigtable, or 127.0.0.1:0 for free ones")
	}
	_, port, _ = net.SplitHostPort(l.Addr().String()) // a TCP address is host:port
	return l, net.JoinHostPort(host, port), nil
}

// start starts the node's process, and does not wait for it to serve. When the process exits, the
// node is sent to ended, which must have enough capacity for all nodes.
func (n *devNode) start(ended chan<- *devNode) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	log, err := os.Create(n.log)
	if err != nil {
		return fmt.Errorf("create the log of %s: %w", n.name, err)
	}
	defer log.Close() // the process keeps it open
	cmd := exec.Command(self, n.args...)
	cmd.Stderr = log
	cmd.Env = slices.DeleteFunc(os.Environ(), isSetting)
	// The node gets its own process group, so that Ctrl-C reaches only this process, which stops it.
	cmd.SysProcAttr = cli.ChildAttributes(true)
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

// isSetting reports whether an environment variable, NAME=VALUE, is a setting or STELE_CONFIG. This
// process has read these, and passes them on as flags.
func isSetting(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return name == "STELE_CONFIG" || slices.ContainsFunc(config.Settings, func(s config.Setting) bool { return s.Variable() == name })
}

// await waits until the node serves, sees count nodes, and sees the voters that count nodes have. At
// the end of ctx it returns the last error.
func (n *devNode) await(ctx context.Context, count int) error {
	c, err := client.Open(ctx, n.listen, client.Config{})
	for ; err != nil; c, err = client.Open(ctx, n.listen, client.Config{}) {
		if timing.Sleep(ctx, pollInterval); ctx.Err() != nil {
			return err
		}
	}
	defer c.Close()
	for {
		err := n.look(ctx, c, count)
		if err == nil {
			return nil
		}
		if timing.Sleep(ctx, pollInterval); ctx.Err() != nil {
			return err
		}
	}
}

// look returns an error that describes what await still waits for.
func (n *devNode) look(ctx context.Context, c *client.Client, count int) error {
	s, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if !s.Ready || s.NodesAlive < int64(count) {
		return fmt.Errorf("%s; %d nodes alive", cli.OrElse(s.Reason, "serving"), s.NodesAlive)
	}
	raft, err := c.Nodes().RaftStatus(ctx)
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
		return fmt.Errorf("%d of %d voters", voters, want)
	}
	return nil
}

// votersOf returns the number of voters of a cluster: an odd number up to five, except that of two
// nodes both vote.
func votersOf(nodes int) int {
	if nodes > 2 && nodes%2 == 0 {
		nodes--
	}
	return min(nodes, 5)
}

// pollInterval is the interval at which await polls a node.
const pollInterval = 50 * time.Millisecond

func (n *devNode) pid() int { return n.cmd.Process.Pid }

// signal sends a signal to the process. It does nothing if the process has exited.
func (n *devNode) signal(s os.Signal) { _ = n.cmd.Process.Signal(s) }

func (n *devNode) hasEnded() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// exitCause returns an error that describes how the process exited.
func (n *devNode) exitCause() error {
	if n.err == nil {
		return errors.New("exit code 0")
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

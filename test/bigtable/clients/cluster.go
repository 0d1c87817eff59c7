package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// shape is a kind of cluster.
type shape struct {
	nodes  int
	secure bool // with certificates
	// https: clients connect to names in the domain universe, at port 443 of an address for tests.
	https  bool
	memory string // of a node; "": 512MiB
}

// universe is the domain whose names bigtable and bigtableadmin are the first node.
const universe = "stele.test"

func (s shape) String() string {
	if s.secure {
		return fmt.Sprintf("%d nodes with certificates", s.nodes)
	}
	return fmt.Sprintf("%d nodes", s.nodes)
}

// cluster is a cluster of processes on this machine.
type cluster struct {
	shape
	stele string
	dir   string
	nodes []*process
}

// process is a node.
type process struct {
	args     []string
	bigtable string // its address for clients
	listen   string
	log      string
	cmd      *exec.Cmd
}

// freePorts returns n addresses with ports that are free.
func freePorts(n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // so that all differ
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// startCluster starts a cluster whose data is in dir, and waits until it serves.
func startCluster(ctx context.Context, stele, dir string, s shape) (*cluster, error) {
	c := &cluster{shape: s, stele: stele, dir: dir}
	if err := c.plan(); err != nil {
		return nil, err
	}
	start := c.startOpen
	if s.secure {
		start = c.startSecured
	}
	if err := start(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// plan chooses the addresses and the arguments of the nodes.
func (c *cluster) plan() error {
	addrs, err := freePorts(3 * c.shape.nodes)
	if err != nil {
		return err
	}
	for i := range c.shape.nodes {
		name := "n" + strconv.Itoa(i+1)
		if c.https && i == 0 {
			addrs[1] = fmt.Sprintf("127.%d.%d.%d:443", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
		}
		n := &process{listen: addrs[3*i], bigtable: addrs[3*i+1], log: filepath.Join(c.dir, name+".log")}
		n.args = []string{"serve", "--config", os.DevNull, "--name", name, "--data-dir", filepath.Join(c.dir, name), "--listen", n.listen,
			"--http", "off", "--bigtable", n.bigtable, "--bigtable-sessions", "on", "--memory", cmp.Or(c.memory, "512MiB"), "--extent-size", "8MiB"}
		if c.shape.nodes == 1 {
			n.args = append(n.args, "--gossip", "off")
		} else {
			n.args = append(n.args, "--gossip", addrs[3*i+2], "--voter-stable", "1s")
		}
		c.nodes = append(c.nodes, n)
		if err := os.Mkdir(filepath.Join(c.dir, name), 0o777); err != nil {
			return err
		}
	}
	return nil
}

// startOpen starts the nodes of a cluster without certificates.
func (c *cluster) startOpen(ctx context.Context) error {
	var join []string
	for _, n := range c.nodes {
		join = append(join, n.listen)
	}
	for _, n := range c.nodes {
		if len(c.nodes) > 1 {
			n.args = append(n.args, "--join", strings.Join(join, ","), "--expect", strconv.Itoa(len(c.nodes)))
		}
		if err := c.start(n); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := n.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start starts the process of a node.
func (c *cluster) start(n *process) error {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	n.cmd = exec.Command(c.stele, n.args...)
	n.cmd.Stderr = log
	return n.cmd.Start()
}

// await waits until a node accepts clients of the API.
func (n *process) await(ctx context.Context) error {
	for {
		conn, err := net.Dial("tcp", n.bigtable)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(n.log)
			return fmt.Errorf("the node does not serve: %w\n%s", ctx.Err(), text)
		case <-time.After(50 * time.Millisecond): // a polling period
		}
	}
}

// endpoint is the address of the first node.
func (c *cluster) endpoint() string { return c.nodes[0].bigtable }

// restartLast kills the last node after a while, and restarts it.
func (c *cluster) restartLast(ctx context.Context) error {
	n := c.nodes[len(c.nodes)-1]
	time.Sleep(killAfter)
	n.kill()
	time.Sleep(downTime)
	if err := c.start(n); err != nil {
		return err
	}
	return n.await(ctx)
}

// kill kills a node without notice, and waits for its end.
func (n *process) kill() {
	if n.cmd != nil && n.cmd.Process != nil {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait()
		n.cmd = nil
	}
}

// stop kills all nodes.
func (c *cluster) stop() {
	for _, n := range c.nodes {
		n.kill()
	}
}

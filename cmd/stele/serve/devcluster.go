package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/config"
	"github.com/steledb/stele/node"
)

// devNodesMax is the maximum number of nodes of a development cluster; their ports are ten apart.
const devNodesMax = 9

// A devCluster is a development cluster on this machine. Its nodes are child processes that run this
// program and exit with it.
type devCluster struct {
	a     *cli.App
	dir   string // has a folder and a log for each node
	nodes []*devNode
	ended chan *devNode // nodes whose process has exited
}

// serveDevCluster runs count nodes until ctx ends.
func serveDevCluster(ctx context.Context, a *cli.App, c *config.Config, count int) (err error) {
	if err := checkDevCluster(c, count); err != nil {
		return err
	}
	d := &devCluster{a: a, ended: make(chan *devNode, count)}
	temporary := c.IsDefault("data_dir")
	if temporary {
		dir, err := os.MkdirTemp("", "stele-dev-")
		if err != nil {
			return fmt.Errorf("create a temporary data folder: %w", err)
		}
		d.dir = dir
	} else if d.dir, err = filepath.Abs(c.List("data_dir")[0]); err != nil {
		return err
	}
	if temporary {
		defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	}
	if d.nodes, err = devNodes(c, d.dir, count); err != nil {
		return err
	}
	// A node is killed when the thread that started it exits: see childAttributes.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = d.run(ctx, temporary)
	return errors.Join(err, d.stop(c.DrainTimeout()))
}

// checkDevCluster rejects settings that do not fit several nodes on one machine.
func checkDevCluster(c *config.Config, count int) error {
	if count < 1 || count > devNodesMax {
		return cli.Usagef("", "--nodes: %d is not between 1 and %d", count, devNodesMax)
	}
	for _, key := range []string{"join", "expect", "advertise"} {
		if !c.IsDefault(key) {
			return cli.Usagef("omit it", "%s (%s): not supported with --nodes, which sets it for each node", key, c.Source(key))
		}
	}
	if c.Text("gossip") == "off" {
		return cli.Usagef("omit it", "gossip (%s): the nodes of --nodes need gossip to find each other", c.Source("gossip"))
	}
	if n := len(c.List("data_dir")); n != 1 {
		return cli.Usagef("name one folder; each node gets a folder in it", "data_dir (%s): %d folders, want one with --nodes", c.Source("data_dir"), n)
	}
	return nil
}

// run starts the nodes and watches them until ctx ends. It returns an error if a node does not start,
// or if all nodes have exited.
func (d *devCluster) run(ctx context.Context, temporary bool) error {
	d.a.Notef("starting %d nodes; their logs are %s", len(d.nodes), filepath.Join(d.dir, "*.log"))
	for _, n := range d.nodes {
		if err := n.start(d.ended); err != nil {
			return err
		}
	}
	if err := d.form(ctx); err != nil {
		if ctx.Err() != nil { // stopped by a signal
			return nil
		}
		return err
	}
	d.banner(temporary)
	return d.watch(ctx)
}

// formTimeout bounds the time until the nodes have formed or rejoined a cluster.
const formTimeout = 2 * time.Minute

// form waits until all nodes serve and the sample table exists. It returns an error if a node exits
// before that, or after formTimeout.
func (d *devCluster) form(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	formed := make(chan error, 1)
	go func() {
		short, cancel := context.WithTimeout(ctx, formTimeout)
		defer cancel()
		for _, n := range d.nodes {
			if err := n.await(short, len(d.nodes)); err != nil {
				formed <- fmt.Errorf("%s is not serving after %v: %w\n%s", n.name, formTimeout, err, n.logEnd())
				return
			}
		}
		if err := createSample(short, d.addrs()); err != nil {
			formed <- fmt.Errorf("create the sample table: %w", err)
			return
		}
		formed <- nil
	}()
	select {
	case n := <-d.ended:
		cancel(nil)
		<-formed
		return fmt.Errorf("%s did not start: %w\n%s", n.name, n.exitCause(), n.logEnd())
	case err := <-formed:
		return err
	}
}

// watch reports nodes that exit, and restarts them at each line of input. It returns when ctx ends,
// or an error if all nodes have exited.
func (d *devCluster) watch(ctx context.Context) error {
	// In the background of a shell, reading input must fail, and not stop the process.
	signal.Ignore(syscall.SIGTTIN)
	defer signal.Reset(syscall.SIGTTIN)
	lines := make(chan struct{})
	go func() {
		for s := bufio.NewScanner(d.a.In); s.Scan(); {
			select {
			case lines <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-d.ended:
			n.reported = true
			d.a.Notef("%s: %s (process %d) has exited: %v; its log is %s", d.a.Paint(d.a.ErrTTY, cli.StyleError, "lost"), n.name, n.pid(), n.exitCause(), n.log)
			left := 0
			for _, n := range d.nodes {
				if !n.reported {
					left++
				}
			}
			if left == 0 {
				return errors.New("all nodes have exited")
			}
			d.a.Notef("%d of %d nodes are running; press Enter to restart %s", left, len(d.nodes), n.name)
		case <-lines:
			if err := d.restartExited(ctx); err != nil {
				return err
			}
		}
	}
}

// restartExited restarts the nodes that have exited.
func (d *devCluster) restartExited(ctx context.Context) error {
	for _, n := range d.nodes {
		if !n.reported {
			continue
		}
		if err := n.start(d.ended); err != nil {
			return err
		}
		n.reported = false
		d.a.Notef("restarting %s as process %d", n.name, n.pid())
		go func() {
			ctx, cancel := context.WithTimeout(ctx, formTimeout)
			defer cancel()
			if n.await(ctx, 1) == nil {
				d.a.Notef("%s is serving again", n.name)
			}
		}()
	}
	return nil
}

// stop stops the nodes gracefully. After a second signal, or drain plus 10 s, it kills them.
func (d *devCluster) stop(drain time.Duration) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, cli.Signals()...)
	defer signal.Stop(again)
	var left []*devNode
	for _, n := range d.nodes {
		if n.cmd != nil && !n.hasEnded() {
			left = append(left, n)
			n.signal(syscall.SIGTERM)
		}
	}
	if len(left) > 0 {
		d.a.Notef("stopping %d nodes; a second signal kills them", len(left))
	}
	// A node takes a little longer to stop than its requests in progress.
	late := time.NewTimer(drain + 10*time.Second)
	defer late.Stop()
	var errs []error
	for _, n := range left {
		select {
		case <-n.done:
		case s := <-again:
			errs = append(errs, fmt.Errorf("killed by a second signal (%v); the next start recovers from the commit logs", s))
			d.kill(left)
		case <-late.C:
			errs = append(errs, fmt.Errorf("stop %s: killed after %v", n.name, drain+10*time.Second))
			d.kill(left)
		}
		<-n.done
		if n.err != nil && len(errs) == 0 {
			errs = append(errs, fmt.Errorf("stop %s: %w\n%s", n.name, n.err, n.logEnd()))
		}
	}
	return errors.Join(errs...)
}

func (d *devCluster) kill(nodes []*devNode) {
	for _, n := range nodes {
		n.signal(syscall.SIGKILL)
	}
}

// addrs returns the RPC addresses of all nodes, separated by commas.
func (d *devCluster) addrs() string { return joinAddrs(d.nodes) }

func joinAddrs(nodes []*devNode) string {
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.listen)
	}
	return strings.Join(addrs, ",")
}

// banner prints the nodes with their addresses, and commands to try.
func (d *devCluster) banner(temporary bool) {
	key := func(s string) string { return d.a.Paint(d.a.ErrTTY, cli.StyleKey, s) }
	retention := "kept when they stop"
	if temporary {
		retention = "removed when they stop"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %d nodes in development mode: no access control, data is %s\n\n", key("Stele "+node.Version()), len(d.nodes), retention)
	for _, n := range d.nodes {
		fmt.Fprintf(&b, "  %s  clients %s", n.name, n.listen)
		if n.http != "off" {
			fmt.Fprintf(&b, "  console http://%s", n.http)
		}
		fmt.Fprintf(&b, "  process %d\n", n.pid())
	}
	if first := d.nodes[0].bigtable; first != "off" {
		fmt.Fprintf(&b, "  bigtable  export BIGTABLE_EMULATOR_HOST=%s\n", first)
	}
	fmt.Fprintf(&b, "  data and logs  %s\n\nTry this in another terminal:\n\n", d.dir)
	for _, line := range d.examples() {
		fmt.Fprintf(&b, "  %s\n", key(line))
	}
	fmt.Fprintf(&b, "\nPress Enter to restart nodes that have exited. Ctrl-C stops all.\n\n")
	fmt.Fprint(d.a.Err, b.String())
}

// examples returns commands to try with the cluster.
func (d *devCluster) examples() []string {
	command, addr := os.Args[0], ""
	if d.nodes[0].listen != client.DefaultAddr {
		addr = " --addr " + d.nodes[0].listen
	}
	last := d.nodes[len(d.nodes)-1]
	return []string{
		command + " node list" + addr,
		command + " scan " + sampleTable + " --family anchor --family language" + addr,
		command + " tablet list" + addr,
		fmt.Sprintf("kill -9 %d%s# kill %s; the others take over its tablets", last.pid(), "   ", last.name),
	}
}

package main

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
	"github.com/steledb/stele/node"
)

// devNodesMax bounds the nodes of a development cluster: their ports are ten apart.
const devNodesMax = 9

// A devCluster is a cluster on this machine to try Stele with: nodes that are processes
// of this program, and end with this one.
type devCluster struct {
	a     *app
	dir   string // has a folder and a log for each node
	nodes []*devNode
	ended chan *devNode // those whose process has
}

// serveDevCluster runs so many nodes until ctx ends.
func (a *app) serveDevCluster(ctx context.Context, c *configuration, count int) (err error) {
	if err := checkDevCluster(c, count); err != nil {
		return err
	}
	d := &devCluster{a: a, ended: make(chan *devNode, count)}
	temporary := c.origin["data_dir"] == "default"
	if temporary {
		dir, err := os.MkdirTemp("", "stele-dev-")
		if err != nil {
			return fmt.Errorf("make a temporary data folder: %w", err)
		}
		d.dir = dir
	} else if d.dir, err = filepath.Abs(c.values.Strings("data_dir")[0]); err != nil {
		return err
	}
	if temporary {
		defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	}
	if d.nodes, err = devNodes(c, d.dir, count); err != nil {
		return err
	}
	// A node ends with the thread that started it: see heldAttributes.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = d.run(ctx, temporary)
	return errors.Join(err, d.stop(c.drainTimeout()))
}

// checkDevCluster refuses what cannot be of several nodes on one machine.
func checkDevCluster(c *configuration, count int) error {
	if count < 1 || count > devNodesMax {
		return usagef("", "--nodes: %d is not from 1 to %d", count, devNodesMax)
	}
	for _, key := range []string{"join", "expect", "advertise"} {
		if c.origin[key] != "default" {
			return usagef("leave it out", "%s (%s): the nodes of --nodes are a cluster by themselves", key, c.origin[key])
		}
	}
	if c.text("gossip") == "off" {
		return usagef("leave it out", "gossip (%s): without it the nodes of --nodes do not find each other", c.origin["gossip"])
	}
	if n := len(c.values.Strings("data_dir")); n != 1 {
		return usagef("", "data_dir (%s): %d folders, want one: each node of --nodes has its own below it", c.origin["data_dir"], n)
	}
	return nil
}

// run starts the nodes, and watches them until ctx ends. The error is that they did not come
// up, or that all have ended.
func (d *devCluster) run(ctx context.Context, temporary bool) error {
	d.a.talk("%d nodes start; their logs are %s", len(d.nodes), filepath.Join(d.dir, "*.log"))
	for _, n := range d.nodes {
		if err := n.start(d.ended); err != nil {
			return err
		}
	}
	if err := d.form(ctx); err != nil {
		if ctx.Err() != nil { // it was told to stop
			return nil
		}
		return err
	}
	d.banner(temporary)
	return d.watch(ctx)
}

// formTimeout is how long the nodes get to found a cluster, or to find each other again.
const formTimeout = 2 * time.Minute

// form returns when all nodes serve, and the sample table does. A node that ends before is the error.
func (d *devCluster) form(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	formed := make(chan error, 1)
	go func() {
		short, cancel := context.WithTimeout(ctx, formTimeout)
		defer cancel()
		for _, n := range d.nodes {
			if err := n.await(short, len(d.nodes)); err != nil {
				formed <- fmt.Errorf("%s does not serve after %v: %w\n%s", n.name, formTimeout, err, n.logEnd())
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
		return fmt.Errorf("%s did not start: %w\n%s", n.name, n.fate(), n.logEnd())
	case err := <-formed:
		return err
	}
}

// watch tells of nodes that end, and starts them again at each line of input, until ctx ends or no
// node is left.
func (d *devCluster) watch(ctx context.Context) error {
	// In the background of a shell, input is an error instead of a stop of everything.
	signal.Ignore(syscall.SIGTTIN)
	defer signal.Reset(syscall.SIGTTIN)
	lines := make(chan struct{})
	go func() {
		for s := bufio.NewScanner(d.a.in); s.Scan(); {
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
			n.gone = true
			d.a.talk("%s: %s (process %d) has ended: %v; its log is %s", d.a.paint(d.a.errTTY, styleError, "lost"), n.name, n.pid(), n.fate(), n.log)
			left := 0
			for _, n := range d.nodes {
				if !n.gone {
					left++
				}
			}
			if left == 0 {
				return errors.New("no node is left")
			}
			d.a.talk("%d of %d nodes are left; Enter starts %s again", left, len(d.nodes), n.name)
		case <-lines:
			if err := d.revive(ctx); err != nil {
				return err
			}
		}
	}
}

// revive starts the nodes that have ended.
func (d *devCluster) revive(ctx context.Context) error {
	for _, n := range d.nodes {
		if !n.gone {
			continue
		}
		if err := n.start(d.ended); err != nil {
			return err
		}
		n.gone = false
		d.a.talk("%s starts again, as process %d", n.name, n.pid())
		go func() {
			ctx, cancel := context.WithTimeout(ctx, formTimeout)
			defer cancel()
			if n.await(ctx, 1) == nil {
				d.a.talk("%s serves again", n.name)
			}
		}()
	}
	return nil
}

// stop ends the nodes: in good order, or at once after a second signal or when time is over.
func (d *devCluster) stop(drain time.Duration) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, signals()...)
	defer signal.Stop(again)
	var left []*devNode
	for _, n := range d.nodes {
		if n.cmd != nil && !n.hasEnded() {
			left = append(left, n)
			n.signal(syscall.SIGTERM)
		}
	}
	if len(left) > 0 {
		d.a.talk("%d nodes stop; a second signal stops them at once", len(left))
	}
	// A node that is told to stop takes a little longer than its requests.
	late := time.NewTimer(drain + 10*time.Second)
	defer late.Stop()
	var errs []error
	for _, n := range left {
		select {
		case <-n.done:
		case s := <-again:
			errs = append(errs, fmt.Errorf("stopped at once by a second signal (%v); the next start recovers from the commit logs", s))
			d.kill(left)
		case <-late.C:
			errs = append(errs, fmt.Errorf("%s did not stop in time", n.name))
			d.kill(left)
		}
		<-n.done
		if n.err != nil && len(errs) == 0 {
			errs = append(errs, fmt.Errorf("%s did not stop in good order: %w\n%s", n.name, n.err, n.logEnd()))
		}
	}
	return errors.Join(errs...)
}

func (d *devCluster) kill(nodes []*devNode) {
	for _, n := range nodes {
		n.signal(syscall.SIGKILL)
	}
}

// addrs returns the addresses of all nodes.
func (d *devCluster) addrs() string { return joinAddrs(d.nodes) }

func joinAddrs(nodes []*devNode) string {
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.listen)
	}
	return strings.Join(addrs, ",")
}

// banner tells a person what runs and what to do next.
func (d *devCluster) banner(temporary bool) {
	key := func(s string) string { return d.a.paint(d.a.errTTY, styleKey, s) }
	fate := "kept when they stop"
	if temporary {
		fate = "gone when they stop"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %d nodes run for development: no password, data is %s\n\n", key("Stele "+node.Version()), len(d.nodes), fate)
	for _, n := range d.nodes {
		fmt.Fprintf(&b, "  %s  clients %s", n.name, n.listen)
		if n.http != "off" {
			fmt.Fprintf(&b, "  metrics http://%s/metrics", n.http)
		}
		fmt.Fprintf(&b, "  process %d\n", n.pid())
	}
	fmt.Fprintf(&b, "  data and logs  %s\n\nTry this in another terminal:\n\n", d.dir)
	command, addr := os.Args[0], ""
	if d.nodes[0].listen != client.DefaultAddr {
		addr = " --addr " + d.nodes[0].listen
	}
	last := d.nodes[len(d.nodes)-1]
	for _, line := range []string{
		command + " node list" + addr,
		command + " scan " + sampleTable + " --family anchor --family language" + addr,
		command + " tablet list" + addr,
		fmt.Sprintf("kill -9 %d%s# %s dies; the others serve what it had", last.pid(), "   ", last.name),
	} {
		fmt.Fprintf(&b, "  %s\n", key(line))
	}
	fmt.Fprintf(&b, "\nEnter starts a node that has died again. Ctrl-C stops all.\n\n")
	fmt.Fprint(d.a.err, b.String())
}

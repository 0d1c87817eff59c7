package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/security/pki"
)

func (a *app) serveCommand() *cobra.Command {
	dev, nodes := false, 1
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node until it is told to stop: SIGINT or SIGTERM lets requests under way
finish; a second one stops at once, which loses nothing that was acknowledged.

On a host where "stele init" was run, the node founds the cluster whose keys that has
made. Others join it with --join and a token of "stele token create" in --token-file:
they get keys of their own. All then know each other, and their clients, by certificates.

Without keys the node is open, for trying out, and listens on loopback alone: whoever
reaches it may read and write everything. It founds a cluster of its own, or joins the
one that the nodes given with --join are of, on this machine. With --expect 3 three nodes
without data, each given the same --join, found one together.

Nodes with data remember the others: they need none of these. A node that waits for
others logs for whom.

With --dev it is for trying out: its data is in a temporary folder that goes when
it stops (unless --data-dir names one), and a sample table is there. With --nodes 3 as
well, three nodes run as a cluster: processes of their own that end with this one, with
ports ten apart and folders and logs n1, n2 and n3 below the data folder. To see what a
cluster is for, kill one of them.

Settings also come from the environment (STELE_DATA_DIR, ...) and from
` + defaultConfigFile + `: see "stele help config", and "stele config example" for all.`,
		Example: `  stele serve --dev
  stele serve --dev --nodes 3
  stele serve --data-dir /data1 --data-dir /data2 --memory 8GiB
  stele serve --data-dir /data1 --listen 0.0.0.0:7106 --gossip 0.0.0.0:7107 --join host1 --token-file token
  stele serve --config ./stele.yaml --log-format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(cmd, dev)
			if err != nil {
				return err
			}
			if c.checkPaths(); c.err() != nil {
				return c.err()
			}
			cfg, err := c.node()
			if err != nil {
				return err
			}
			cfg.Dev = dev
			cfg.Logger = a.newLogger(a.err, c.text("log_format"), c.text("log_level"))
			for _, name := range strangeVariables(os.Environ()) {
				cfg.Logger.Warn(strangeVariable(name))
			}
			if cmd.Flags().Changed("nodes") {
				if !dev {
					return usagef(`on several hosts: "stele init" on one, and --join with --token-file on the others`, "--nodes goes with --dev: several nodes on one machine are for trying out")
				}
				if nodes != 1 {
					return a.serveDevCluster(cmd.Context(), c, nodes)
				}
			}
			if dev {
				return a.serveDev(cmd.Context(), c, cfg)
			}
			return a.serve(cmd.Context(), cfg, c.drainTimeout(), func(_ context.Context, n *node.Node) error {
				a.invite(c, n.RPCAddr())
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&dev, "dev", false, "run for development: temporary data, a sample table")
	cmd.Flags().IntVar(&nodes, "nodes", 1, "with --dev: run a cluster of this `number` of nodes on this machine")
	registerSettings(cmd)
	return cmd
}

// invite tells a person at the terminal how another host joins, if others can reach
// this one.
func (a *app) invite(c *configuration, addr string) {
	if !a.errTTY || c.text("gossip") == "off" || isLoopback(addr) || c.securityDir() == "" {
		return
	}
	a.talk("another host joins this one by a token, which you make with\n\n  stele token create --addr %s --credential admin.pem --out token\n\nand copy to it:\n\n  %s\n",
		addr, c.invitation(addr))
}

// invitation is the command that has another host join the node at addr by a token.
func (c *configuration) invitation(addr string) string {
	words := []string{"stele serve"}
	for _, dir := range c.values.Strings("data_dir") {
		words = append(words, "--data-dir", dir)
	}
	for _, key := range []string{"listen", "gossip"} {
		_, port, _ := net.SplitHostPort(c.text(key)) // validate has read it
		words = append(words, "--"+key, net.JoinHostPort("0.0.0.0", port))
	}
	return strings.Join(append(words, "--join", addr, "--token-file", "token"), " ")
}

// serve runs a node until ctx ends or the node fails. ready, if there is one, is
// called once the node serves.
func (a *app) serve(ctx context.Context, cfg node.Config, drain time.Duration, ready func(context.Context, *node.Node) error) error {
	sup := newSupervisor(cfg.Logger)
	defer sup.close()
	cfg.Waiting = sup.waiting
	// Also while it starts.
	defer context.AfterFunc(ctx, func() { sup.stopping(drain + closeTime) })()
	n, err := startWithin(ctx, drain+closeTime, func() (*node.Node, error) { return node.Start(ctx, cfg) })
	if ctx.Err() != nil && errors.Is(err, context.Canceled) { // it was told to
		cfg.Logger.Info("stopped before it served")
		return nil
	}
	if err != nil {
		return nodeFailure(startError(err, cfg))
	}
	if ready != nil {
		err = ready(ctx, n)
	}
	if err == nil {
		sup.ready(n, fmt.Sprintf("serves clients and nodes at %s", n.RPCAddr()))
		select {
		case <-ctx.Done():
		case <-n.Done():
		}
	}
	if failure := n.Err(); node.Stalled(failure) {
		// Requests that hang would hold up the end, and until then nobody else serves the node's tablets.
		cfg.Logger.Error("stopped at once: the disk does not answer", "error", failure)
		return errors.Join(err, nodeFailure(failure))
	}
	sup.stopping(drain + closeTime)
	return errors.Join(err, nodeFailure(n.Err()), a.stop(n, drain, drain+closeTime, cfg.Logger))
}

// closeTime is what a node gets to end its parts, beside the time that requests get to
// finish: 30 s. What it has not ended by then, it has in the commit log.
const closeTime = 30 * time.Second

// startWithin starts a node; when ctx ends it gives up in bounded time, whatever the start
// hangs in.
func startWithin(ctx context.Context, bound time.Duration, start func() (*node.Node, error)) (*node.Node, error) {
	type outcome struct {
		n   *node.Node
		err error
	}
	started := make(chan outcome, 1)
	go func() {
		n, err := start()
		started <- outcome{n, err}
	}()
	select {
	case o := <-started:
		return o.n, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-started:
		return o.n, o.err
	case <-time.After(bound):
		return nil, fmt.Errorf("stopped at once: the start did not end within %v of being told to", bound)
	}
}

// A stoppable is a node that ends.
type stoppable interface {
	Close(context.Context) error
	Err() error
}

// stop drains the node, for so long, and stops it in bounded time, or at once after a
// second signal, the first if it stops since it failed.
func (a *app) stop(n stoppable, drain, bound time.Duration, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	again := make(chan os.Signal, 1)
	signal.Notify(again, signals()...)
	defer signal.Stop(again)
	which := "a second signal"
	if err := n.Err(); err != nil {
		which = "a signal"
		log.Error("stopping, since the node failed: requests under way may finish; a signal stops at once", "within", drain, "error", err)
	} else {
		log.Info("stopping: requests under way may finish; a second signal stops at once", "within", drain)
	}
	closed := make(chan error, 1)
	go func() { closed <- n.Close(ctx) }()
	const recovers = "the next start recovers from the commit log"
	select {
	case err := <-closed:
		if errors.Is(err, context.DeadlineExceeded) {
			log.Warn("stopped before all requests were finished", "after", drain)
			err = nil
		}
		if err == nil {
			log.Info("stopped")
		}
		return err
	case s := <-again:
		return fmt.Errorf("stopped at once by %s (%v); %s", which, s, recovers)
	case <-time.After(bound):
		return fmt.Errorf("stopped at once: the node was not closed within %v; %s", bound, recovers)
	}
}

// nodeFailure returns why a node has failed. What it has not found, such as a file on a disk
// that broke, may be there when it is started again, and who refused it may think better of
// it, unlike the node that was removed, or may not join: other exit codes are none that keep
// the unit from that.
func nodeFailure(err error) error {
	if err == nil || errors.Is(err, node.ErrRemoved) {
		return err
	}
	f := faultOf(err)
	if f.code == exitNotFound || f.code == exitDenied && !mayNotJoin(err) {
		f.code = exitError
	}
	return f
}

// mayNotJoin tells whether a host needs another token to be a node.
func mayNotJoin(err error) bool {
	var refused *client.TokenRefusedError
	return errors.Is(err, node.ErrExpired) || errors.As(err, &refused) || isTokenFormat(err) || errors.Is(err, pki.ErrUntrusted)
}

// startError tells what can be done about a node that did not come up.
func startError(err error, cfg node.Config) error {
	underSystemd := os.Getenv("NOTIFY_SOCKET") != ""
	if errors.As(err, new(*node.MasterKeyError)) { // not about a data folder
		return err
	}
	if underSystemd && (errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		return withHint(err, "the unit may write below /var/lib/stele alone: mount disks there, or \"systemctl edit stele\" and add "+
			"\"[Service]\" and \"ReadWritePaths=FOLDER\"; the folder must belong to the unit's user, stele")
	}
	if errors.Is(err, os.ErrPermission) {
		return withHint(err, fmt.Sprintf(`give a folder of your own with --data-dir (now %s), or try "stele serve --dev"`, cfg.DataDirs[0]))
	}
	return err
}

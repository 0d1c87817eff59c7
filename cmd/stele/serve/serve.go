package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/config"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/disks"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/security/pki"
)

const serveLong = `Run a node until SIGINT or SIGTERM. The node then finishes the requests in progress; a
second signal stops it at once, without losing acknowledged writes.

On a host where "stele init" was run, the node founds the cluster of these keys. Other
nodes join it with --join, and with a token of "stele token create" in --token-file, by
which they get keys of their own. Nodes and clients then authenticate by certificates.

A node without keys is for trials. It listens only on loopback addresses, and has no
access control: every local process can read and write everything. It founds a cluster
of its own, or joins that of the nodes of --join, on this machine. With --expect 3,
three nodes without data and with the same --join found one cluster.

A node with data remembers the other nodes, and needs none of these flags. A node that
waits for others logs their names.

--dev runs a development node: its data is in a temporary folder that is removed when it
stops (unless --data-dir is given), and it has a sample table. --dev --nodes 3 runs a
cluster of three nodes: child processes that exit with this one, with ports ten apart,
and with folders and logs n1, n2 and n3 in the data folder.

Settings also come from the environment (STELE_DATA_DIR, ...) and from
` + config.DefaultFile + `: see "stele help config" and "stele config example".`

const serveExample = `  stele serve --dev
  stele serve --dev --nodes 3
  stele serve --data-dir /data1 --data-dir /data2 --memory 8GiB
  stele serve --data-dir /data1 --listen 0.0.0.0:7106 --gossip 0.0.0.0:7107 --join host1 --token-file token
  stele serve --config ./stele.yaml --log-format json`

func serveCommand(a *cli.App) *cobra.Command {
	dev, nodes := false, 1
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Run a node",
		Long:    serveLong,
		Example: serveExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return serve(a, cmd, dev, nodes)
		},
	}
	cmd.Flags().BoolVar(&dev, "dev", false, "run a development node, with temporary data and a sample table")
	cmd.Flags().IntVar(&nodes, "nodes", 1, "with --dev: run a cluster of this `number` of nodes on this machine")
	config.Register(cmd)
	return cmd
}

// runNode runs a node, a development node, or a development cluster.
func serve(a *cli.App, cmd *cobra.Command, dev bool, nodes int) error {
	c, err := config.Load(cmd, dev)
	if err != nil {
		return err
	}
	if c.CheckPaths(); c.Err() != nil {
		return c.Err()
	}
	cfg, err := c.NodeConfig()
	if err != nil {
		return err
	}
	cfg.Dev = dev
	cfg.Logger = newLogger(a, a.Err, c.Text("log_format"), c.Text("log_level"))
	for _, name := range config.UnknownVariables(os.Environ()) {
		cfg.Logger.Warn(config.UnknownVariableWarning(name))
	}
	if cmd.Flags().Changed("nodes") {
		if !dev {
			return cli.Usagef(`on several hosts: "stele init" on one, and --join with --token-file on the others`, "--nodes needs --dev: several nodes on one machine are for development")
		}
		if nodes != 1 {
			return serveDevCluster(cmd.Context(), a, c, nodes)
		}
	}
	if dev {
		return serveDev(cmd.Context(), a, c, cfg)
	}
	return runNode(cmd.Context(), cfg, c.DrainTimeout(), func(_ context.Context, n *node.Node) error {
		invite(a, c, n.RPCAddr())
		return nil
	})
}

// invite prints how another host joins, if standard error is a terminal and other hosts can reach this
// node.
func invite(a *cli.App, c *config.Config, addr string) {
	if !a.ErrTTY || c.Text("gossip") == "off" || config.IsLoopback(addr) || c.SecurityDir() == "" {
		return
	}
	a.Notef("to add another host, create a token:\n\n  stele token create --addr %s --credential admin.pem --out token\n\ncopy it to the host, and run there:\n\n  %s\n",
		addr, invitation(c, addr))
}

// invitation returns the command by which another host joins the node at addr with a token.
func invitation(c *config.Config, addr string) string {
	words := []string{"stele serve"}
	for _, dir := range c.List("data_dir") {
		words = append(words, "--data-dir", dir)
	}
	for _, key := range []string{"listen", "gossip"} {
		_, port, _ := net.SplitHostPort(c.Text(key)) // validate has checked it
		words = append(words, "--"+key, net.JoinHostPort("0.0.0.0", port))
	}
	return strings.Join(append(words, "--join", addr, "--token-file", "token"), " ")
}

// smallMemory is the memory limit, in bytes, below which the garbage collector begins early, with smallGCPercent instead of 100. On a busy
// machine it exceeds its goal by up to 35 MiB while blocks of 8 MiB are read and written. On larger nodes the
// tenth of the memory that package budget leaves free exceeds that.
const smallMemory, smallGCPercent = 512 << 20, 50

// runNode runs a node until ctx ends or the node fails. It calls ready, if it is not nil, when the node
// serves; an error of ready stops the node.
func runNode(ctx context.Context, cfg node.Config, drain time.Duration, ready func(context.Context, *node.Node) error) error {
	limit, err := cfg.RuntimeMemory()
	if err != nil {
		return nodeFailure(startError(err, cfg))
	}
	debug.SetMemoryLimit(limit)
	if limit < smallMemory {
		debug.SetGCPercent(smallGCPercent)
	}
	sup := newSupervisor(cfg.Logger)
	defer sup.close()
	cfg.Waiting = sup.waiting
	// Notify the supervisor also if ctx ends during the start.
	defer context.AfterFunc(ctx, func() { sup.stopping(drain + closeTimeout) })()
	n, err := startWithin(ctx, drain+closeTimeout, func() (*node.Node, error) { return node.Start(ctx, cfg) })
	if ctx.Err() != nil && errors.Is(err, context.Canceled) { // a signal
		cfg.Logger.Info("stopped during start")
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
	if failure := n.Err(); disks.Stalled(failure) {
		// A graceful stop would wait for requests that hang, and the node's tablets would be unavailable
		// meanwhile.
		cfg.Logger.Error("stopped without draining: disk stalled", "err", failure)
		return errors.Join(err, nodeFailure(failure))
	}
	sup.stopping(drain + closeTimeout)
	return errors.Join(err, nodeFailure(n.Err()), stopNode(n, drain, drain+closeTimeout, cfg.Logger))
}

// closeTimeout bounds the stop of a node's services, in addition to the time for requests: 30 s. Data
// that is not written out by then is in the commit log.
const closeTimeout = 30 * time.Second

// startWithin calls start. If ctx ends first, it waits for start for at most bound and then returns an
// error, even if start hangs.
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
		return nil, fmt.Errorf("stopped during start: it did not return within %v of the signal", bound)
	}
}

// A closer is the part of node.Node that stop needs.
type closer interface {
	Close(context.Context) error
	Err() error
}

// stopNode closes the node. Requests in progress get drain to finish; the whole stop gets bound. A second
// signal ends the wait at once; if the node has failed, the first signal does.
func stopNode(n closer, drain, bound time.Duration, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	again := make(chan os.Signal, 1)
	signal.Notify(again, cli.Signals()...)
	defer signal.Stop(again)
	which := "a second signal"
	if err := n.Err(); err != nil {
		which = "a signal"
		log.Error("stopping after a failure; a signal stops at once", "drain_timeout", drain, "err", err)
	} else {
		log.Info("stopping; a second signal stops at once", "drain_timeout", drain)
	}
	closed := make(chan error, 1)
	go func() { closed <- n.Close(ctx) }()
	const recovers = "the next start recovers from the commit log"
	select {
	case err := <-closed:
		return closedWith(err, drain, log)
	case s := <-again:
		return fmt.Errorf("stopped at once by %s (%v); %s", which, s, recovers)
	case <-time.After(bound):
		return fmt.Errorf("stopped at once: the node did not close within %v; %s", bound, recovers)
	}
}

// closedWith logs the end of the node. Requests that did not finish in time are no error.
func closedWith(err error, drain time.Duration, log *slog.Logger) error {
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests in progress aborted", "drain_timeout", drain)
		err = nil
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// nodeFailure returns the error of a failed node with an exit code for systemd. The unit does not
// restart the node after exitNotFound or exitDenied. These codes stay for a removed node and a
// rejected token, which a restart cannot fix. Others become exitError: a missing file may be on a disk
// that comes back, and a permission may be granted.
func nodeFailure(err error) error {
	if err == nil || errors.Is(err, removal.ErrRemoved) {
		return err
	}
	f := cli.FaultOf(err)
	if f.Code == cli.ExitNotFound || f.Code == cli.ExitDenied && !needsToken(err) {
		f.Code = cli.ExitError
	}
	return f
}

// needsToken reports whether the host needs another token to join.
func needsToken(err error) bool {
	var refused *client.TokenRefusedError
	return errors.Is(err, enrol.ErrExpired) || errors.As(err, &refused) || cli.IsTokenFormat(err) || errors.Is(err, pki.ErrUntrusted)
}

// startError adds a hint to the error of a failed start.
func startError(err error, cfg node.Config) error {
	underSystemd := os.Getenv("NOTIFY_SOCKET") != ""
	if errors.As(err, new(*masterkeys.Error)) { // not about a data folder
		return err
	}
	if underSystemd && (errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		return cli.WithHint(err, "the unit can write only below /var/lib/stele: mount disks there, or run \"systemctl edit stele\" and add "+
			"\"[Service]\" and \"ReadWritePaths=FOLDER\"; the unit's user, stele, must own the folder")
	}
	if errors.Is(err, os.ErrPermission) {
		return cli.WithHint(err, fmt.Sprintf(`name a writable folder with --data-dir (now %s), or try "stele serve --dev"`, cfg.DataDirs[0]))
	}
	return err
}

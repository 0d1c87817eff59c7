package locks

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

func lockCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lock",
		Short: "Use the lock service: small files, locks and events",
		Long: `Use the lock service: a tree of small files (up to 256 KiB), replicated on a majority of
the cluster's voters. Each file is also a lock. Paths begin with a slash; creating a
file creates the directories above it.

The cluster keeps its own files in this tree (see docs/rpc.md): do not change them. Use
paths below /locks; a cluster with certificates allows no others.

Exit codes, besides those of "stele --help": 11 the generation of the file or the
sequencer of the lock does not match, 7 the lock was not acquired in time.`,
		Example: `  stele lock set /locks/config 'replicas: 3'
  stele lock get /locks/config
  stele lock hold /locks/nightly --wait 10m -- ./nightly.sh`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(getCommand(a), setCommand(a), removeCommand(a), listCommand(a),
		statCommand(a), watchCommand(a), holdCommand(a), checkCommand(a))
	return cmd
}

// retryMax is how long a command retries to find a leader: as long as other commands retry to reach
// a node, and longer than an election.
const retryMax = 15 * time.Second

// newClient returns a client of the lock service at --addr.
func newClient(a *cli.App) (*session.Client, error) {
	addrs, err := cli.WithPorts(a.Addr)
	if err != nil {
		return nil, err
	}
	var d dialer
	if err := a.SetCredential(&d.as); err != nil {
		return nil, err
	}
	return session.NewClient(session.Config{
		Dialer:  d,
		Locator: session.Addresses(strings.Split(addrs, ",")), RetryTimeMax: retryMax,
		Logger: slog.New(slog.DiscardHandler), // the commands report errors themselves
	})
}

// dialer connects to voters with a credential.
type dialer struct{ as client.Config }

// Dial implements session.Dialer. Errors of authentication wrap session.ErrRefused, which is not
// retried.
func (d dialer) Dial(ctx context.Context, addr string) (session.Peer, error) {
	conn, err := d.as.Connect(ctx, addr)
	if err != nil && cli.FaultOfIdentity(err) != nil {
		err = fmt.Errorf("%w: %w", session.ErrRefused, err)
	}
	if err != nil {
		return session.Peer{}, err
	}
	return session.Peer{Service: api.Remote(conn), Close: conn.Close}, nil
}

// callLocks runs f with a client of the lock service. usual is the timeout unless --timeout is given.
func callLocks(a *cli.App, cmd *cobra.Command, usual time.Duration, f func(context.Context, *session.Client) error) error {
	ctx, cancel := a.Within(cmd, usual)
	defer cancel()
	c, err := newClient(a)
	if err != nil {
		return err
	}
	defer c.Close()
	return ofUsers(f(ctx, c))
}

// ofUsers adds the next step to the error for a path that users cannot access, whatever their rights.
func ofUsers(err error) error {
	if err != nil && cli.FaultOf(err).Code == cli.ExitDenied && strings.Contains(err.Error(), "is reserved for the cluster") { // the lock service has no code for it
		return cli.WithHint(err, `"stele lock ls /locks" lists the paths of users`)
	}
	return err
}

// statJSON is the --json form of a node of the namespace. Unlike api.Stat it has the state of the lock as
// one word. Value is set only for the content of a file.
type statJSON struct {
	Path           string   `json:"path"`
	Directory      bool     `json:"directory"`
	Instance       uint64   `json:"instance"`
	Generation     uint64   `json:"generation"`
	LockGeneration uint64   `json:"lock_generation"`
	ACLGeneration  uint64   `json:"acl_generation"`
	ACL            string   `json:"acl,omitempty"`
	Bytes          int      `json:"bytes"`
	Children       int      `json:"children"`
	EphemeralOf    uint64   `json:"ephemeral_of,omitempty"`
	Lock           string   `json:"lock"`
	Holders        []uint64 `json:"holders,omitempty"`
	Value          *string  `json:"value,omitempty"`
	ValueBytes     *[]byte  `json:"value_base64,omitempty"`
}

func statOf(s *api.Stat) statJSON {
	j := statJSON{
		Path: s.Path, Directory: s.Dir, Instance: s.Instance, Generation: s.Generation, LockGeneration: s.LockGeneration,
		ACLGeneration: s.ACLGeneration, ACL: s.ACL, Bytes: s.Bytes, Children: s.Children, EphemeralOf: uint64(s.Ephemeral),
		Lock: lockState(s),
	}
	for _, h := range s.Holders {
		j.Holders = append(j.Holders, uint64(h))
	}
	return j
}

func lockState(s *api.Stat) string {
	switch {
	case s.Lock == 0:
		return "free"
	case len(s.Holders) == 0:
		return "delayed"
	}
	return s.Lock.String()
}

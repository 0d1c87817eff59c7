package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

func (a *app) lockCommand() *cobra.Command {
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
		Args: unknownCommand,
		RunE: requireSubcommand,
	}
	cmd.AddCommand(a.lockGetCommand(), a.lockSetCommand(), a.lockRemoveCommand(), a.lockListCommand(),
		a.lockStatCommand(), a.lockWatchCommand(), a.lockHoldCommand(), a.lockCheckCommand())
	return cmd
}

// lockRetry is how long a command retries to find a leader: as long as other commands retry to reach
// a node, and longer than an election.
const lockRetry = 15 * time.Second

// lockClient returns a client of the lock service at --addr.
func (a *app) lockClient() (*session.Client, error) {
	addrs, err := withPorts(a.addr)
	if err != nil {
		return nil, err
	}
	var d lockDialer
	if err := a.setCredential(&d.as); err != nil {
		return nil, err
	}
	return session.NewClient(session.Config{
		Dialer:  d,
		Locator: session.Addresses(strings.Split(addrs, ",")), RetryTimeMax: lockRetry,
		Logger: slog.New(slog.DiscardHandler), // the commands report errors themselves
	})
}

// lockDialer connects to voters with a credential.
type lockDialer struct{ as client.Config }

// Dial implements session.Dialer. Errors of authentication wrap session.ErrRefused, which is not
// retried.
func (d lockDialer) Dial(ctx context.Context, addr string) (session.Peer, error) {
	conn, err := d.as.Connect(ctx, addr)
	if err != nil && faultOfIdentity(err) != nil {
		err = fmt.Errorf("%w: %w", session.ErrRefused, err)
	}
	if err != nil {
		return session.Peer{}, err
	}
	return session.Peer{Service: api.Remote(conn), Close: conn.Close}, nil
}

// locks runs f with a client of the lock service. The timeout is that of within.
func (a *app) locks(cmd *cobra.Command, usual time.Duration, f func(context.Context, *session.Client) error) error {
	ctx, cancel := a.within(cmd, usual)
	defer cancel()
	c, err := a.lockClient()
	if err != nil {
		return err
	}
	defer c.Close()
	return f(ctx, c)
}

// faultOfLock maps errors of the lock service.
func faultOfLock(err error) *fault {
	var unreachable *session.UnreachableError
	var held *api.LockedError
	switch {
	case errors.Is(err, api.ErrOutcomeUnknown):
		f := &fault{code: exitError, hint: `check by "stele lock get" whether it took effect`}
		if errors.Is(err, context.DeadlineExceeded) {
			f.code = exitTimeout
		}
		return f
	case errors.As(err, &held):
		return &fault{code: exitTimeout, err: held, hint: "wait for it with --wait, or wait longer"}
	case errors.As(err, &unreachable) && errors.Is(unreachable.Err, session.ErrRefused): // report it as other commands do
		return faultOfIdentity(&client.UnreachableError{Addr: unreachable.Addr, Err: unreachable.Err})
	case errors.As(err, &unreachable):
		return &fault{
			code: exitUnreachable,
			hint: `is "stele serve" running there? try "systemctl status stele" or --addr`,
			err:  fmt.Errorf("cannot reach %s: %s", unreachable.Addr, networkReason(unreachable.Err)),
		}
	case errors.Is(err, api.ErrGeneration):
		return &fault{code: exitConflict, hint: `"stele lock stat" shows the generation`}
	case errors.Is(err, api.ErrNotFound):
		return &fault{code: exitNotFound, hint: `"stele lock ls" and "stele lock stat" show the existing files`}
	case errors.Is(err, api.ErrStale):
		return &fault{code: exitConflict, hint: "the holder has lost the lock: reject its requests"}
	case errors.Is(err, api.ErrSystemFile):
		return &fault{code: exitUsage, hint: `use "stele table", "stele node" or "stele raft" to change the cluster's own files`}
	case errors.Is(err, api.ErrBadPath), errors.Is(err, api.ErrTooLarge):
		return &fault{code: exitUsage}
	case errors.Is(err, api.ErrIsDirectory):
		return &fault{code: exitError, hint: `"stele lock ls" lists a directory`}
	case errors.Is(err, api.ErrNotEmpty):
		return &fault{code: exitError, hint: "remove its entries first"}
	case errors.Is(err, api.ErrDiskFull):
		return &fault{code: exitDiskFull, hint: "free or add disk space on the voters"}
	case errors.Is(err, session.ErrExpired):
		return &fault{code: exitUnhealthy, hint: `the lock service had no leader for too long, or this process was paused: see "stele status"`}
	case errors.Is(err, api.ErrNotReady):
		return &fault{code: exitUnhealthy, hint: `a majority of the voters must be up: see "stele status"`}
	}
	return nil
}

// statJSON is the --json form of a node of the namespace. Value is set only for the content of a file.
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

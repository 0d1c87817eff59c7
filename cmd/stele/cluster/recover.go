package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/raftmeta"
)

const raftRecoverLong = `Recover the lock service from the log of one voter, when a majority of the voters is
lost for good. Without a majority the lock service cannot commit anything. If enough
voters can be started again, start them instead: then nothing is lost.

Procedure:

  1. Stop all remaining nodes.
  2. On each remaining voter, run this command with --dry-run. It prints the term and the
     index of the last entry in the voter's log. Choose the voter with the highest term,
     and among those the highest index: it loses least.
  3. Recover that voter, and start it. Then start the other nodes. They detect the
     recovery, set their old logs aside for 7 days, and may become voters again.

Entries that the lost voters committed after the last entry are lost: tables and changes
of schemas, files and locks of the lock service, and changes of the file lists of
tablets. A tablet whose latest file list is lost may lack rows, or fail to load.

Never start other former voters while they cannot reach the recovered node. A majority
of them would continue without it, and there would be two clusters.

The node must be stopped. Name all its data folders.`

const raftRecoverExample = `  stele raft recover --data-dir /var/lib/stele --dry-run
  stele raft recover --data-dir /data1 --data-dir /data2
  stele raft recover --data-dir /var/lib/stele --yes --json`

func raftRecoverCommand(a *cli.App) *cobra.Command {
	var dirs []string
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:     "recover --data-dir DIR...",
		Short:   "Recover the lock service from one voter after the loss of a majority",
		Long:    raftRecoverLong,
		Example: raftRecoverExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(dirs) == 0 {
				return cli.Usagef("for example: "+cli.FirstExample(cmd), "--data-dir is missing")
			}
			ctx, cancel := a.Within(cmd, cli.NoTimeout)
			defer cancel()
			return confirmRecovery(ctx, a, dirs, yes, dryRun)
		},
	}
	cmd.Flags().StringArrayVar(&dirs, "data-dir", nil, "data `folder` of the node; may be repeated")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what the node's log contains and what would be lost, and change nothing")
	return cmd
}

// confirmRecovery prints what a recovery would do, and does it after confirmation.
func confirmRecovery(ctx context.Context, a *cli.App, dirs []string, yes, dryRun bool) error {
	r, err := inspectRecovery(ctx, dirs)
	if err != nil {
		return err
	}
	if dryRun {
		return printRecovery(a, r, "would make")
	}
	if !a.JSON {
		if err := printRecovery(a, r, "this makes"); err != nil {
			return err
		}
		if err := a.Out.Flush(); err != nil {
			return err
		}
	}
	if err := a.Confirm(yes, "Recover the lock service from this node?"); err != nil {
		return err
	}
	return recoverGroup(ctx, a, r)
}

// recovery is the recovery of the lock service from a node's folders.
type recovery struct {
	folders *identity.Folders
	cfg     raftmeta.Config
	seen    *raftmeta.Recovery
	// again is true if the node is already the only voter: an earlier recovery may have been
	// interrupted before it raised the epoch.
	again bool
}

func inspectRecovery(ctx context.Context, dirs []string) (*recovery, error) {
	f, err := identity.Inspect(dirs)
	if err != nil {
		return nil, err
	}
	if !f.Voter() {
		return nil, cli.WithHint(fmt.Errorf("the node of %s is not a voter: its folders have no log of the lock service", strings.Join(dirs, " ")),
			"use the folders of a voter")
	}
	r := &recovery{folders: f, cfg: raftmeta.Config{Dir: f.RaftDir(), ID: f.Node}}
	r.seen, err = raftmeta.Inspect(ctx, r.cfg)
	if errors.Is(err, raftmeta.ErrOnlyVoter) {
		r.again, err = true, nil
		r.seen = &raftmeta.Recovery{Server: f.Node}
	}
	return r, err
}

// recoveryJSON is the --json form of a recovery: fields of the folders, the log and the outcome.
type recoveryJSON struct {
	Node        string   `json:"node"` // an id
	Cluster     string   `json:"cluster"`
	LastTerm    uint64   `json:"last_term"`
	LastIndex   uint64   `json:"last_index"`
	OtherVoters []string `json:"other_voters"`
	OnlyVoter   bool     `json:"only_voter"` // before the recovery
	Recovered   bool     `json:"recovered"`
	RaftEpoch   uint64   `json:"raft_epoch"`
}

func (r *recovery) json() recoveryJSON {
	return recoveryJSON{
		Node: r.seen.Server, Cluster: r.folders.Cluster, LastTerm: r.seen.LastTerm, LastIndex: r.seen.LastIndex,
		OtherVoters: append([]string{}, r.seen.Voters...), OnlyVoter: r.again, RaftEpoch: r.folders.RaftEpoch,
	}
}

// printRecovery prints what the recovery does and what may be lost.
func printRecovery(a *cli.App, r *recovery, makes string) error {
	if a.JSON {
		return a.PrintJSON(r.json())
	}
	if r.again {
		_, err := fmt.Fprintf(a.Out, "node %s is already the only voter of the lock service of cluster %s: nothing is lost; an interrupted recovery is completed\n",
			cli.EscapeText(r.seen.Server), cli.EscapeText(r.folders.Cluster))
		return err
	}
	_, err := fmt.Fprintf(a.Out, "%s node %s the only voter of the lock service of cluster %s\n"+
		"  it has all entries up to index %d of term %d\n"+
		"  later entries are lost if they were committed by the other voters: %s\n"+
		"  these may be tables and changes of schemas, files and locks, and file lists of tablets, which may then lack rows or fail to load\n",
		makes, cli.EscapeText(r.seen.Server), cli.EscapeText(r.folders.Cluster), r.seen.LastIndex, r.seen.LastTerm, cli.EscapeText(strings.Join(r.seen.Voters, ", ")))
	return err
}

// recoverGroup makes the node the only voter, then raises the epoch of the group. The order matters: a node
// with the higher epoch and the old log would make others discard their logs. If it is
// interrupted in between, the next call completes it.
func recoverGroup(ctx context.Context, a *cli.App, r *recovery) error {
	if !r.again {
		done, err := raftmeta.Recover(ctx, r.cfg)
		if err != nil {
			return err
		}
		r.seen = done
	}
	if err := r.folders.SetRaftEpoch(r.folders.RaftEpoch + 1); err != nil {
		return cli.WithHint(fmt.Errorf("raise the epoch of the group: %w", err), "do not start the node: run the same command again to complete the recovery")
	}
	if a.JSON {
		j := r.json()
		j.Recovered = true
		return a.PrintJSON(j)
	}
	if !r.again {
		a.Notef("recovered %s in %s, %s", cli.Plural(int64(r.seen.Files), "file"), cli.Plural(int64(r.seen.Directories), "directory"), cli.FormatSize(r.seen.Bytes))
	}
	a.Notef("start this node now; start other nodes only when they can reach it")
	return nil
}

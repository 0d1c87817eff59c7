package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/raftmeta"
)

func (a *app) raftRecoverCommand() *cobra.Command {
	var dirs []string
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "recover --data-dir DIR...",
		Short: "Found the lock service anew from one voter, when most voters are lost for good",
		Long: `Found the lock service anew from what one voter has, when a majority of the voters
is lost for good: without one nothing is agreed on any more. If enough of them can
be started again, start them instead: then nothing is lost.

How to go about it:

  1. Stop all nodes that are left.
  2. On each voter that is left run this with --dry-run: it tells the term and the
     entry up to which the voter knows everything. The highest term loses least, and
     of several with that the highest entry.
  3. Recover that one, and start it. Then start the others: they hear that the group
     was founded anew, set their old logs aside, and may vote again.

What can be lost is what the lost voters had agreed on after that entry: tables and
changes of schemas, files and locks of the lock service, and which files a tablet
consists of. A tablet whose latest files are not known may lack rows, or not open.

Never start other voters of before while they cannot reach the recovered node: if
they are a majority they go on without it, and there are two clusters.

The node must be stopped. Give all its data folders.`,
		Example: `  stele raft recover --data-dir /var/lib/stele --dry-run
  stele raft recover --data-dir /data1 --data-dir /data2
  stele raft recover --data-dir /var/lib/stele --yes --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(dirs) == 0 {
				return usagef("for example: "+firstExample(cmd), "no data folder given: want --data-dir")
			}
			ctx, cancel := a.within(cmd, patient)
			defer cancel()
			r, err := inspectRecovery(ctx, dirs)
			if err != nil {
				return err
			}
			if dryRun {
				return a.printRecovery(r, "would make")
			}
			if !a.json {
				if err := a.printRecovery(r, "this makes"); err != nil {
					return err
				}
				if err := a.out.Flush(); err != nil {
					return err
				}
			}
			if err := a.confirm(yes, "Recover the lock service from this node?"); err != nil {
				return err
			}
			return a.recover(ctx, r)
		},
	}
	cmd.Flags().StringArrayVar(&dirs, "data-dir", nil, "data `folder` of the node; may be given several times")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only tell what this node knows and what would be lost")
	return cmd
}

// recovery is a lock service that is to be founded anew from a node's folders.
type recovery struct {
	folders *identity.Folders
	cfg     raftmeta.Config
	seen    *raftmeta.Recovery
	// again tells that the node is the only voter already: an earlier recovery may have
	// been broken off before the epoch was raised.
	again bool
}

func inspectRecovery(ctx context.Context, dirs []string) (*recovery, error) {
	f, err := identity.Inspect(dirs)
	if err != nil {
		return nil, err
	}
	if !f.Voter() {
		return nil, withHint(fmt.Errorf("the node of %s does not vote: its folders hold no log of the lock service", strings.Join(dirs, " ")),
			"recover from the folders of a voter")
	}
	r := &recovery{folders: f, cfg: raftmeta.Config{Dir: f.RaftDir(), ID: f.Node}}
	r.seen, err = raftmeta.Inspect(ctx, r.cfg)
	if errors.Is(err, raftmeta.ErrOnlyVoter) {
		r.again, err = true, nil
		r.seen = &raftmeta.Recovery{Server: f.Node}
	}
	return r, err
}

// recoveryJSON is a recovery as --json prints it.
type recoveryJSON struct {
	Node        string   `json:"node"` // ids
	Cluster     string   `json:"cluster"`
	LastTerm    uint64   `json:"last_term"`
	LastIndex   uint64   `json:"last_index"`
	OtherVoters []string `json:"other_voters"`
	OnlyVoter   bool     `json:"only_voter"` // already, before the recovery
	Recovered   bool     `json:"recovered"`
	RaftEpoch   uint64   `json:"raft_epoch"`
}

func (r *recovery) json() recoveryJSON {
	return recoveryJSON{
		Node: r.seen.Server, Cluster: r.folders.Cluster, LastTerm: r.seen.LastTerm, LastIndex: r.seen.LastIndex,
		OtherVoters: append([]string{}, r.seen.Voters...), OnlyVoter: r.again, RaftEpoch: r.folders.RaftEpoch,
	}
}

// printRecovery tells what would be done, and what may be lost.
func (a *app) printRecovery(r *recovery, makes string) error {
	if a.json {
		return a.printJSON(r.json())
	}
	if r.again {
		_, err := fmt.Fprintf(a.out, "node %s is the only voter of the lock service of cluster %s already: nothing is lost; a recovery that was broken off is finished\n",
			escapeText(r.seen.Server), escapeText(r.folders.Cluster))
		return err
	}
	_, err := fmt.Fprintf(a.out, "%s node %s the only voter of the lock service of cluster %s\n"+
		"  it knows everything up to entry %d of term %d\n"+
		"  lost is what was agreed on after that without it, by the other voters: %s\n"+
		"  that may be tables and changes of schemas, files and locks, and which files tablets consist of: such tablets may lack rows or not open\n",
		makes, escapeText(r.seen.Server), escapeText(r.folders.Cluster), r.seen.LastIndex, r.seen.LastTerm, escapeText(strings.Join(r.seen.Voters, ", ")))
	return err
}

// recover makes the node the only voter, then raises the epoch of the group. That
// comes second: with a higher epoch and the old log the node would have others give
// up theirs. When it is broken off in between, the next call does the rest.
func (a *app) recover(ctx context.Context, r *recovery) error {
	if !r.again {
		done, err := raftmeta.Recover(ctx, r.cfg)
		if err != nil {
			return err
		}
		r.seen = done
	}
	if err := r.folders.SetRaftEpoch(r.folders.RaftEpoch + 1); err != nil {
		return withHint(fmt.Errorf("raise the epoch of the group: %w", err), "do not start the node yet: run the same command again, which does the rest")
	}
	if a.json {
		j := r.json()
		j.Recovered = true
		return a.printJSON(j)
	}
	if !r.again {
		a.talk("recovered %s in %s, %s", plural(int64(r.seen.Files), "file"), plural(int64(r.seen.Directories), "directory"), formatSize(r.seen.Bytes))
	}
	a.talk("start this node now; start other nodes only when they can reach it")
	return nil
}

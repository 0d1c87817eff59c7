package blobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
)

func fsckCommand(a *cli.App) *cobra.Command {
	var deep, verbose bool
	cmd := &cobra.Command{
		Use:   "fsck",
		Short: "Check the replicas of all extents in the block store",
		Long: `Check that every extent of tables, blobs and commit logs has enough good replicas. Each
node reports the replicas that it holds; with --deep it also reads and verifies all
their bytes. The command also counts blobs that nothing references. It changes nothing,
and the cluster serves requests meanwhile. Nodes repair damage on their own, where a
good replica exists.

The first lines list extents that are lost, unreachable or corrupt, and with --verbose
also those that are under-replicated. The last line is a summary. Exit codes: 0 all
extents are readable, some may be under-replicated; 5 an extent is lost, unreachable, or
corrupt on some node.`,
		Example: `  stele blob fsck
  stele blob fsck --deep
  stele blob fsck --json | jq 'select(.state == "lost")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return fsck(ctx, a, c, deep, verbose)
			})
		},
	}
	cmd.Flags().BoolVar(&deep, "deep", false, "read and verify all bytes of all replicas")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also list under-replicated extents")
	return cmd
}

// fsckRun is one check of the whole store.
type fsckRun struct {
	a       *cli.App
	verbose bool
	tally   tally
	// away counts, by node, the replicas that could not be queried; missing those that the node lacks.
	unreachable, missing map[string]int64
	unnamed              []client.BlobInfo
	silent               []string
}

func fsck(ctx context.Context, a *cli.App, c *client.Client, deep, verbose bool) error {
	start := time.Now()
	r := &fsckRun{a: a, verbose: verbose, unreachable: map[string]int64{}, missing: map[string]int64{}}
	var n fsckCounts
	p := a.NewProgress("checking")
	p.Start(1000, n.state)
	stop := sync.OnceFunc(p.Stop)
	defer stop()
	for after := ""; ; {
		s, err := c.BlockStore().Fsck(ctx, after, deep)
		if err != nil {
			return err
		}
		n.files.Store(s.Done)
		n.total.Store(s.Total)
		n.extents.Add(s.Extents)
		n.bytes.Add(s.Bytes)
		r.take(s, p)
		if after = s.Next; after == "" {
			break
		}
	}
	stop()
	return r.report(time.Since(start))
}

// fsckCounts counts what a check has covered so far.
type fsckCounts struct{ files, total, extents, bytes atomic.Int64 }

// state returns the progress, in thousandths, and a text about it.
func (n *fsckCounts) state() (int64, string) {
	if n.total.Load() == 0 {
		return 0, "listing files"
	}
	return n.files.Load() * 1000 / max(1, n.total.Load()),
		fmt.Sprintf("%s of %s files of the lock service, %s extents, %s", cli.FormatCount(n.files.Load()), cli.FormatCount(n.total.Load()), cli.FormatCount(n.extents.Load()), cli.FormatSize(n.bytes.Load()))
}

func (r *fsckRun) take(s *client.FsckStep, p *cli.Progress) {
	t := &r.tally
	t.Extents += s.Extents
	t.Bytes += s.Bytes
	t.Good += s.Replicas
	for i := range s.Findings {
		f := &s.Findings[i]
		state := t.classify(&f.ExtentInfo)
		for _, x := range f.Replicas {
			switch x.State {
			case api.ReplicaUnreachable:
				r.unreachable[x.Name]++
			case api.ReplicaMissing:
				r.missing[x.Name]++
			}
		}
		r.print(state, f, p)
	}
	r.unnamed = append(r.unnamed, s.Unnamed...)
	for _, node := range s.Silent {
		if !slices.Contains(r.silent, node) {
			r.silent = append(r.silent, node)
		}
	}
}

func (r *fsckRun) print(state string, f *api.BlobFinding, p *cli.Progress) {
	a := r.a
	sortReplicas(&f.ExtentInfo)
	if a.JSON {
		_ = a.PrintJSON(struct {
			State string `json:"state"` // under_replicated, damaged, unreachable or lost
			*api.BlobFinding
		}{state, f})
		return
	}
	if state == extentUnder && !r.verbose {
		return
	}
	var replicas []string
	for _, n := range f.Replicas {
		text := n.Name + " " + replicaState(n.State)
		if n.File != "" {
			text += fmt.Sprintf(" (%s at offset %d)", n.File, n.Offset)
		}
		replicas = append(replicas, text)
	}
	line := fmt.Sprintf("%s: extent %d of %s: %s", strings.ReplaceAll(state, "_", "-"), f.Index, findingWhat(f), cli.OrElse(strings.Join(replicas, ", "), "no replica on any node"))
	if a.OutTTY {
		p.Notef("%s", line)
		return
	}
	fmt.Fprintln(a.Out, cli.EscapeLines(line))
}

// findingWhat returns what an extent is part of, for messages.
func findingWhat(f *api.BlobFinding) string {
	switch f.Kind {
	case api.BlobOfTable:
		return "SSTable " + f.ID + " of " + cli.OrElse(prefixed("table ", f.Name), "a dropped table")
	case api.BlobOfBackup:
		return "blob " + f.ID + " of backup " + f.Name
	case api.BlobOfLog:
		return "commit log " + f.ID + " of " + f.Name
	}
	if f.Name == "" {
		return "blob " + f.ID
	}
	return "blob " + f.ID + " (" + f.Name + ")"
}

// freshBlob is the age below which an unreferenced blob may still be in the process of being stored.
const freshBlob = time.Hour

func (r *fsckRun) report(took time.Duration) error {
	a, t := r.a, &r.tally
	var fresh, garbage, garbageBytes int64
	for i := range r.unnamed {
		if time.Since(r.unnamed[i].Created) < freshBlob {
			fresh++
		} else {
			garbage++
			garbageBytes += r.unnamed[i].Bytes
		}
	}
	if a.JSON {
		err := a.PrintJSON(struct {
			tallyJSON
			Unnamed      int64    `json:"unnamed_blobs"`
			UnnamedBytes int64    `json:"unnamed_bytes"`
			Fresh        int64    `json:"fresh_blobs"`
			Silent       []string `json:"silent_nodes"`
			Seconds      float64  `json:"seconds"`
		}{t.json(), garbage, garbageBytes, fresh, append([]string{}, r.silent...), took.Seconds()})
		return errors.Join(err, t.fault())
	}
	for _, node := range slices.Sorted(maps.Keys(r.unreachable)) {
		a.Notef("%s does not answer: the state of %s is unknown", node, cli.Plural(r.unreachable[node], "replica"))
	}
	for _, node := range slices.Sorted(maps.Keys(r.missing)) {
		a.Notef("%s lacks %s that it should hold", node, cli.Plural(r.missing[node], "replica"))
	}
	if garbage > 0 {
		a.Notef(`garbage: %s with %s, which the nodes will remove; "stele blob ls --all" lists them`, cli.Plural(garbage, "blob"), cli.FormatSize(garbageBytes))
	}
	if fresh > 0 {
		a.Notef("unreferenced: %s written in the last hour, still being stored or garbage", cli.Plural(fresh, "blob"))
	}
	if t.Lost > 0 {
		a.Notef("lost extents can be recovered only from the disks of a node that had a replica: start every node that is down, and put back every disk that was removed")
	}
	if t.Unreadable > 0 {
		a.Notef(`start the nodes that do not answer: "stele node list" shows them`)
	}
	_, err := fmt.Fprintf(a.Out, "%s, checked in %s\n", t.sentence(a, a.OutTTY, "block store"), text.Duration(took))
	return errors.Join(err, t.fault())
}

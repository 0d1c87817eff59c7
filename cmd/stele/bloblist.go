package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

func (a *app) blobListCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List blobs",
		Long: `List the blobs that were stored by "stele blob put", in order of their ids. With --all,
list every blob that the nodes hold: also files of tables, and unreferenced blobs, which
are being written or are garbage that the nodes will remove. REPLICAS is the number of
replicas of the extent that has the fewest.`,
		Example: `  stele blob ls
  stele blob ls --all
  stele blob ls --json | jq -r 'select(.name == "backup.tar") | .id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, noTimeout, func(ctx context.Context, c *client.Client) error {
				return a.listBlobs(ctx, c, all)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list all blobs that the nodes hold, including files of tables and garbage")
	return cmd
}

func (a *app) listBlobs(ctx context.Context, c *client.Client, all bool) error {
	g := newGrid("ID", "BYTES", "NAME", "STORED")
	if all {
		g = newGrid("ID", "BYTES", "EXTENTS", "REPLICAS", "WHAT", "WRITTEN")
	}
	var silent []string
	blobs, bytes := int64(0), int64(0)
	for after := ""; ; {
		p, err := c.Blobs(ctx, after, all)
		if err != nil {
			return err
		}
		silent = p.Silent
		for i := range p.Blobs {
			b := &p.Blobs[i]
			blobs, bytes = blobs+1, bytes+b.Bytes
			switch {
			case a.json:
				j := blobOf(b)
				if all {
					j.Replicas = &b.Replicas
				}
				if err := a.printJSON(j); err != nil {
					return err
				}
			case all:
				g.add(b.ID, size(b.Bytes), count(b.Extents), count(b.Replicas), blobWhat(b), formatTime(b.Created))
			default:
				g.add(b.ID, size(b.Bytes), b.Name, formatTime(b.Created))
			}
		}
		if after = p.Next; after == "" {
			break
		}
	}
	if len(silent) > 0 {
		a.notef("incomplete: no answer from %s; blobs that only these nodes hold are not listed, and their replicas are not counted", strings.Join(silent, ", "))
	}
	if a.json {
		return nil
	}
	switch {
	case blobs > 0:
		a.notef("%s, %s", plural(blobs, "blob"), formatSize(bytes))
	case all:
		a.notef("the nodes hold no blob")
	default:
		a.notef(`no blobs stored; "stele blob put FILE" stores one, "stele blob ls --all" lists the files of tables`)
	}
	return a.print(g)
}

// blobWhat returns the kind and name of a blob, for messages.
func blobWhat(b *client.BlobInfo) string {
	switch b.Kind {
	case api.BlobOfTable:
		return "SSTable of " + orElse(b.Name, "a dropped table")
	case api.BlobOfUser:
		return "blob " + orElse(b.Name, "without a name")
	}
	return "unreferenced"
}

func formatTime(t time.Time) string {
	if t.UnixMilli() <= 0 {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

func (a *app) blobStatCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "stat ID",
		Aliases: []string{"show"},
		Short:   "Show a blob's extents and where their replicas are",
		Long: `Show a blob, its extents, and the state of each replica: good, missing, corrupt, or
unreachable if the node does not answer. The nodes look at the files, but do not read
them: use "stele blob verify" for that.

The id may also be that of a file of a table: see "stele blob ls --all".

Exit codes: 0 the blob is readable, 5 an extent is lost, unreachable, or corrupt on some
node.`,
		Example: `  stele blob stat 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65
  stele blob stat 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65 --json | jq '.parts[].replicas'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeBlob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, noTimeout, func(ctx context.Context, c *client.Client) error {
				return a.statBlob(ctx, c, args[0])
			})
		},
	}
}

// extentJSON is the --json form of an extent, with the field names of the data API.
type extentJSON struct {
	Index    int64         `json:"index"`
	Bytes    int64         `json:"bytes"`
	Wanted   int64         `json:"wanted"`
	Replicas []replicaJSON `json:"replicas"`
}

type replicaJSON struct {
	Node   string `json:"node"`
	Name   string `json:"name"`
	State  string `json:"state"`
	File   string `json:"file,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func extentOf(x *client.ExtentInfo) extentJSON {
	j := extentJSON{Index: x.Index, Bytes: x.Bytes, Wanted: x.Wanted, Replicas: []replicaJSON{}}
	slices.SortStableFunc(x.Replicas, func(a, b client.ReplicaInfo) int { return strings.Compare(a.Name, b.Name) })
	for _, r := range x.Replicas {
		j.Replicas = append(j.Replicas, replicaJSON(r))
	}
	return j
}

// eachExtent calls each for all extents of a blob. It requests batch extents at a time.
func eachExtent(ctx context.Context, c *client.Client, id string, batch int, deep bool, each func(b *client.BlobInfo, x *client.ExtentInfo)) (*client.BlobInfo, error) {
	for from := 0; ; from += batch {
		s, err := c.StatBlob(ctx, id, from, batch, deep)
		if err != nil {
			return nil, err
		}
		for i := range s.Parts {
			each(&s.BlobInfo, &s.Parts[i])
		}
		if int64(from+batch) >= s.Extents {
			return &s.BlobInfo, nil
		}
	}
}

func (a *app) statBlob(ctx context.Context, c *client.Client, id string) error {
	var t tally
	var parts []extentJSON
	g := newGrid("EXTENT", "BYTES", "GOOD", "REPLICAS")
	b, err := eachExtent(ctx, c, id, api.BlobStatCount, false, func(_ *client.BlobInfo, x *client.ExtentInfo) {
		t.add(x)
		parts = append(parts, extentOf(x))
		var replicas []string
		for i := range x.Replicas {
			replicas = append(replicas, x.Replicas[i].Name+" "+replicaState(x.Replicas[i].State))
		}
		g.add(count(x.Index), size(x.Bytes), fmt.Sprintf("%d of %d", x.Count(api.ReplicaGood), x.Wanted), strings.Join(replicas, ", "))
	})
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(struct {
			blobJSON
			Parts []extentJSON `json:"parts"`
		}{blobOf(b), parts})
		return errors.Join(err, t.fault())
	}
	a.notef("%s", t.sentence(a, a.errTTY, "blob "+b.ID))
	figures := newGrid("FIGURE", "VALUE")
	figures.add("id", b.ID)
	figures.add("what", blobWhat(b))
	figures.add("bytes", fmt.Sprintf("%s (%s)", formatCount(b.Bytes), formatSize(b.Bytes)))
	figures.add("extents", formatCount(b.Extents))
	figures.add("stored", formatTime(b.Created))
	if err := a.printAll(figures, g); err != nil {
		return err
	}
	for i := range parts {
		a.printCorruptReplicas(fmt.Sprintf("extent %d", parts[i].Index), parts[i].Replicas)
	}
	return t.fault()
}

// printCorruptReplicas prints the reason for each corrupt replica.
func (a *app) printCorruptReplicas(what string, replicas []replicaJSON) {
	for _, r := range replicas {
		if r.State == api.ReplicaCorrupt {
			a.notef("%s on %s: %s", what, r.Name, r.Reason)
		}
	}
}

func (a *app) blobVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify ID",
		Short: "Verify all bytes of all replicas of a blob",
		Long: `Make each node with a replica of the blob's extents read and verify it. The command
changes nothing; nodes replace corrupt replicas from good ones on their own.

The first lines list the problems, each with node, file and offset. The last line is a
summary. Exit codes: 0 no replica is corrupt, 5 a replica is corrupt, or an extent is
lost or unreachable.`,
		Example: `  stele blob verify 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65
  stele blob verify 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65 --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeBlob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, noTimeout, func(ctx context.Context, c *client.Client) error {
				return a.verifyBlob(ctx, c, args[0])
			})
		},
	}
}

// replicaProblemJSON is the --json form of a replica that is not good.
type replicaProblemJSON struct {
	Blob   string `json:"blob"`
	Extent int64  `json:"extent"`
	replicaJSON
}

func (a *app) printReplicaProblem(p replicaProblemJSON) {
	if a.json {
		_ = a.printJSON(p)
		return
	}
	where := fmt.Sprintf("%s: extent %d of %s is %s", p.Name, p.Extent, p.Blob, replicaState(p.State))
	switch {
	case p.File != "":
		where += fmt.Sprintf(": %s at offset %d", p.File, p.Offset)
	case p.Reason != "" && p.State != api.ReplicaMissing:
		where += ": " + p.Reason
	}
	fmt.Fprintln(a.out, escapeLines(where))
	if a.outTTY {
		_ = a.out.Flush()
	}
}

func (a *app) verifyBlob(ctx context.Context, c *client.Client, id string) error {
	start := time.Now()
	s, err := c.StatBlob(ctx, id, 0, 1, false)
	if err != nil {
		return err
	}
	var t tally
	var done atomic.Int64
	stop := a.showBytes("verifying "+orElse(s.Name, s.ID), s.Bytes, &done)
	defer func() { stop() }()
	b, err := eachExtent(ctx, c, id, 4, true, func(b *client.BlobInfo, x *client.ExtentInfo) {
		t.add(x)
		done.Add(x.Bytes)
		for i := range x.Replicas {
			if r := &x.Replicas[i]; r.State != api.ReplicaGood {
				a.printReplicaProblem(replicaProblemJSON{b.ID, x.Index, replicaJSON(*r)})
			}
		}
	})
	stop()
	stop = func() {}
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(struct {
			ID string `json:"id"`
			tallyJSON
			Seconds float64 `json:"seconds"`
		}{b.ID, t.json(), time.Since(start).Seconds()})
	} else {
		_, err = fmt.Fprintf(a.out, "%s, checked in %v\n", t.sentence(a, a.outTTY, "blob "+b.ID), time.Since(start).Round(time.Millisecond))
	}
	return errors.Join(err, t.fault())
}

// completeBlob completes the first argument to the id of a blob.
func (a *app) completeBlob(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // a file
	}
	return a.completeName(cmd, part, func(ctx context.Context, c *client.Client) (ids []string, err error) {
		p, err := c.Blobs(ctx, "", false)
		for i := range p.Blobs {
			ids = append(ids, p.Blobs[i].ID)
		}
		return ids, err
	})
}

func removable(b *client.BlobInfo) error {
	switch b.Kind {
	case api.BlobOfTable:
		return &fault{code: exitError, hint: `"stele table drop" deletes a table with its files`,
			err: fmt.Errorf("blob %s is not deleted: it is a file of %s", b.ID, orElse(prefixed("table ", b.Name), "a dropped table"))}
	case api.BlobUnnamed:
		return &fault{code: exitError, hint: "nodes remove blobs that stay unreferenced",
			err: fmt.Errorf("blob %s is not deleted: it is unreferenced, so it is being written or garbage", b.ID)}
	}
	return nil
}

// umask returns the process's umask.
func umask() fs.FileMode {
	m := syscall.Umask(0)
	syscall.Umask(m)
	return fs.FileMode(m)
}

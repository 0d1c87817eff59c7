package blobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
)

func listCommand(a *cli.App) *cobra.Command {
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
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return listBlobs(ctx, a, c, all)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list all blobs that the nodes hold, including files of tables and garbage")
	return cmd
}

func listBlobs(ctx context.Context, a *cli.App, c *client.Client, all bool) error {
	g := cli.NewGrid("ID", "BYTES", "NAME", "STORED")
	if all {
		g = cli.NewGrid("ID", "BYTES", "EXTENTS", "REPLICAS", "WHAT", "WRITTEN")
	}
	var silent []string
	blobs, bytes := int64(0), int64(0)
	for after := ""; ; {
		p, err := c.Blobs().List(ctx, after, all)
		if err != nil {
			return err
		}
		silent = p.Silent
		for i := range p.Blobs {
			b := &p.Blobs[i]
			blobs, bytes = blobs+1, bytes+b.Bytes
			switch {
			case a.JSON:
				j := blobOf(b)
				if all {
					j.Replicas = &b.Replicas
				}
				if err := a.PrintJSON(j); err != nil {
					return err
				}
			case all:
				g.Add(b.ID, cli.Size(b.Bytes), cli.Count(b.Extents), cli.Count(b.Replicas), blobWhat(b), formatTime(b.Created))
			default:
				g.Add(b.ID, cli.Size(b.Bytes), b.Name, formatTime(b.Created))
			}
		}
		if after = p.Next; after == "" {
			break
		}
	}
	if len(silent) > 0 {
		a.Notef("incomplete: no answer from %s; blobs that only these nodes hold are not listed, and their replicas are not counted", strings.Join(silent, ", "))
	}
	if a.JSON {
		return nil
	}
	switch {
	case blobs > 0:
		a.Notef("%s, %s", cli.Plural(blobs, "blob"), cli.FormatSize(bytes))
	case all:
		a.Notef("the nodes hold no blob")
	default:
		a.Notef(`no blobs stored; "stele blob put FILE" stores one, "stele blob ls --all" lists the files of tables`)
	}
	return a.Print(g)
}

// blobWhat returns the kind and name of a blob, for messages.
func blobWhat(b *client.BlobInfo) string {
	switch b.Kind {
	case api.BlobOfTable:
		return "SSTable of " + cli.OrElse(b.Name, "a dropped table")
	case api.BlobOfUser:
		return "blob " + cli.OrElse(b.Name, "without a name")
	case api.BlobOfBackup:
		return "backup " + b.Name
	}
	return "unreferenced"
}

func formatTime(t time.Time) string {
	if t.UnixMilli() <= 0 {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

func statCommand(a *cli.App) *cobra.Command {
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
		ValidArgsFunction: completeBlob(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return statBlob(ctx, a, c, args[0])
			})
		},
	}
}

// sortReplicas sorts the replicas of an extent by the names of their nodes.
func sortReplicas(x *client.ExtentInfo) {
	slices.SortStableFunc(x.Replicas, func(a, b client.ReplicaInfo) int { return strings.Compare(a.Name, b.Name) })
}

// eachExtent calls each for all extents of a blob. It requests batch extents at a time.
func eachExtent(ctx context.Context, c *client.Client, id string, batch int, deep bool, each func(b *client.BlobInfo, x *client.ExtentInfo)) (*client.BlobInfo, error) {
	for from := 0; ; from += batch {
		s, err := c.Blobs().Stat(ctx, id, from, batch, deep)
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

func statBlob(ctx context.Context, a *cli.App, c *client.Client, id string) error {
	var t tally
	var parts []client.ExtentInfo
	g := cli.NewGrid("EXTENT", "BYTES", "GOOD", "REPLICAS")
	b, err := eachExtent(ctx, c, id, api.BlobStatCount, false, func(_ *client.BlobInfo, x *client.ExtentInfo) {
		t.add(x)
		sortReplicas(x)
		parts = append(parts, *x)
		g.Add(cli.Count(x.Index), cli.Size(x.Bytes), fmt.Sprintf("%d of %d", x.Count(api.ReplicaGood), x.ReplicationFactor), replicasText(x))
	})
	if err != nil {
		return err
	}
	if a.JSON {
		return errors.Join(printBlobStat(a, b, parts), t.fault())
	}
	a.Notef("%s", t.sentence(a, a.ErrTTY, "blob "+b.ID))
	if err := a.PrintAll(figuresOf(b), g); err != nil {
		return err
	}
	for i := range parts {
		printCorruptReplicas(a, fmt.Sprintf("extent %d", parts[i].Index), parts[i].Replicas)
	}
	return t.fault()
}

// printBlobStat prints a blob and its extents with --json.
func printBlobStat(a *cli.App, b *client.BlobInfo, parts []client.ExtentInfo) error {
	return a.PrintJSON(struct {
		blobJSON
		Parts []client.ExtentInfo `json:"parts"`
	}{blobOf(b), parts})
}

// replicasText returns the nodes with replicas of an extent, and their states.
func replicasText(x *client.ExtentInfo) string {
	var replicas []string
	for i := range x.Replicas {
		replicas = append(replicas, x.Replicas[i].Name+" "+replicaState(x.Replicas[i].State))
	}
	return strings.Join(replicas, ", ")
}

// figuresOf returns the grid of a blob's properties.
func figuresOf(b *client.BlobInfo) *cli.Grid {
	figures := cli.NewGrid("FIGURE", "VALUE")
	figures.Add("id", b.ID)
	figures.Add("what", blobWhat(b))
	figures.Add("bytes", fmt.Sprintf("%s (%s)", cli.FormatCount(b.Bytes), cli.FormatSize(b.Bytes)))
	figures.Add("extents", cli.FormatCount(b.Extents))
	figures.Add("stored", formatTime(b.Created))
	return figures
}

// printCorruptReplicas prints the reason for each corrupt replica.
func printCorruptReplicas(a *cli.App, what string, replicas []client.ReplicaInfo) {
	for _, r := range replicas {
		if r.State == api.ReplicaCorrupt {
			a.Notef("%s on %s: %s", what, r.Name, r.Reason)
		}
	}
}

func verifyCommand(a *cli.App) *cobra.Command {
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
		ValidArgsFunction: completeBlob(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return verifyBlob(ctx, a, c, args[0])
			})
		},
	}
}

// printReplicaProblem prints a replica of an extent of a blob that is not good.
func printReplicaProblem(a *cli.App, blob string, extent int64, r *client.ReplicaInfo) {
	if a.JSON {
		_ = a.PrintJSON(struct {
			Blob   string `json:"blob"`
			Extent int64  `json:"extent"`
			*client.ReplicaInfo
		}{blob, extent, r})
		return
	}
	where := fmt.Sprintf("%s: extent %d of %s is %s", r.Name, extent, blob, replicaState(r.State))
	switch {
	case r.File != "":
		where += fmt.Sprintf(": %s at offset %d", r.File, r.Offset)
	case r.Reason != "" && r.State != api.ReplicaMissing:
		where += ": " + r.Reason
	}
	fmt.Fprintln(a.Out, cli.EscapeLines(where))
	if a.OutTTY {
		_ = a.Out.Flush()
	}
}

func verifyBlob(ctx context.Context, a *cli.App, c *client.Client, id string) error {
	start := time.Now()
	s, err := c.Blobs().Stat(ctx, id, 0, 1, false)
	if err != nil {
		return err
	}
	var t tally
	var done atomic.Int64
	stop := sync.OnceFunc(showBytes(a, "verifying "+cli.OrElse(s.Name, s.ID), s.Bytes, done.Load))
	defer stop()
	b, err := eachExtent(ctx, c, id, 4, true, func(b *client.BlobInfo, x *client.ExtentInfo) {
		t.add(x)
		done.Add(x.Bytes)
		for i := range x.Replicas {
			if r := &x.Replicas[i]; r.State != api.ReplicaGood {
				printReplicaProblem(a, b.ID, x.Index, r)
			}
		}
	})
	stop()
	if err != nil {
		return err
	}
	return reportVerified(a, b.ID, &t, time.Since(start))
}

// reportVerified prints the result of a verification, and returns the fault of bad replicas.
func reportVerified(a *cli.App, id string, t *tally, took time.Duration) (err error) {
	if a.JSON {
		err = a.PrintJSON(struct {
			ID string `json:"id"`
			tallyJSON
			Seconds float64 `json:"seconds"`
		}{id, t.json(), took.Seconds()})
	} else {
		_, err = fmt.Fprintf(a.Out, "%s, checked in %s\n", t.sentence(a, a.OutTTY, "blob "+id), text.Duration(took))
	}
	return errors.Join(err, t.fault())
}

// completeBlob returns a function that completes the first argument to the id of a blob.
func completeBlob(a *cli.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault // a file
		}
		return a.CompleteName(cmd, part, func(ctx context.Context, c *client.Client) (ids []string, err error) {
			p, err := c.Blobs().List(ctx, "", false)
			for i := range p.Blobs {
				ids = append(ids, p.Blobs[i].ID)
			}
			return ids, err
		})
	}
}

func removable(b *client.BlobInfo) error {
	switch b.Kind {
	case api.BlobOfTable:
		return &cli.Fault{Code: cli.ExitError, Hint: `"stele table drop" deletes a table with its files`,
			Err: fmt.Errorf("blob %s is not deleted: it is a file of %s", b.ID, cli.OrElse(prefixed("table ", b.Name), "a dropped table"))}
	case api.BlobOfBackup:
		return &cli.Fault{Code: cli.ExitError, Hint: `"stele backup delete" deletes a backup, and garbage collection then its files`,
			Err: fmt.Errorf("blob %s is not deleted: it belongs to backup %s", b.ID, b.Name)}
	case api.BlobUnnamed:
		return &cli.Fault{Code: cli.ExitError, Hint: "nodes remove blobs that stay unreferenced",
			Err: fmt.Errorf("blob %s is not deleted: it is unreferenced, so it is being written or garbage", b.ID)}
	}
	return nil
}

// umask returns the process's umask.
func umask() fs.FileMode {
	m := syscall.Umask(0)
	syscall.Umask(m)
	return fs.FileMode(m)
}

package cluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/table"
)

const bundleLong = `Write what helps others to understand a problem of the cluster to one file, a tar
archive compressed by gzip.

It has the state of the cluster and of its lock service; the status, the last hour and
the slow requests of each node; and the schemas, sizes and tablets of tables. It has no
rows, no keys of rows, no credentials and no names of users: keys are replaced by their
lengths, unless --keys is given. The files are listed, each with its size and what it
is. What could not be read is in errors.txt; the exit code is then that of the first
error. If nothing can be read, no file is written.`

const bundleExample = `  stele debug bundle
  stele debug bundle --out problem.tar.gz --keys`

// bundleTimeout bounds the requests for one file of a bundle.
const bundleTimeout = 20 * time.Second

func debugCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{Use: "debug", Short: "Gather what helps to understand a problem", Long: "Gather what helps others to understand a problem of the cluster.", Example: "  stele debug bundle", Args: cli.UnknownCommand, RunE: cli.RequireSubcommand}
	cmd.AddCommand(bundleCommand(a))
	return cmd
}

func bundleCommand(a *cli.App) *cobra.Command {
	out, keys := "", false
	cmd := &cobra.Command{
		Use:     "bundle",
		Short:   "Write the state of the cluster to one file",
		Long:    bundleLong,
		Example: bundleExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "-" {
				return cli.Usagef("name a file, such as --out problem.tar.gz", "--out: a bundle is not written to standard output")
			}
			if out == "" {
				out = "stele-" + time.Now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			return a.Diagnose(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return writeBundle(ctx, a, c, out, keys)
			})
		},
	}
	cmd.Flags().StringVar(&out, "out", out, `the file to write (default "stele-TIME.tar.gz")`)
	cmd.Flags().BoolVar(&keys, "keys", keys, "keep keys of rows: ends of tablets, and rows of slow requests")
	return cmd
}

// bundle is an archive under construction.
type bundle struct {
	client *client.Client
	keys   bool
	tar    *tar.Writer
	files  []bundleFile
	errors bytes.Buffer
	failed error // the first of the errors
}

// bundleFile is a file of a bundle.
type bundleFile struct {
	Name  string `json:"file"`
	Bytes int64  `json:"bytes"`
	What  string `json:"what"`
}

// writeBundle writes a bundle to a file that does not exist yet.
func writeBundle(ctx context.Context, a *cli.App, c *client.Client, out string, keys bool) (err error) {
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return cli.WithHint(err, "name another file with --out, or remove this one: a bundle is not overwritten")
	}
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(f)
	b := &bundle{client: c, keys: keys, tar: tar.NewWriter(zip)}
	err = b.write(ctx)
	if err = errors.Join(err, b.tar.Close(), zip.Close(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(out))
	}
	if len(b.files) == 0 {
		return errors.Join(b.failed, os.Remove(out))
	}
	if err := b.print(a, out); err != nil || b.failed == nil {
		return err
	}
	return fmt.Errorf("%s is incomplete, see its errors.txt: %w", out, b.failed)
}

// print lists the files of the bundle in out.
func (b *bundle) print(a *cli.App, out string) error {
	if a.JSON {
		return a.PrintJSON(map[string]any{"out": out, "files": b.files})
	}
	g := cli.NewGrid("FILE", "BYTES", "WHAT")
	for _, f := range b.files {
		g.Add(f.Name, cli.Size(f.Bytes), f.What)
	}
	if err := a.Print(g); err != nil {
		return err
	}
	a.Notef("wrote %s", out)
	return nil
}

// write adds all files. Errors: those of the archive.
func (b *bundle) write(ctx context.Context) error {
	nodes, nodesErr := b.client.Nodes().List(ctx)
	if api.NoLeader(nodesErr) { // the node cannot verify rights, so all the others fail likewise
		return nodesErr
	}
	err := errors.Join(
		b.add(ctx, "status.json", "what stele status reports", func(ctx context.Context) (any, error) {
			s, err := b.client.Status(ctx)
			if err != nil {
				return nil, err
			}
			j := statusOf(s)
			whole := health.Of(ctx, b.client)
			j.State, _ = health.State(s, whole)
			j.Whole = jsonOf(b.withoutKeys(whole))
			return j, nil
		}),
		b.add(ctx, "nodes.json", "the nodes, as the first one sees them", func(context.Context) (any, error) { return nodes, nodesErr }),
		b.add(ctx, "raft.json", "the lock service's Raft group", func(ctx context.Context) (any, error) { return b.client.Nodes().RaftStatus(ctx) }),
		b.add(ctx, "blobs.json", "the block store, by node", func(ctx context.Context) (any, error) { return b.client.BlockStore().Status(ctx) }),
		b.add(ctx, "usage.json", "sizes of tables by column family", b.usage),
		b.add(ctx, "tables.json", "schemas and tablets of tables", b.tables),
	)
	for i := range nodes {
		if err == nil && nodes[i].State == api.NodeAlive {
			err = b.addNode(ctx, &nodes[i])
		}
	}
	if b.errors.Len() > 0 && len(b.files) > 0 {
		err = errors.Join(err, b.addBytes("errors.txt", "what could not be read", b.errors.Bytes()))
	}
	return err
}

// addNode adds what a node reports of itself.
func (b *bundle) addNode(ctx context.Context, n *client.NodeInfo) error {
	at := b.client.Nodes()
	return errors.Join(
		b.add(ctx, "node/"+n.ID+"/status.json", "counters and gauges of "+health.NameOf(n), func(ctx context.Context) (any, error) {
			s, err := at.Status(ctx, n.RPC)
			if err != nil {
				return nil, err
			}
			return statusOf(s), nil
		}),
		b.add(ctx, "node/"+n.ID+"/activity.json", "the last hour of "+health.NameOf(n), func(ctx context.Context) (any, error) { return at.Activity(ctx, n.RPC) }),
		b.add(ctx, "node/"+n.ID+"/requests.json", "slow requests of "+health.NameOf(n), func(ctx context.Context) (any, error) { return b.requests(ctx, n) }),
	)
}

// add adds a file with an object. What could not be read goes to the errors.
func (b *bundle) add(ctx context.Context, name, what string, read func(context.Context) (any, error)) error {
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	v, err := read(ctx)
	var text []byte
	if err == nil {
		text, err = json.MarshalIndent(v, "", "  ")
	}
	if err != nil {
		b.missing(name, err)
		return nil
	}
	return b.addBytes(name, what, append(text, '\n'))
}

// missing records what could not be read.
func (b *bundle) missing(what string, err error) {
	if b.failed == nil {
		b.failed = err
	}
	fmt.Fprintf(&b.errors, "%s: %s\n", what, withoutQuotes(err.Error()))
}

func (b *bundle) addBytes(name, what string, text []byte) error {
	b.files = append(b.files, bundleFile{name, int64(len(text)), what})
	err := b.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), ModTime: time.Now()})
	if err == nil {
		_, err = b.tar.Write(text)
	}
	return err
}

// key returns what a bundle has of the key of a row.
func (b *bundle) key(key []byte) []byte {
	if b.keys || len(key) == 0 {
		return key
	}
	return fmt.Appendf(nil, "(%d bytes)", len(key))
}

// quoted is what errors quote: names of users, and keys of rows.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// withoutQuotes returns the text of an error without what it quotes.
func withoutQuotes(text string) string { return quoted.ReplaceAllString(text, `"…"`) }

func (b *bundle) withoutKeys(x *health.Cluster) *health.Cluster {
	for i := range x.UnservedTablets {
		t := &x.UnservedTablets[i]
		t.Start, t.End, t.Error = b.key(t.Start), b.key(t.End), withoutQuotes(t.Error)
	}
	for i := range x.UsedUp {
		if x.UsedUp[i].Of == api.QuotaOfUser {
			x.UsedUp[i].Name = "(user)"
		}
	}
	return x
}

// usage returns the sizes of all tables.
func (b *bundle) usage(ctx context.Context) (any, error) {
	u, err := b.client.Tables().Usage(ctx, "")
	if err != nil {
		return nil, err
	}
	for i := range u.Tables {
		u.Tables[i].Owner = ""
	}
	return u, nil
}

// tableJSON is a table in a bundle.
type tableJSON struct {
	Schema  *table.Schema `json:"schema"`
	Tablets []tabletJSON  `json:"tablets"`
}

// tabletJSON is a tablet of it.
type tabletJSON struct {
	ID            uint64          `json:"id"`
	Node          string          `json:"node"`
	Start         string          `json:"start"`
	End           string          `json:"end"`
	MemtableBytes int64           `json:"memtable_bytes"`
	Groups        []api.GroupInfo `json:"groups"`
}

// tables returns the schemas and tablets of all tables.
func (b *bundle) tables(ctx context.Context) (any, error) {
	schemas, err := b.client.Tables().List(ctx)
	if err != nil {
		return nil, err
	}
	all := []tableJSON{}
	for _, s := range schemas {
		info, err := b.client.Tables().Describe(ctx, s.Name)
		if err != nil {
			b.missing("table "+s.Name, err)
			continue
		}
		j := tableJSON{Schema: info.Schema, Tablets: []tabletJSON{}}
		for i := range info.Tablets {
			t := &info.Tablets[i]
			j.Tablets = append(j.Tablets, tabletJSON{t.ID, t.Node, cli.EscapeBytes(b.key(t.Start)), cli.EscapeBytes(b.key(t.End)), t.MemtableBytes, t.Groups})
		}
		all = append(all, j)
	}
	return all, nil
}

// requests returns the slow requests of a node, without users and their addresses.
func (b *bundle) requests(ctx context.Context, n *client.NodeInfo) (any, error) {
	s, err := b.client.Nodes().SlowRequests(ctx, n.RPC)
	if err != nil {
		return nil, err
	}
	all := []requestJSON{}
	for _, r := range s.Requests {
		r.User, r.From, r.Row = "", "", b.key(r.Row)
		all = append(all, requestOf(n, r))
	}
	return all, nil
}

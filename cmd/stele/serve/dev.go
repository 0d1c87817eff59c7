package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/config"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/table"
)

// serveDev runs a development node with a sample table. Without --data-dir its data is temporary.
func serveDev(ctx context.Context, a *cli.App, c *config.Config, cfg node.Config) (err error) {
	temporary := c.IsDefault("data_dir")
	if temporary {
		dir, madeErr := os.MkdirTemp("", "stele-dev-")
		if madeErr != nil {
			return fmt.Errorf("create a temporary data folder: %w", madeErr)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		cfg.DataDirs = []string{dir}
	}
	if c.IsDefault("extent_size") {
		cfg.ExtentBytes = devExtentBytes
	}
	return runNode(ctx, cfg, c.DrainTimeout(), func(ctx context.Context, n *node.Node) error {
		if err := createSample(ctx, n.RPCAddr()); err != nil {
			return fmt.Errorf("create the sample table: %w", err)
		}
		banner(a, n, cfg.DataDirs, temporary)
		return nil
	})
}

// The sample is the paper's Webtable, with the row of Figure 1.
const sampleTable = "webtable"

var sampleFamilies = []string{"contents:versions=3,group=pages,compression=zstd", "anchor:", "language:versions=1"}

var samplePages = []struct{ row, contents, language string }{
	{"com.cnn.www", "<html><title>CNN</title><p>Breaking news</html>", "EN"},
	{"com.cnn.www/world", "<html><title>World - CNN</title></html>", "EN"},
	{"ca.look.my", `<html><a href="http://www.cnn.com/">CNN.com</a></html>`, "EN"},
	{"fr.lemonde.www", "<html><title>Le Monde</title><p>À la une</html>", "FR"},
}

// createSample creates and fills the sample table, unless it exists.
func createSample(ctx context.Context, addr string) error {
	c, err := client.Open(ctx, addr, client.Config{})
	if err != nil {
		return err
	}
	defer c.Close()
	specs, err := cli.ParseFamilies(sampleFamilies)
	if err != nil {
		return err
	}
	if _, err := c.Tables().Create(ctx, sampleTable, specs...); errors.Is(err, client.ErrTableExists) {
		return nil // from an earlier run with the same data folder
	} else if err != nil {
		return err
	}
	var rows []*client.RowMutation
	for _, p := range samplePages {
		m := client.NewRowMutation(p.row)
		rows = append(rows, m.Set("contents:", []byte(p.contents)).Set("language:", []byte(p.language)))
	}
	rows[0].Set("anchor:cnnsi.com", []byte("CNN")).Set("anchor:my.look.ca", []byte("CNN.com"))
	// Two older versions of the page, as in the figure.
	for _, version := range []int64{3, 5} {
		rows[0].Add(table.Set("contents", nil, version, fmt.Appendf(nil, "<html>version t%d</html>", version)))
	}
	return c.Table(sampleTable).ApplyAll(ctx, rows)
}

// ports writes the addresses of a node.
func ports(b *strings.Builder, n *node.Node) {
	fmt.Fprintf(b, "  clients  %s\n", n.RPCAddr())
	if n.HTTPAddr() != "" {
		fmt.Fprintf(b, "  console  http://%s\n", n.HTTPAddr())
	}
	if n.BigtableAddr() != "" {
		fmt.Fprintf(b, "  bigtable export BIGTABLE_EMULATOR_HOST=%s\n", n.BigtableAddr())
	}
}

// banner prints the node's addresses and commands to try.
func banner(a *cli.App, n *node.Node, dirs []string, temporary bool) {
	key := func(s string) string { return a.Paint(a.ErrTTY, cli.StyleKey, s) }
	retention := "kept when the node stops"
	if temporary {
		retention = "removed when the node stops"
	}
	command := os.Args[0]
	addr := ""
	if n.RPCAddr() != client.DefaultAddr {
		addr = " --addr " + n.RPCAddr()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s in development mode: no access control, data is %s\n\n", key("Stele "+node.Version()), retention)
	ports(&b, n)
	fmt.Fprintf(&b, "  data     %s\n\nTry this in another terminal:\n\n", strings.Join(dirs, " "))
	for _, line := range []string{
		"scan " + sampleTable + " --family anchor --family language",
		"put " + sampleTable + " com.example.www 'contents:=<html>hello</html>' language:=EN",
		"get " + sampleTable + " com.cnn.www --versions 1",
	} {
		fmt.Fprintf(&b, "  %s\n", key(command+" "+line+addr))
	}
	fmt.Fprintf(&b, "\nCtrl-C stops the node.\n\n")
	fmt.Fprint(a.Err, b.String())
}

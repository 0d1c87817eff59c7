package tools

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/node"
)

func versionCommand(a *cli.App) *cobra.Command {
	server := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program or of a node",
		Example: `  stele version
  stele version --server --addr 10.0.0.5:7106`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if server {
				return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
					return printServerVersion(ctx, a, c)
				})
			}
			return printVersion(a)
		},
	}
	cmd.Flags().BoolVar(&server, "server", false, "print the version of the node at --addr")
	return cmd
}

func printVersion(a *cli.App) error {
	if !a.JSON {
		_, err := a.Out.WriteString(cli.VersionLine())
		return err
	}
	return a.PrintJSON(struct {
		Version string `json:"version"`
		Commit  string `json:"commit,omitempty"`
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{node.Version(), cli.Commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH})
}

func printServerVersion(ctx context.Context, a *cli.App, c *client.Client) error {
	p, err := c.Ping(ctx)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(struct {
			Version  string `json:"version"`
			Protocol int    `json:"protocol"`
			Node     string `json:"node"`
			Cluster  string `json:"cluster"`
		}{p.Version, p.Protocol, p.Node, p.Cluster})
	}
	_, err = fmt.Fprintf(a.Out, "stele %s, node %s of cluster %s, protocol %d\n", cli.EscapeText(p.Version), cli.EscapeText(p.Node), cli.EscapeText(p.Cluster), p.Protocol)
	return err
}

package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
)

func (a *app) versionCommand() *cobra.Command {
	server := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program or of a node",
		Example: `  stele version
  stele version --server --addr 10.0.0.5:7106`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if server {
				return a.call(cmd, defaultTimeout, a.serverVersion)
			}
			return a.version()
		},
	}
	cmd.Flags().BoolVar(&server, "server", false, "print the version of the node at --addr")
	return cmd
}

// versionLine returns what "stele version" prints.
func versionLine() string {
	from := ""
	if c := commit(); c != "" {
		from = ", commit " + c
	}
	return fmt.Sprintf("stele %s%s, %s, %s/%s\n", node.Version(), from, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (a *app) version() error {
	if !a.json {
		_, err := a.out.WriteString(versionLine())
		return err
	}
	return a.printJSON(struct {
		Version string `json:"version"`
		Commit  string `json:"commit,omitempty"`
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{node.Version(), commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH})
}

// commit returns the commit that the program was built from, with a note on local changes; empty if
// unknown.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}

func (a *app) serverVersion(ctx context.Context, c *client.Client) error {
	p, err := c.Ping(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(struct {
			Version  string `json:"version"`
			Protocol int    `json:"protocol"`
			Node     string `json:"node"`
			Cluster  string `json:"cluster"`
		}{p.Version, p.Protocol, p.Node, p.Cluster})
	}
	_, err = fmt.Fprintf(a.out, "stele %s, node %s of cluster %s, protocol %d\n", escapeText(p.Version), escapeText(p.Node), escapeText(p.Cluster), p.Protocol)
	return err
}

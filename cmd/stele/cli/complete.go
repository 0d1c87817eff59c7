package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// completionTimeout is the timeout of a completion: as long as a user waits for the shell.
const completionTimeout = 2 * time.Second

// CompleteTable completes the first argument to the name of a table.
func (a *App) CompleteTable(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.CompleteName(cmd, part, withSchemas(func(schemas []*table.Schema) (names []string) {
		for _, s := range schemas {
			names = append(names, s.Name)
		}
		return names
	}))
}

// CompleteNode completes the first argument to the name of a node.
func (a *App) CompleteNode(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.CompleteName(cmd, part, func(ctx context.Context, c *client.Client) (names []string, err error) {
		nodes, err := c.Nodes().List(ctx)
		for i := range nodes {
			names = append(names, NodeName(&nodes[i]))
		}
		return names, err
	})
}

// CompleteFamily completes the first argument to the name of a table, the second to
// one of its families.
func (a *App) CompleteFamily(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.CompleteTable(cmd, args, part)
	}
	return a.CompleteName(cmd, part, withSchemas(func(schemas []*table.Schema) (names []string) {
		for _, s := range schemas {
			for i := range s.Families {
				if s.Name == args[0] {
					names = append(names, s.Families[i].Name)
				}
			}
		}
		return names
	}))
}

// CompleteView completes the first argument to the name of a table, the second to one of its views.
func (a *App) CompleteView(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.CompleteTable(cmd, args, part)
	}
	return a.CompleteName(cmd, part, withSchemas(func(schemas []*table.Schema) (names []string) {
		for _, s := range schemas {
			for i := range s.Views {
				if s.Name == args[0] {
					names = append(names, s.Views[i].Name)
				}
			}
		}
		return names
	}))
}

// withSchemas returns a function that calls names with the schemas of all tables.
func withSchemas(names func([]*table.Schema) []string) func(context.Context, *client.Client) ([]string, error) {
	return func(ctx context.Context, c *client.Client) ([]string, error) {
		schemas, err := c.Tables().List(ctx)
		return names(schemas), err
	}
}

// CompleteName returns the names from the node that begin with part. If the node does not answer, it
// returns none: a shell cannot show errors.
func (a *App) CompleteName(cmd *cobra.Command, part string, names func(context.Context, *client.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	cfg := client.Config{RetryTimeMax: -1}
	if err := a.SetCredential(&cfg); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := client.Open(ctx, a.Addr, cfg)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	all, err := names(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []string
	for _, name := range all {
		if strings.HasPrefix(name, part) {
			found = append(found, name)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh, fish or powershell",
		Long: `Print a completion script for a shell. It completes commands, flags, and the names of
tables and families. SHELL is bash, zsh, fish or powershell.`,
		Example: `  source <(stele completion bash)
  stele completion zsh > "${fpath[1]}/_stele"
  stele completion fish > ~/.config/fish/completions/stele.fish`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.out)
			}
			return usagef("use bash, zsh, fish or powershell", "no completion for shell %q", args[0])
		},
	}
}

// completionTimeout is the timeout of a completion: as long as a user waits for the shell.
const completionTimeout = 2 * time.Second

// completeTable completes the first argument to the name of a table.
func (a *app) completeTable(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeName(cmd, part, withSchemas(func(schemas []*table.Schema) (names []string) {
		for _, s := range schemas {
			names = append(names, s.Name)
		}
		return names
	}))
}

// completeNode completes the first argument to the name of a node.
func (a *app) completeNode(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeName(cmd, part, func(ctx context.Context, c *client.Client) (names []string, err error) {
		nodes, err := c.Nodes(ctx)
		for i := range nodes {
			names = append(names, nodeName(&nodes[i]))
		}
		return names, err
	})
}

// completeFamily completes the first argument to the name of a table, the second to
// one of its families.
func (a *app) completeFamily(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.completeTable(cmd, args, part)
	}
	return a.completeName(cmd, part, withSchemas(func(schemas []*table.Schema) (names []string) {
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

// withSchemas returns a function that calls names with the schemas of all tables.
func withSchemas(names func([]*table.Schema) []string) func(context.Context, *client.Client) ([]string, error) {
	return func(ctx context.Context, c *client.Client) ([]string, error) {
		schemas, err := c.Tables(ctx)
		return names(schemas), err
	}
}

// completeName returns the names from the node that begin with part. If the node does not answer, it
// returns none: a shell cannot show errors.
func (a *app) completeName(cmd *cobra.Command, part string, names func(context.Context, *client.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	cfg := client.Config{RetryTimeMax: -1}
	if err := a.setCredential(&cfg); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := client.Open(ctx, a.addr, cfg)
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

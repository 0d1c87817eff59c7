package tables

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

func familyCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "family",
		Short: "Add, change and drop column families",
		Example: `  stele family set webtable language:versions=1
  stele family drop webtable language`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(familySetCommand(a), familyDropCommand(a))
	return cmd
}

const familySetExample = `  stele family set webtable language:versions=1
  stele family set webtable 'contents:gc="versions=1 or (age=7d and versions=10)"'
  stele family set webtable anchor:age=90d --dry-run`

func familySetCommand(a *cli.App) *cobra.Command {
	dryRun := false
	cmd := &cobra.Command{
		Use:               "set TABLE NAME[:OPTION=VALUE,...]",
		Short:             "Add a column family, or change one",
		Long:              "Add a column family to a table, or change one. Options that are not given keep\ntheir values.\n\n" + familyHelp,
		Example:           familySetExample,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.CompleteFamily,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := table.ParseFamilySpec(args[1])
			if err != nil {
				return err
			}
			if dryRun {
				return familySetDryRun(a, cmd, args[0], spec)
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				s, err := c.Tables().SetFamily(ctx, args[0], spec)
				if err != nil {
					return err
				}
				now, _ := s.Spec(spec.Name)
				return reportSchema(a, s, fmt.Sprintf("family of %s is now %s", s.Name, now.String()))
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the resulting schema, and change nothing")
	return cmd
}

func familySetDryRun(a *cli.App, cmd *cobra.Command, name string, spec table.FamilySpec) error {
	info, err := describeTable(a, cmd, name)
	if err != nil {
		return err
	}
	s, err := info.Schema.Apply(spec)
	if err != nil {
		return err
	}
	a.Notef("table %s would become:", name)
	return printSchema(a, s)
}

const familyDropExample = `  stele family drop webtable language
  stele family drop webtable language --dry-run
  stele family drop webtable language --yes`

func familyDropCommand(a *cli.App) *cobra.Command {
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:               "drop TABLE FAMILY",
		Short:             "Delete a column family and all its cells",
		Long:              "Delete a column family and all its cells. This cannot be undone.",
		Example:           familyDropExample,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.CompleteFamily,
		RunE: func(cmd *cobra.Command, args []string) error {
			return dropFamily(a, cmd, args[0], strings.TrimSuffix(args[1], ":"), yes, dryRun)
		},
	}
	dropFlags(cmd, &yes, &dryRun)
	return cmd
}

// dropFamily drops a family after confirmation, or prints what it would drop.
func dropFamily(a *cli.App, cmd *cobra.Command, name, family string, yes, dryRun bool) error {
	info, err := describeTable(a, cmd, name)
	if err != nil {
		return err
	}
	f := info.Schema.Family(family)
	if f == nil {
		return &table.NoFamilyError{Table: name, Family: family}
	}
	what := fmt.Sprintf("family %s of table %s, and all its cells (its locality group %q takes %s on disk)", family, name, f.Group, cli.FormatSize(diskBytes(info, f.Group)))
	if dryRun {
		return reportDryRun(a, name, family, "drop "+what, diskBytes(info, f.Group))
	}
	if err := a.Confirm(yes, "Drop "+what+"?"); err != nil {
		return err
	}
	return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
		if _, err := c.Tables().DropFamily(ctx, name, family); err != nil {
			return err
		}
		return reportDropped(a, name, family, fmt.Sprintf("dropped family %s of table %s", family, name))
	})
}

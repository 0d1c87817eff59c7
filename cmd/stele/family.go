package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

func (a *app) familyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "family",
		Short: "Add, change and drop column families",
		Example: `  stele family set webtable language:versions=1
  stele family drop webtable language`,
		Args: unknownCommand,
		RunE: requireSubcommand,
	}
	cmd.AddCommand(a.familySetCommand(), a.familyDropCommand())
	return cmd
}

func (a *app) familySetCommand() *cobra.Command {
	dryRun := false
	cmd := &cobra.Command{
		Use:   "set TABLE NAME[:OPTION=VALUE,...]",
		Short: "Add a column family, or change one",
		Long:  "Add a column family to a table, or change one. Options that are not given keep\ntheir values.\n\n" + familyHelp,
		Example: `  stele family set webtable language:versions=1
  stele family set webtable 'contents:gc="versions=1 or (age=7d and versions=10)"'
  stele family set webtable anchor:age=90d --dry-run`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeFamily,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := table.ParseFamilySpec(args[1])
			if err != nil {
				return err
			}
			if dryRun {
				return a.familySetDryRun(cmd, args[0], spec)
			}
			return a.call(cmd, defaultTimeout, func(ctx context.Context, c *client.Client) error {
				s, err := c.SetFamily(ctx, args[0], spec)
				if err != nil {
					return err
				}
				now, _ := s.Spec(spec.Name)
				return a.reportSchema(s, fmt.Sprintf("family of %s is now %s", s.Name, now.String()))
			})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the resulting schema, and change nothing")
	return cmd
}

func (a *app) familySetDryRun(cmd *cobra.Command, name string, spec table.FamilySpec) error {
	info, err := a.describe(cmd, name)
	if err != nil {
		return err
	}
	s, err := info.Schema.Apply(spec)
	if err != nil {
		return err
	}
	a.notef("table %s would become:", name)
	return a.printSchema(s)
}

func (a *app) familyDropCommand() *cobra.Command {
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "drop TABLE FAMILY",
		Short: "Delete a column family and all its cells",
		Long:  "Delete a column family and all its cells. This cannot be undone.",
		Example: `  stele family drop webtable language
  stele family drop webtable language --dry-run
  stele family drop webtable language --yes`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeFamily,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, family := args[0], strings.TrimSuffix(args[1], ":")
			info, err := a.describe(cmd, name)
			if err != nil {
				return err
			}
			f := info.Schema.Family(family)
			if f == nil {
				return &table.NoFamilyError{Table: name, Family: family}
			}
			what := fmt.Sprintf("family %s of table %s, and all its cells (its locality group %q takes %s on disk)", family, name, f.Group, formatSize(diskBytes(info, f.Group)))
			if dryRun {
				return a.reportDryRun(name, family, "drop "+what, diskBytes(info, f.Group))
			}
			if err := a.confirm(yes, "Drop "+what+"?"); err != nil {
				return err
			}
			return a.call(cmd, defaultTimeout, func(ctx context.Context, c *client.Client) error {
				if _, err := c.DropFamily(ctx, name, family); err != nil {
					return err
				}
				return a.reportDropped(name, family, fmt.Sprintf("dropped family %s of table %s", family, name))
			})
		},
	}
	dropFlags(cmd, &yes, &dryRun)
	return cmd
}

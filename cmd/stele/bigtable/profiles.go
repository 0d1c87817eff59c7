package bigtable

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
)

const profileLong = `List, create, update and delete the app profiles of the cluster. A profile names a
program, or a kind of work, that uses Cloud Bigtable's API: metrics count its requests
apart, and it can forbid transactions of a row. Requests that name no profile have
"default".

All users may list them. The other commands need the right admin on the cluster.`

func profileCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "List, create, update and delete app profiles",
		Long:  profileLong,
		Example: `  stele bigtable profile create batch --description "nightly jobs" --transactions=false
  stele bigtable profile list`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(listProfilesCommand(a), showProfileCommand(a), createProfileCommand(a), updateProfileCommand(a), deleteProfileCommand(a))
	return cmd
}

func listProfilesCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the app profiles",
		Example: `  stele bigtable profile list
  stele bigtable profile list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := profiles(a, cmd)
			if err != nil {
				return err
			}
			g := cli.NewGrid("PROFILE", "ROUTING", "TRANSACTIONS", "PRIORITY", "DESCRIPTION")
			for i := range all {
				p := &all[i]
				if a.JSON {
					if err := a.PrintJSON(p); err != nil {
						return err
					}
					continue
				}
				g.Add(p.ID, p.Routing, allowed(p), p.Priority, p.Description)
			}
			if a.JSON {
				return nil
			}
			return a.Print(g)
		},
	}
}

func profiles(a *cli.App, cmd *cobra.Command) ([]client.AppProfile, error) {
	return cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) ([]client.AppProfile, error) {
		return c.AppProfiles().List(ctx)
	})
}

func allowed(p *client.AppProfile) string {
	if p.Transactional {
		return "yes"
	}
	return "no"
}

// find returns the profile with an id.
func find(all []client.AppProfile, id string) (*client.AppProfile, error) {
	for i := range all {
		if all[i].ID == id {
			return &all[i], nil
		}
	}
	return nil, hinted(fmt.Errorf("app profile %q: %w", id, api.ErrNoAppProfile))
}

// hinted adds the remedy to errors of app profiles.
func hinted(err error) error {
	switch {
	case errors.Is(err, api.ErrNoAppProfile):
		return cli.NotFoundf(`"stele bigtable profile list" shows the app profiles`, "%w", err)
	case errors.Is(err, api.ErrAppProfileExists):
		return cli.WithHint(err, `"stele bigtable profile update" changes it`)
	case errors.Is(err, api.ErrAppProfileChanged):
		return cli.WithHint(err, "it was changed at the same time: retry")
	}
	return err
}

// show prints a profile.
func show(a *cli.App, p *client.AppProfile) error {
	if a.JSON {
		return a.PrintJSON(p)
	}
	g := cli.NewGrid("APP PROFILE", p.ID)
	g.Add("description", cli.OrElse(p.Description, "-"))
	g.Add("routing", p.Routing)
	g.Add("transactions", allowed(p))
	g.Add("priority", p.Priority)
	g.Add("etag", p.Etag)
	return a.Print(g)
}

func showProfileCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Short:   "Show an app profile",
		Example: "  stele bigtable profile show default",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := profiles(a, cmd)
			if err != nil {
				return err
			}
			p, err := find(all, args[0])
			if err != nil {
				return err
			}
			return show(a, p)
		},
	}
}

// profileFlags are the flags of the fields of a profile.
type profileFlags struct{ to client.AppProfile }

func (f *profileFlags) add(flags *pflag.FlagSet) {
	f.to = api.NewDefaultAppProfile()
	flags.StringVar(&f.to.Description, "description", "", "`text` that describes the program, at most 1024 bytes")
	flags.StringVar(&f.to.Routing, "routing", f.to.Routing, "`routing` of requests: single, any or any_row")
	flags.BoolVar(&f.to.Transactional, "transactions", true, "allow transactions of a row, with the routing single")
	flags.StringVar(&f.to.Priority, "priority", f.to.Priority, "`priority`: low, medium or high; it has no effect")
}

// apply sets the fields of a profile whose flags are given. Another routing than single forbids transactions unless the flag allows them.
func (f *profileFlags) apply(flags *pflag.FlagSet, p *client.AppProfile) {
	if flags.Changed("description") {
		p.Description = f.to.Description
	}
	if flags.Changed("priority") {
		p.Priority = f.to.Priority
	}
	if flags.Changed("routing") {
		p.Routing = f.to.Routing
		p.Transactional = p.Transactional && p.Routing == api.RoutingSingle
		p.NamesCluster = p.NamesCluster && p.Routing != api.RoutingSingle
	}
	if flags.Changed("transactions") {
		p.Transactional = f.to.Transactional
	}
}

func createProfileCommand(a *cli.App) *cobra.Command {
	f := &profileFlags{}
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Create an app profile",
		Long: `Create an app profile. Its id has letters, digits, "_", "." and "-". Another routing than
single forbids transactions of a row, and change streams.`,
		Example: `  stele bigtable profile create web --description "the web site"
  stele bigtable profile create batch --routing any --priority low`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := api.NewDefaultAppProfile()
			f.apply(cmd.Flags(), &p)
			p.ID = args[0]
			return save(a, cmd, "created", func(ctx context.Context, all client.AppProfiles) (*client.AppProfile, error) {
				return all.Create(ctx, &p)
			})
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func updateProfileCommand(a *cli.App) *cobra.Command {
	f := &profileFlags{}
	cmd := &cobra.Command{
		Use:   "update ID",
		Short: "Update an app profile",
		Long: `Update the fields of an app profile whose flags are given. Requests that the new profile
forbids fail within seconds. If the profile is changed at the same time, the command
fails.`,
		Example: `  stele bigtable profile update web --transactions=false
  stele bigtable profile update default --description "programs without a profile"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return save(a, cmd, "updated", func(ctx context.Context, profiles client.AppProfiles) (*client.AppProfile, error) {
				all, err := profiles.List(ctx)
				if err != nil {
					return nil, err
				}
				p, err := find(all, args[0])
				if err != nil {
					return nil, err
				}
				f.apply(cmd.Flags(), p)
				return profiles.Update(ctx, p) // if it still has the etag
			})
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// save makes a change of a profile, and reports it.
func save(a *cli.App, cmd *cobra.Command, done string, change func(context.Context, client.AppProfiles) (*client.AppProfile, error)) error {
	return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
		p, err := change(ctx, c.AppProfiles())
		if err != nil {
			return hinted(err)
		}
		a.Notef("app profile %s is %s", cli.EscapeText(p.ID), done)
		if a.JSON {
			return a.PrintJSON(p)
		}
		return nil
	})
}

func deleteProfileCommand(a *cli.App) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete ID",
		Aliases: []string{"rm"},
		Short:   "Delete an app profile",
		Long:    `Delete an app profile. Requests that name it fail then. "default" cannot be deleted.`,
		Example: "  stele bigtable profile delete batch --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.Confirm(yes, fmt.Sprintf("Delete app profile %s? Requests that name it fail then.", args[0])); err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if err := c.AppProfiles().Delete(ctx, args[0]); err != nil {
					return hinted(err)
				}
				a.Notef("app profile %s is deleted", cli.EscapeText(args[0]))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

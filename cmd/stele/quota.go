package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

func (a *app) quotaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Set, list and remove quotas of tables and users",
		Long: `Set, list and remove quotas of tables and users. Rates are bounds on what all nodes
together let in; who is over one is told when to come back, and clients wait that long
by themselves. Operations are rows that are read or written. A table that is over its
quota of bytes takes deletions alone; what is deleted counts until it is compacted.

A quota of bytes is enforced about 3 seconds after it is reached; a rate of
--write-bytes bounds what is written in that time. A user's quota of bytes counts the
tables that the user owns, not what the user writes into tables of others.`,
		Example: `  stele quota set webtable --bytes 100GiB --write-ops 1000
  stele quota set --user loader --write-bytes 10MiB
  stele quota list`,
		Args: unknownVerb,
		RunE: needVerb,
	}
	cmd.AddCommand(a.quotaSetCommand(), a.quotaListCommand(), a.quotaRemoveCommand())
	return cmd
}

// quotaOf reads what a quota is of: TABLE, or --user.
func quotaOf(args []string, user string) (of, name string, err error) {
	switch {
	case user != "" && len(args) > 0:
		return "", "", usagef("", "a table and --user: give one")
	case user != "":
		return client.QuotaOfUser, user, nil
	case len(args) > 0:
		return client.QuotaOfTable, args[0], nil
	}
	return "", "", usagef("name a table, or give --user", "it is not said of what")
}

// boundFlag is a bound: a number, a size, or none.
type boundFlag struct {
	value int64
	bytes bool
	given bool
	none  bool // no bound is asked for
}

func (f *boundFlag) String() string { return "" }
func (f *boundFlag) Type() string   { return "bound" }

func (f *boundFlag) Set(s string) (err error) {
	s = strings.TrimSuffix(s, "/s")
	f.given, f.none = true, s == "none"
	switch {
	case f.none:
		return nil
	case f.bytes:
		f.value, err = parseSize(s)
	default:
		f.value, err = strconv.ParseInt(s, 10, 64)
	}
	if err == nil && f.value <= 0 {
		err = usagef("", `%q is no bound: give a number above 0, or "none"`, s)
	}
	return err
}

// isBytes tells whether a kind of quota is of bytes, at once or a second.
func isBytes(kind string) bool { return strings.HasSuffix(kind, "bytes") }

func (a *app) quotaSetCommand() *cobra.Command {
	user, burst := "", time.Duration(0)
	flags := map[string]*boundFlag{}
	cmd := &cobra.Command{
		Use:   "set [TABLE] [--user NAME] --KIND BOUND",
		Short: "Set bounds of a table's or a user's quota",
		Long: `Set bounds of a table's or a user's quota. Those that are not given stay as they are;
"none" takes one away. A rate is of all nodes together: each has a share of it, by what
it is asked for. All go by it within a second.`,
		Example: `  stele quota set webtable --write-ops 1000 --read-bytes 50MiB
  stele quota set webtable --write-ops none
  stele quota set --user loader --write-bytes 10MiB --burst 5s`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, name, err := quotaOf(args, user)
			if err != nil {
				return err
			}
			change := client.QuotaChange{Of: of, Name: name, Bounds: map[string]int64{}, Burst: burst}
			for kind, f := range flags {
				switch {
				case f.none:
					change.Unbounded = append(change.Unbounded, kind)
				case f.given:
					change.Bounds[kind] = f.value
				}
			}
			if len(change.Bounds)+len(change.Unbounded) == 0 {
				return usagef("such as --write-ops 1000", "it is not said what is bounded")
			}
			err = a.call(cmd, quick, func(ctx context.Context, c *client.Client) error { return c.ChangeQuota(ctx, change) })
			if err != nil {
				return err
			}
			a.talk("quota of %s %s is set", of, escapeText(name))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&user, "user", "", "of the user of this `name`, on all tables")
	for kind, usage := range map[string]string{
		api.QuotaBytes:   "`size` of files and memtables, without replicas; over it deletions alone are taken",
		api.QuotaReadOps: "`rows` read a second", api.QuotaReadBytes: "`size` of what is read a second",
		api.QuotaWriteOps: "`rows` written a second", api.QuotaWriteBytes: "`size` of what is written a second",
	} {
		flags[kind] = &boundFlag{bytes: isBytes(kind)}
		f.Var(flags[kind], strings.ReplaceAll(kind, "_", "-"), usage)
	}
	f.Var((*positiveDurationFlag)(&burst), "burst", "how much of the rates that are given may be used at once, as `time` (default 1s)")
	return cmd
}

// quotaJSON is a quota as --json prints it.
type quotaJSON struct {
	Of     string      `json:"of"`
	Name   string      `json:"name"`
	Bounds []boundJSON `json:"bounds"`
}

type boundJSON struct {
	Kind   string  `json:"kind"`
	Limit  int64   `json:"limit"`
	BurstS float64 `json:"burst_s,omitempty"`
	Used   *int64  `json:"used,omitempty"`
}

func (a *app) quotaListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the quotas",
		Long:    `List the quotas of tables and users. It takes the right to read the cluster.`,
		Example: `  stele quota list
  stele quota list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []client.Quota
			err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) (err error) {
				all, err = c.Quotas(ctx)
				return err
			})
			if err != nil {
				return err
			}
			g := newGrid("OF", "NAME", "KIND", "LIMIT", "USED", "BURST")
			for i := range all {
				q := &all[i]
				j := quotaJSON{Of: q.Of, Name: q.Name, Bounds: []boundJSON{}}
				for _, b := range q.Bounds {
					x := boundJSON{Kind: b.Kind, Limit: b.Limit, BurstS: float64(b.BurstMS) / 1000}
					used := "-"
					if b.Used >= 0 {
						x.Used, used = &b.Used, formatSize(b.Used)
					}
					j.Bounds = append(j.Bounds, x)
					g.add(q.Of, q.Name, b.Kind, boundText(b), used, burstText(b))
				}
				if a.json {
					if err := a.printJSON(j); err != nil {
						return err
					}
				}
			}
			if a.json {
				return nil
			}
			return a.print(g)
		},
	}
}

func boundText(b client.QuotaBound) string {
	text := formatCount(b.Limit)
	if isBytes(b.Kind) {
		text = formatSize(b.Limit)
	}
	if b.Kind != api.QuotaBytes {
		text += "/s"
	}
	return text
}

func burstText(b client.QuotaBound) string {
	if b.BurstMS == 0 {
		return "-"
	}
	return (time.Duration(b.BurstMS) * time.Millisecond).String()
}

func (a *app) quotaRemoveCommand() *cobra.Command {
	user := ""
	cmd := &cobra.Command{
		Use:     "remove [TABLE] [--user NAME]",
		Aliases: []string{"rm"},
		Short:   "Remove a quota with all its bounds",
		Long:    `Remove the quota of a table or a user with all its bounds.`,
		Example: `  stele quota remove webtable
  stele quota remove --user loader`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, name, err := quotaOf(args, user)
			if err != nil {
				return err
			}
			if err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) error { return c.RemoveQuota(ctx, of, name) }); err != nil {
				return err
			}
			a.talk("quota of %s %s is removed", of, escapeText(name))
			return nil
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "of the user of this `name`")
	return cmd
}

func (a *app) tableOwnerCommand() *cobra.Command {
	nobody := false
	cmd := &cobra.Command{
		Use:   "owner TABLE [USER]",
		Short: "Show or change for whose quota a table counts",
		Long: `Show or change for whose quota of bytes a table counts: at first it is who has made it.
The owner gets no right by that: see "stele acl".`,
		Example: `  stele table owner webtable
  stele table owner webtable ann
  stele table owner webtable --nobody`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if nobody && len(args) > 1 {
				return usagef("", "a user and --nobody: give one")
			}
			if nobody || len(args) > 1 {
				user := strings.Join(args[1:], "")
				if err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) error { return c.SetOwner(ctx, args[0], user) }); err != nil {
					return err
				}
				a.talk("table %s counts for %s", escapeText(args[0]), orElse(escapeText(user), "nobody"))
				return nil
			}
			var u *client.Usage
			err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) (err error) {
				u, err = c.Usage(ctx, args[0])
				return err
			})
			if err != nil {
				return err
			}
			owner := ""
			for i := range u.Tables {
				owner = u.Tables[i].Owner
			}
			if a.json {
				return a.printJSON(ownerJSON{args[0], owner})
			}
			_, err = fmt.Fprintln(a.out, orElse(escapeText(owner), "-"))
			return err
		},
	}
	cmd.Flags().BoolVar(&nobody, "nobody", false, "it counts for nobody")
	return cmd
}

// ownerJSON is whose a table is, as --json prints it.
type ownerJSON struct {
	Table string `json:"table"`
	Owner string `json:"owner"`
}

// faultOfQuota knows the errors about quotas.
func faultOfQuota(err error) *fault {
	var used *client.QuotaError
	switch {
	case errors.As(err, &used) && used.Bytes:
		return &fault{code: exitQuota, hint: `"stele usage" shows what takes the room; deletions are taken, and count when they are compacted`}
	case errors.As(err, &used):
		return &fault{code: exitQuota, hint: fmt.Sprintf(`try again in %v; "stele quota list" shows the quotas`, used.RetryAfter.Round(time.Millisecond))}
	case errors.Is(err, client.ErrNoQuota):
		return &fault{code: exitNotFound, hint: `"stele quota list" shows the quotas`}
	}
	return nil
}

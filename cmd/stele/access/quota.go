package access

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
)

func quotaCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Set, list and remove quotas of tables and users",
		Long: `Set, list and remove quotas of tables and users. A rate quota limits the rate of all
nodes together. A request over it fails with a retry-after, which clients wait for
before they retry. Operations are rows read or written. A table over its quota of bytes
accepts only deletions; deleted data counts until it is compacted.

A quota of bytes is enforced about 3 seconds after it is reached. --write-bytes limits
what can be written in that time. A user's quota of bytes counts the tables that the
user owns, not what the user writes to tables of others.`,
		Example: `  stele quota set webtable --bytes 100GiB --write-ops 1000
  stele quota set --user loader --write-bytes 10MiB
  stele quota list`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(quotaSetCommand(a), quotaListCommand(a), quotaRemoveCommand(a))
	return cmd
}

// quotaOf returns the subject of a quota: TABLE, or --user.
func quotaOf(args []string, user string) (of, name string, err error) {
	switch {
	case user != "" && len(args) > 0:
		return "", "", cli.Usagef("use one of them", "a table and --user are both given")
	case user != "":
		return client.QuotaOfUser, user, nil
	case len(args) > 0:
		return client.QuotaOfTable, args[0], nil
	}
	return "", "", cli.Usagef("name a table, or use --user", "the quota has neither a table nor a user")
}

// boundFlag is a bound: a number, a size, or none.
type boundFlag struct {
	value int64
	bytes bool
	given bool
	none  bool // the bound is to be removed
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
		f.value, err = cli.ParseSize(s)
	default:
		f.value, err = strconv.ParseInt(s, 10, 64)
	}
	if err == nil && f.value <= 0 {
		err = cli.Usagef(`use a number above 0, or "none"`, "%q is not a valid bound", s)
	}
	return err
}

// isBytes reports whether a kind of quota is in bytes or bytes per second.
func isBytes(kind string) bool { return strings.HasSuffix(kind, "bytes") }

const quotaSetLong = `Set bounds of the quota of a table or user. Bounds that are not given keep their values;
"none" removes a bound. A rate applies to all nodes together: each node gets a share
according to its load. The change takes effect on all nodes within a second.`

const quotaSetExample = `  stele quota set webtable --write-ops 1000 --read-bytes 50MiB
  stele quota set webtable --write-ops none
  stele quota set --user loader --write-bytes 10MiB --burst 5s`

func quotaSetCommand(a *cli.App) *cobra.Command {
	user, burst := "", time.Duration(0)
	flags := map[string]*boundFlag{}
	cmd := &cobra.Command{
		Use:               "set [TABLE] [--user NAME] --KIND BOUND",
		Short:             "Set bounds of the quota of a table or user",
		Long:              quotaSetLong,
		Example:           quotaSetExample,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.CompleteTable,
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
				return cli.Usagef("add one, such as --write-ops 1000", "no bound given")
			}
			err = a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error { return c.Quotas().Change(ctx, change) })
			if err != nil {
				return err
			}
			if len(change.Bounds) > 0 {
				a.Notef("quota of %s %s is set", of, cli.EscapeText(name))
				return nil
			}
			slices.Sort(change.Unbounded)
			a.Notef("%s %s has no bound of %s", of, cli.EscapeText(name), strings.Join(change.Unbounded, ", "))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&user, "user", "", "set the quota of the user of this `name`, on all tables")
	for kind, usage := range map[string]string{
		api.QuotaBytes:   "`size` of files and memtables, without replicas; above it only deletions are accepted",
		api.QuotaReadOps: "`rows` read per second", api.QuotaReadBytes: "`size` read per second",
		api.QuotaWriteOps: "`rows` written per second", api.QuotaWriteBytes: "`size` written per second",
	} {
		flags[kind] = &boundFlag{bytes: isBytes(kind)}
		f.Var(flags[kind], strings.ReplaceAll(kind, "_", "-"), usage)
	}
	f.Var((*cli.PositiveDurationFlag)(&burst), "burst", "burst of the given rates: the amount that they allow in this `duration` (default 1s)")
	return cmd
}

// quotaJSON is the --json form of a quota. Unlike in client.Quota, bursts are in seconds, and unknown
// usage is omitted.
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
	// Refused is how many requests a rate has rejected in the last ten minutes.
	Refused *int64 `json:"rejected,omitempty"`
}

const quotaListExample = `  stele quota list
  stele quota list --json`

func quotaListCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the quotas",
		Long: `List the quotas of tables and users. The caller needs the right monitor on the cluster.

REJECTED are the requests, and rows of requests, that a rate has rejected on all nodes in
the last 10 minutes.`,
		Example: quotaListExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var refused map[string]int64
			all, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) ([]client.Quota, error) {
				all, err := c.Quotas().List(ctx)
				if err == nil {
					refused = health.Refusals(ctx, c)
				}
				return all, err
			})
			if err != nil {
				return err
			}
			return printQuotas(a, all, refused)
		},
	}
}

// printQuotas prints a row for each bound of each quota. refused has the requests that rates have rejected.
func printQuotas(a *cli.App, all []client.Quota, refused map[string]int64) error {
	g := cli.NewGrid("OF", "NAME", "KIND", "LIMIT", "USED", "REJECTED", "BURST")
	for i := range all {
		q := &all[i]
		j := quotaJSON{Of: q.Of, Name: q.Name, Bounds: []boundJSON{}}
		for _, b := range q.Bounds {
			x := boundJSON{Kind: b.Kind, Limit: b.Limit, BurstS: float64(b.BurstMS) / 1000}
			used, rejected := "-", cli.Number("-")
			if b.Kind != api.QuotaBytes {
				n := refused[api.QuotaText(q.Of, q.Name, b.Kind)]
				x.Refused, rejected = &n, cli.Count(n)
			}
			if b.Used >= 0 {
				x.Used, used = &b.Used, cli.FormatSize(b.Used)
			}
			j.Bounds = append(j.Bounds, x)
			g.Add(q.Of, q.Name, b.Kind, boundText(b), used, rejected, burstText(b))
		}
		if a.JSON {
			if err := a.PrintJSON(j); err != nil {
				return err
			}
		}
	}
	if a.JSON {
		return nil
	}
	return a.Print(g)
}

func boundText(b client.QuotaBound) string {
	text := cli.FormatCount(b.Limit)
	if isBytes(b.Kind) {
		text = cli.FormatSize(b.Limit)
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

func quotaRemoveCommand(a *cli.App) *cobra.Command {
	user := ""
	cmd := &cobra.Command{
		Use:     "remove [TABLE] [--user NAME]",
		Aliases: []string{"rm"},
		Short:   "Remove a quota with all its bounds",
		Long:    `Remove the quota of a table or a user with all its bounds.`,
		Example: `  stele quota remove webtable
  stele quota remove --user loader`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, name, err := quotaOf(args, user)
			if err != nil {
				return err
			}
			if err := a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error { return c.Quotas().Remove(ctx, of, name) }); err != nil {
				return err
			}
			a.Notef("quota of %s %s is removed", of, cli.EscapeText(name))
			return nil
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "remove the quota of the user of this `name`")
	return cmd
}

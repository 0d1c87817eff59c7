package backups

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
)

func scheduleCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Have the cluster make backups from time to time",
		Long: `Have the cluster itself make backups from time to time, inside the cluster. The schedules
are kept in the cluster, and need no host with cron: if a node dies, another one goes on.`,
		Example: `  stele backup schedule create nightly --all --every 24h --at 02:00 --keep 7d
  stele backup schedule list`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(scheduleCreateCommand(a), scheduleListCommand(a), scheduleDescribeCommand(a), scheduleDeleteCommand(a))
	return cmd
}

const scheduleCreateLong = `Create a schedule of backups of tables, or with --all of all tables that the cluster has
at the time of each backup. The first one is made now, or at the next time of --at, the
others every --every after it.

Each backup is made once, whichever nodes fail. If the cluster was down, or the backup
before is still being made, the backups that were missed are made up for by one. A table
that is renamed stays in the schedule. One that is dropped is left out, and reported.

A backup is deleted after --keep, but not the newest one that was made: if all later ones
fail, it stays. "stele status" shows schedules whose backups fail.`

// creating holds the flags of schedule create.
type creating struct {
	spec client.ScheduleSpec
	all  bool
	at   string
}

func scheduleCreateCommand(a *cli.App) *cobra.Command {
	c := &creating{}
	cmd := &cobra.Command{
		Use:   "create NAME TABLE...|--all --every DURATION --keep DURATION",
		Short: "Create a schedule of backups",
		Long:  scheduleCreateLong,
		Example: `  stele backup schedule create nightly --all --every 24h --at 02:00 --keep 7d
  stele backup schedule create hourly webtable users --every 1h --keep 2d`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.parse(args, time.Now()); err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, db *client.Client) error {
				if err := db.Backups().CreateSchedule(ctx, c.spec); err != nil {
					return err
				}
				a.Notef("schedule %s is created", c.spec.Name)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&c.all, "all", false, "make backups of all tables")
	f.Var((*cli.PositiveDurationFlag)(&c.spec.Every), "every", "make a backup every `duration`, at least 1m")
	f.Var((*cli.PositiveDurationFlag)(&c.spec.Keep), "keep", "delete each backup after this `duration`")
	f.StringVar(&c.at, "at", "", "make the first one at this `time` of day in UTC, such as 02:00 (default: now)")
	return cmd
}

// parse checks the arguments and flags.
func (c *creating) parse(args []string, now time.Time) error {
	c.spec.Name, c.spec.Tables = args[0], args[1:]
	if err := checkCreate(c.spec.Tables, c.all, c.spec.Keep); err != nil {
		return err
	}
	if err := c.check(); err != nil || c.at == "" {
		return err
	}
	at, err := time.Parse("15:04", c.at)
	if err != nil {
		return cli.Usagef("for example: --at 02:00", "--at %q is not a time of day", c.at)
	}
	now = now.UTC()
	c.spec.First = time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), 0, 0, time.UTC)
	if !c.spec.First.After(now) {
		c.spec.First = c.spec.First.AddDate(0, 0, 1)
	}
	return nil
}

// check checks the name and the times.
func (c *creating) check() error {
	switch s := &c.spec; {
	case s.Every == 0 || s.Keep == 0:
		return cli.Usagef("for example: --every 24h --keep 7d", "--every and --keep are needed")
	case s.Every < api.ScheduleEveryMin || s.Every > api.ScheduleEveryMax:
		return cli.Usagef("for example: --every 24h", "--every is not 1m to 366d")
	case s.Keep/s.Every > api.ScheduleKeptMax:
		return cli.Usagef("make fewer, or keep them for less time", "the schedule keeps %d backups, at most %d", s.Keep/s.Every, api.ScheduleKeptMax)
	}
	if err := api.CheckScheduleName(c.spec.Name); err != nil {
		return cli.Usagef("for example: nightly", "%v", err)
	}
	return nil
}

// scheduleJSON is the --json form of a schedule. Unlike in client.Schedule, times are text.
type scheduleJSON struct {
	Name       string   `json:"name"`
	All        bool     `json:"all"`
	Tables     []string `json:"tables"`
	EveryS     float64  `json:"every_s"`
	KeepS      float64  `json:"keep_s"`
	Created    string   `json:"created"`
	Next       string   `json:"next"`
	Last       string   `json:"last,omitempty"`
	LastBackup string   `json:"last_backup,omitempty"`
	State      string   `json:"state,omitempty"` // of the last backup
	Failures   int64    `json:"failures"`
	Error      string   `json:"error,omitempty"`
	LastGood   string   `json:"last_good,omitempty"`
	By         string   `json:"by,omitempty"`
}

func jsonOfSchedule(s *client.Schedule) scheduleJSON {
	seconds := func(ms int64) float64 { return float64(ms) / 1000 }
	return scheduleJSON{Name: s.Name, All: s.All, Tables: append([]string{}, s.Tables...), EveryS: seconds(s.EveryMS), KeepS: seconds(s.KeepMS), Created: moment(s.CreatedMS),
		Next: moment(s.NextMS), Last: moment(s.LastMS), LastBackup: s.LastBackup, State: s.State, Failures: s.Failures, Error: s.Error, LastGood: moment(s.GoodMS), By: s.By}
}

// stateOf returns what the list shows about the last backup of a schedule.
func stateOf(s *client.Schedule) string {
	switch {
	case s.Error != "" && s.State != api.BackupFailed:
		return cli.OrElse(s.State, "blocked") + ", see describe"
	case s.State == "":
		return "-"
	}
	return s.State
}

// periodOf returns a duration as a flag takes it, such as 24h.
func periodOf(ms int64) string {
	s := (time.Duration(ms) * time.Millisecond).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func scheduleListCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the schedules of backups",
		Long:    `List the schedules of backups. The caller needs the right read on the cluster.`,
		Example: `  stele backup schedule list
  stele backup schedule list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) ([]client.Schedule, error) {
				return c.Backups().Schedules(ctx)
			})
			if err != nil {
				return err
			}
			g := cli.NewGrid("NAME", "EVERY", "KEEP", "TABLES", "NEXT", "LAST", "STATE", "LAST GOOD")
			for i := range all {
				s := &all[i]
				if a.JSON {
					if err := a.PrintJSON(jsonOfSchedule(s)); err != nil {
						return err
					}
					continue
				}
				g.Add(s.Name, periodOf(s.EveryMS), periodOf(s.KeepMS), tablesOf(s), moment(s.NextMS), cli.OrElse(moment(s.LastMS), "-"), stateOf(s), cli.OrElse(moment(s.GoodMS), "-"))
			}
			if a.JSON {
				return nil
			}
			return a.Print(g)
		},
	}
}

// tablesOf returns the tables of a schedule as a row of the list shows them.
func tablesOf(s *client.Schedule) string {
	if s.All {
		return "(all)"
	}
	return shownTables(s.Tables)
}

func scheduleDescribeCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "describe NAME",
		Aliases: []string{"show"},
		Short:   "Show a schedule of backups",
		Long:    `Show a schedule of backups: its tables, its times, and its last backup.`,
		Example: `  stele backup schedule describe nightly`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) ([]client.Schedule, error) {
				return c.Backups().Schedules(ctx)
			})
			if err != nil {
				return err
			}
			for i := range all {
				if all[i].Name == args[0] {
					return printSchedule(a, &all[i])
				}
			}
			return cli.NotFoundf(`"stele backup schedule list" shows the schedules`, "there is no schedule %s", cli.EscapeText(args[0]))
		},
	}
}

func printSchedule(a *cli.App, s *client.Schedule) error {
	if a.JSON {
		return a.PrintJSON(jsonOfSchedule(s))
	}
	tables := "all"
	if !s.All {
		tables = strings.Join(s.Tables, ", ")
	}
	g := cli.NewGrid("SCHEDULE", s.Name)
	for _, x := range [][2]string{
		{"tables", tables}, {"every", periodOf(s.EveryMS)}, {"keep", periodOf(s.KeepMS)}, {"created", moment(s.CreatedMS)}, {"by", s.By}, {"next", moment(s.NextMS)},
		{"last", moment(s.LastMS)}, {"last backup", s.LastBackup}, {"its state", s.State}, {"error", s.Error}, {"failures since", cli.FormatCount(s.Failures)}, {"last good", moment(s.GoodMS)},
	} {
		g.Add(x[0], cli.OrElse(x[1], "-"))
	}
	return a.Print(g)
}

func scheduleDeleteCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "delete NAME...",
		Aliases: []string{"rm"},
		Short:   "Delete schedules of backups",
		Long: `Delete schedules of backups. Their backups stay until their time is over, the newest that
was made until it is deleted: "stele backup delete".`,
		Example: `  stele backup schedule delete nightly`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				for _, name := range args {
					if err := c.Backups().DeleteSchedule(ctx, name); err != nil {
						return err
					}
					a.Notef("schedule %s is deleted", name)
				}
				return nil
			})
		},
	}
}

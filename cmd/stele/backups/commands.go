package backups

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
)

// Commands returns the command backup.
func Commands(a *cli.App) []*cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Make, list, restore and delete backups of tables",
		Long: `Make, list, restore and delete backups of tables. Backups are kept in the cluster itself:
they protect from mistaken changes and drops, not from the loss of the cluster. They
copy no data. A backup keeps the immutable files that a table has at that time, which
takes seconds and no space at first, and more as the table changes.

With --to and --from, backups are copied to a directory or a bucket outside the cluster,
and restored from there, also into another cluster.`,
		Example: `  stele backup create webtable --keep 7d
  stele backup list
  stele backup restore 20261127-194512-3f9a01 --as webtable-old
  stele backup create --all --to /mnt/backups
  stele backup restore 20261127-194512-3f9a01 --all --from /mnt/backups`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(createCommand(a), copyCommand(a), listCommand(a), describeCommand(a), verifyCommand(a), restoreCommand(a), accessCommand(a), deleteCommand(a), scheduleCommand(a))
	return []*cobra.Command{cmd}
}

const createLong = `Make a backup of tables, and print its id. Everything that was acknowledged before the
command is in it, and each row as it was at some moment until the command returned.
Tables can be used meanwhile.

The cluster makes the backup: if the command is interrupted, it goes on. It is kept until
it is deleted, or for the time of --keep.

With --to it is also copied out of the cluster, to a directory or a bucket: see "stele
backup copy". Without --keep, the backup inside the cluster is then deleted.`

const createExample = `  stele backup create webtable
  stele backup create webtable users --keep 30d
  stele backup create --all --keep 7d --json
  stele backup create --all --to /mnt/backups`

func createCommand(a *cli.App) *cobra.Command {
	all, noWait, keep, to, o := false, false, time.Duration(0), "", outside{}
	cmd := &cobra.Command{
		Use:               "create TABLE...|--all",
		Short:             "Make a backup of tables",
		Long:              createLong,
		Example:           createExample,
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkCreate(args, all, keep); err != nil {
				return err
			}
			if to != "" && noWait {
				return cli.Usagef("omit --no-wait", "--to copies a backup that is made")
			}
			if to == "" && o.init {
				return cli.Usagef("add --to DIR", "--init is for a directory outside the cluster")
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				if to != "" {
					return createOutside(ctx, a, c, args, keep, to, &o)
				}
				id, err := c.Backups().Create(ctx, keep, args...)
				if err != nil {
					return err
				}
				return report(ctx, a, c, id, noWait)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "make a backup of all tables")
	o.flags(cmd)
	o.initFlag(cmd)
	f.StringVar(&to, "to", "", "copy the backup to this `directory`, outside the cluster, or to s3://BUCKET/PREFIX")
	f.BoolVar(&noWait, "no-wait", false, "do not wait until it is made")
	f.Var((*cli.PositiveDurationFlag)(&keep), "keep", "delete the backup after this `duration` (default: keep it until it is deleted)")
	return cmd
}

// checkCreate checks the arguments of create.
func checkCreate(tables []string, all bool, keep time.Duration) error {
	switch {
	case all && len(tables) > 0:
		return cli.Usagef("use one of them", "tables and --all are both given")
	case !all && len(tables) == 0:
		return cli.Usagef("name tables, or use --all", "no table is given")
	case keep > api.BackupKeepMax:
		return cli.Usagef("without --keep a backup is kept until it is deleted", "--keep is more than ten years")
	}
	return nil
}

// wait waits for a new backup.
func wait(ctx context.Context, a *cli.App, c *client.Client, id string) (*client.Backup, error) {
	began := time.Now()
	stop := a.StartTicker(func() string { return fmt.Sprintf("backup %s, %s", id, text.Uptime(time.Since(began))) })
	b, err := c.Backups().Wait(ctx, id)
	if stop(); err != nil {
		return nil, cli.WithHint(err, fmt.Sprintf(`"stele backup describe %[1]s" shows its state, "stele backup delete %[1]s" cancels it`, id))
	}
	return b, nil
}

// createOutside makes a backup and copies it to a directory. It deletes the backup inside the cluster unless that is to be kept.
func createOutside(ctx context.Context, a *cli.App, c *client.Client, tables []string, keep time.Duration, to string, o *outside) error {
	d, err := o.create(ctx, to) // before a backup that could not be copied
	if err != nil {
		return err
	}
	id, err := c.Backups().Create(ctx, keep, tables...)
	if err != nil {
		return err
	}
	b, err := wait(ctx, a, c, id)
	if err != nil {
		return err
	}
	if err := copyOut(ctx, a, c, b, d, to); err != nil || keep > 0 {
		return err
	}
	return c.Backups().Delete(ctx, id)
}

// report waits for a new backup, unless it shall not, and prints it.
func report(ctx context.Context, a *cli.App, c *client.Client, id string, noWait bool) error {
	var b *client.Backup
	var err error
	if noWait {
		b, err = c.Backups().Find(ctx, id)
	} else {
		b, err = wait(ctx, a, c, id)
	}
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(jsonOf(b))
	}
	if _, err := fmt.Fprintln(a.Out, id); err != nil {
		return err
	}
	if noWait {
		a.Notef(`the backup is being made: "stele backup list" shows when it is done`)
	} else {
		a.Notef("%s, %s, %s", cli.Plural(int64(len(b.Tables)), "table"), cli.Plural(b.Tablets, "tablet"), cli.FormatSize(b.Bytes))
	}
	return nil
}

// backupJSON is the --json form of a backup. Unlike in client.Backup, times are text.
type backupJSON struct {
	ID       string   `json:"id"`
	State    string   `json:"state"`
	Created  string   `json:"created"`
	Ended    string   `json:"ended,omitempty"`
	Expires  string   `json:"expires,omitempty"`
	Copied   string   `json:"copied,omitempty"` // in a directory
	By       string   `json:"by,omitempty"`
	Error    string   `json:"error,omitempty"`
	Tables   []string `json:"tables"`
	Tablets  int64    `json:"tablets"`
	Bytes    int64    `json:"bytes"`
	Files    int64    `json:"files,omitempty"` // in a directory
	Schedule string   `json:"schedule,omitempty"`
}

func moment(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

func jsonOf(b *client.Backup) backupJSON {
	return backupJSON{ID: b.ID, State: b.State, Created: moment(b.CreatedMS), Ended: moment(b.EndedMS), Expires: moment(b.ExpiresMS), By: b.By, Error: b.Error,
		Tables: append([]string{}, b.Tables...), Tablets: b.Tablets, Bytes: b.Bytes, Schedule: b.Schedule}
}

func listCommand(a *cli.App) *cobra.Command {
	from, o := "", outside{}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the backups",
		Long: `List the backups in the cluster, the oldest first, or with --from those outside it.
The caller needs the right read on the cluster. --from needs no cluster.`,
		Example: `  stele backup list
  stele backup list --json
  stele backup list --from /mnt/backups`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from != "" {
				return listFrom(cmd.Context(), a, from, &o)
			}
			all, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) ([]client.Backup, error) { return c.Backups().List(ctx) })
			if err != nil {
				return err
			}
			return printBackups(a, all)
		},
	}
	fromFlag(cmd, &from)
	o.storeFlags(cmd)
	return cmd
}

// tablesShown is how many names of tables a row of the list has.
const tablesShown = 3

func printBackups(a *cli.App, all []client.Backup) error {
	g := cli.NewGrid("ID", "STATE", "CREATED", "EXPIRES", "TABLES", "TABLETS", "SIZE")
	for i := range all {
		b := &all[i]
		if a.JSON {
			if err := a.PrintJSON(jsonOf(b)); err != nil {
				return err
			}
			continue
		}
		g.Add(b.ID, b.State, moment(b.CreatedMS), cli.OrElse(moment(b.ExpiresMS), "-"), shownTables(b.Tables), cli.FormatCount(b.Tablets), cli.FormatSize(b.Bytes))
	}
	if a.JSON {
		return nil
	}
	return a.Print(g)
}

// shownTables returns the first names of tables.
func shownTables(tables []string) string {
	names := strings.Join(tables[:min(len(tables), tablesShown)], ", ")
	if more := len(tables) - tablesShown; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names
}

func describeCommand(a *cli.App) *cobra.Command {
	from, o := "", outside{}
	cmd := &cobra.Command{
		Use:     "describe ID",
		Aliases: []string{"show"},
		Short:   "Show a backup",
		Long:    `Show a backup: its state, why it is not made or has failed, and its tables.`,
		Example: `  stele backup describe 20261127-194512-3f9a01
  stele backup describe 20261127-194512-3f9a01 --from /mnt/backups`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from != "" {
				return describeFrom(cmd.Context(), a, args[0], from, &o)
			}
			b, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) (*client.Backup, error) {
				return c.Backups().Find(ctx, args[0])
			})
			if err != nil {
				return err
			}
			return printBackup(a, jsonOf(b))
		},
	}
	fromFlag(cmd, &from)
	o.storeFlags(cmd)
	return cmd
}

func printBackup(a *cli.App, b backupJSON) error {
	if a.JSON {
		return a.PrintJSON(b)
	}
	g := cli.NewGrid("BACKUP", b.ID)
	for _, x := range [][2]string{
		{"state", b.State}, {"error", b.Error}, {"created", b.Created}, {"ended", b.Ended}, {"expires", b.Expires}, {"copied", b.Copied}, {"by", b.By}, {"schedule", b.Schedule},
		{"tables", strings.Join(b.Tables, ", ")}, {"tablets", cli.FormatCount(b.Tablets)}, {"size", cli.FormatSize(b.Bytes)},
	} {
		g.Add(x[0], cli.OrElse(x[1], "-"))
	}
	return a.Print(g)
}

const restoreLong = `Restore a table from a backup, as a new table, whose name must be free: drop the present
table before, or restore under another name. No data is copied, so that the new table is
served within seconds.

The new table has the schema of that time. Its rights and owner are those of a new table.

With --to-time the table gets the changes since the backup, too, up to a time. It must
have a change stream since before the backup, and may have been dropped, but not purged.
Each row is as it was at that time, by the clock of the server that had it. Changes are
written to new files, which takes time in proportion to them; the table appears when it
is complete. If the command dies, run it again.

With --from the backup is outside it, and the files of the table are uploaded first. The
cluster may be another one than that of the backup, and have another number of nodes.`

const restoreExample = `  stele backup restore 20261127-194512-3f9a01 --as webtable-old
  stele backup restore 20261127-194512-3f9a01 webtable --as webtable
  stele backup restore 20261127-194512-3f9a01 --as noon --to-time 2026-11-28T12:00:00Z
  stele backup restore 20261127-194512-3f9a01 --as before --to-time 15m
  stele backup restore 20261127-194512-3f9a01 --all --from /mnt/backups`

// restoring holds the arguments and flags of restore.
type restoring struct {
	id      string
	table   []string // none, or one
	all     bool
	as      string // empty: the name in the backup
	from    string // empty: inside the cluster
	toTime  string // empty: that of the backup
	outside outside
}

func restoreCommand(a *cli.App) *cobra.Command {
	r := &restoring{}
	cmd := &cobra.Command{
		Use:     "restore ID [TABLE|--all] [--as NAME]",
		Short:   "Restore tables from a backup",
		Long:    restoreLong,
		Example: restoreExample,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.id, r.table = args[0], args[1:]
			if r.all && (r.as != "" || len(r.table) > 0) {
				return cli.Usagef("tables of --all get the names that they have in the backup", "--all is given with a table or --as")
			}
			if r.toTime != "" {
				return restoreToTime(cmd, a, r)
			}
			if r.from != "" {
				return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error { return restoreFrom(ctx, a, c, r) })
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error { return restoreInside(ctx, a, c, r) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.as, "as", "", "`name` of the new table (default: that of the table in the backup)")
	f.BoolVar(&r.all, "all", false, "restore all tables of the backup")
	f.StringVar(&r.toTime, "to-time", "", "restore to this `time` in RFC 3339, microseconds, or an age such as 15m")
	fromFlag(cmd, &r.from)
	r.outside.flags(cmd)
	return cmd
}

// restoreToTime is restore with --to-time.
func restoreToTime(cmd *cobra.Command, a *cli.App, r *restoring) error {
	if r.from != "" {
		return cli.Usagef("the changes are in the cluster", "--from and --to-time are both given")
	}
	at, err := cli.ParseMoment(r.toTime, time.Now())
	if err != nil {
		return err
	}
	return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error { return restoreTo(ctx, a, c, r, at) })
}

// names returns the names of the tables to restore from a backup inside the cluster.
func (r *restoring) names(ctx context.Context, c *client.Client) ([]string, error) {
	if len(r.table) > 0 {
		return r.table, nil
	}
	b, err := c.Backups().Find(ctx, r.id)
	if err != nil {
		return nil, err
	}
	return r.choose(b.Tables)
}

// restoreInside restores tables of a backup inside the cluster.
func restoreInside(ctx context.Context, a *cli.App, c *client.Client, r *restoring) error {
	names, err := r.names(ctx, c)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := restore(ctx, a, c, r.id, name, cli.OrElse(r.as, name)); err != nil {
			return err
		}
	}
	return nil
}

// choose returns the tables to restore: of those in the backup the one that an argument names, the only one, or with --all each.
func (r *restoring) choose(tables []string) ([]string, error) {
	switch {
	case r.all:
		return tables, nil
	case len(r.table) > 0 && !slices.Contains(tables, r.table[0]):
		return nil, cli.NotFoundf("it has "+shownTables(tables), "backup %s has no table %s", r.id, cli.EscapeText(r.table[0]))
	case len(r.table) > 0:
		return r.table, nil
	case len(tables) != 1:
		return nil, cli.Usagef("name the table, or use --all", "backup %s has %d tables", r.id, len(tables))
	}
	return tables, nil
}

func restore(ctx context.Context, a *cli.App, c *client.Client, id, name, as string) error {
	s, err := c.Backups().Restore(ctx, id, name, as)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(map[string]any{"table": s.Name, "id": s.ID})
	}
	a.Notef("table %s of backup %s is restored as table %s", cli.EscapeText(name), id, cli.EscapeText(s.Name))
	return nil
}

func deleteCommand(a *cli.App) *cobra.Command {
	from, yes, o := "", false, outside{}
	cmd := &cobra.Command{
		Use:     "delete ID...",
		Aliases: []string{"rm"},
		Short:   "Delete backups",
		Long: `Delete backups, or cancel those that are being made. Restored tables are not affected.
Space is freed by the next garbage collections. Outside the cluster it is freed at once,
and unfinished copies can be deleted, too.`,
		Example: `  stele backup delete 20261127-194512-3f9a01 --yes
  stele backup delete 20261127-194512-3f9a01 --from /mnt/backups`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.Confirm(yes, "Delete "+cli.Plural(int64(len(args)), "backup")+"? This cannot be undone."); err != nil {
				return err
			}
			if from != "" {
				return deleteFrom(cmd.Context(), a, args, from, &o)
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				for _, id := range args {
					if err := c.Backups().Delete(ctx, id); err != nil {
						return err
					}
					a.Notef("backup %s is deleted", id)
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	fromFlag(cmd, &from)
	o.storeFlags(cmd)
	return cmd
}

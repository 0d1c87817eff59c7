package backups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/backupdir"
	"github.com/steledb/stele/internal/s3store"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/masterkeys"
)

const copyLong = `Copy a backup out of the cluster: to a directory, of another disk or of a file server; or
to s3://BUCKET/PREFIX, a bucket of Amazon S3 or of a server that speaks its protocol.
It may have backups of other times and of other clusters. Files that an earlier backup in
it has are not copied again. --init makes a new or empty directory one of backups.
Without it such a directory is an error: its disk may not be mounted.

The copy also has the rights, owners and quotas of its tables, and with all tables those
of the cluster: see "stele backup restore-access".

The backup is listed there when it is whole and durable. If the command is interrupted,
run it again: it continues.

With --encryption-key-file the copies are encrypted. All backups of that directory or
bucket need the key. It is not stored in the cluster: without a copy of it the backups
are lost.

The credentials for a bucket are those of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
AWS_SESSION_TOKEN, or of AWS_PROFILE in ~/.aws/credentials. AWS_REGION, AWS_CA_BUNDLE and
AWS_ENDPOINT_URL apply, too.`

const copyExample = `  stele backup copy 20261127-194512-3f9a01 --to /mnt/backups
  stele backup create --all --to /mnt/backups --rate 50MiB
  stele backup create --all --to s3://backups/prod --s3-endpoint https://s3.example.com
  stele backup create --all --to /mnt/sealed --init --encryption-key-file /etc/stele/backup-key`

func copyCommand(a *cli.App) *cobra.Command {
	to, o := "", outside{}
	cmd := &cobra.Command{
		Use:     "copy ID --to DIR",
		Short:   "Copy a backup to a directory or bucket outside the cluster",
		Long:    copyLong,
		Example: copyExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return cli.Usagef("for example: stele backup copy ID --to /mnt/backups", "--to is missing")
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				d, err := o.create(ctx, to)
				if err != nil {
					return err
				}
				b, err := c.Backups().Wait(ctx, args[0])
				if err != nil {
					return err
				}
				return copyOut(ctx, a, c, b, d, to)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`directory` of backups, or s3://BUCKET/PREFIX")
	o.flags(cmd)
	o.initFlag(cmd)
	return cmd
}

// outside holds the flags of commands that move the bytes of backups outside the cluster.
type outside struct {
	rate     string
	endpoint string
	init     bool
	keys     masterkeys.Source
}

func (o *outside) flags(cmd *cobra.Command) {
	o.storeFlags(cmd)
	cmd.Flags().StringVar(&o.rate, "rate", "", "move at most these `bytes` a second outside the cluster, such as 50MiB (default: no bound)")
}

// storeFlags adds the flags that are needed to open a directory or a bucket.
func (o *outside) storeFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.keys.File, "encryption-key-file", "", "`FILE` with the key of the backups: 64 hexadecimal digits, as of openssl rand -hex 32")
	cmd.Flags().StringVar(&o.endpoint, "s3-endpoint", "", "`URL` of the server of s3:// buckets (default: AWS_ENDPOINT_URL, or Amazon S3)")
}

func (o *outside) initFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.init, "init", false, "make the directory one of backups; create it if only its parent exists")
}

// key returns the key of the directory, nil without one.
func (o *outside) key(ctx context.Context) (*backupdir.Key, error) {
	keys, err := o.keys.Read(ctx)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	if len(keys) > 1 {
		return nil, cli.Usagef("a directory has one key", "%s has %d keys", o.keys.File, len(keys))
	}
	return backupdir.NewKey(keys[0][:])
}

// apply applies the flags to a directory.
func (o *outside) apply(d *backupdir.Dir) error {
	if o.rate == "" {
		return nil
	}
	n, err := cli.ParseSize(o.rate)
	if err != nil {
		return err
	}
	if n <= 0 {
		return cli.Usagef("for example: --rate 50MiB", "--rate must be more than 0")
	}
	d.Limit(n)
	return nil
}

// copyOut copies a backup to a directory, which create returned, and prints it.
func copyOut(ctx context.Context, a *cli.App, c *client.Client, b *client.Backup, d *backupdir.Dir, to string) error {
	access, err := backupdir.ReadAccess(ctx, c, b.Tables)
	if err != nil {
		return fmt.Errorf("read users, rights and quotas: %w", err)
	}
	p, stop := showMoves(a, "copying "+b.ID)
	x, err := d.Copy(ctx, c.Backups(), b, access, p)
	took := stop()
	if err != nil {
		if err = explain(err, to); cli.FaultOf(err).Hint == "" {
			err = cli.WithHint(err, fmt.Sprintf(`"stele backup copy %s --to %s" continues`, b.ID, to))
		}
		return err
	}
	if a.JSON {
		return a.PrintJSON(jsonOfCopy(x))
	}
	if _, err := fmt.Fprintln(a.Out, x.ID); err != nil {
		return err
	}
	a.Notef("copied %s in %s; %s were there", rateOf(p.Moved(), took), text.Duration(took), cli.FormatSize(p.Total()-p.Moved()))
	return nil
}

// showMoves shows the progress of a copy until stop, which returns how long it took.
func showMoves(a *cli.App, what string) (p *backupdir.Progress, stop func() time.Duration) {
	p, began := &backupdir.Progress{}, time.Now()
	end := a.StartTicker(func() string {
		return fmt.Sprintf("%s: %s of %s, %s", what, cli.FormatSize(p.Done()), cli.FormatSize(p.Total()), rateOf(p.Moved(), time.Since(began)))
	})
	return p, func() time.Duration {
		end()
		return max(time.Since(began).Round(time.Millisecond), time.Millisecond)
	}
}

// rateOf returns bytes and their rate as text.
func rateOf(n int64, took time.Duration) string {
	return fmt.Sprintf("%s, %s/s", cli.FormatSize(n), cli.FormatSize(int64(float64(n)/took.Seconds())))
}

// explain adds exit codes and hints to errors of directories of backups.
func explain(err error, dir string) error {
	var busy *backupdir.BusyError
	var corrupt *backupdir.CorruptError
	var later *backupdir.FormatError
	var key *backupdir.KeyError
	var bucket *s3store.Error
	switch {
	case errors.As(err, new(*cli.Fault)):
		return err
	case errors.As(err, &bucket) && bucket.Remedy != "":
		return &cli.Fault{Code: cli.ExitError, Err: err, Hint: bucket.Remedy}
	case errors.As(err, new(*s3store.UsageError)):
		return &cli.Fault{Code: cli.ExitUsage, Err: err}
	case errors.Is(err, backupdir.ErrLockLost):
		return &cli.Fault{Code: cli.ExitConflict, Err: err, Hint: "run the command again: a copy continues"}
	case errors.Is(err, backupdir.ErrNoBackup):
		return &cli.Fault{Code: cli.ExitNotFound, Err: err, Hint: fmt.Sprintf(`"stele backup list --from %s" shows the backups with their ids`, dir)}
	case errors.Is(err, backupdir.ErrNoDirectory):
		return &cli.Fault{Code: cli.ExitNotFound, Err: err, Hint: `is its disk mounted? "stele backup copy ID --to DIR --init" makes a directory of backups`}
	case errors.As(err, &busy):
		return &cli.Fault{Code: cli.ExitConflict, Err: err, Hint: "retry when it is done; one that was killed in a bucket counts for two minutes"}
	case errors.As(err, &corrupt):
		return &cli.Fault{Code: cli.ExitUnhealthy, Err: err, Hint: repairHint(dir)}
	case errors.As(err, &key) && key.Want == "":
		return &cli.Fault{Code: cli.ExitUsage, Err: err, Hint: "omit --encryption-key-file, or use another directory or prefix"}
	case errors.As(err, &key):
		return &cli.Fault{Code: cli.ExitUsage, Err: err, Hint: "name the file of that key by --encryption-key-file, or use another directory or prefix"}
	case errors.As(err, &later):
		return &cli.Fault{Code: cli.ExitUsage, Err: err}
	}
	return err
}

func repairHint(dir string) string {
	return fmt.Sprintf(`restore the file from another replica of the directory; or remove it, and copy the backup again if the cluster has it still: "stele backup copy ID --to %s"`, dir)
}

// create opens a directory or a bucket to write with the flags. With --init it makes a directory one of backups.
func (o *outside) create(ctx context.Context, to string) (*backupdir.Dir, error) {
	open := backupdir.Create
	if !o.init {
		open = func(fsys vfs.FS, path string, key *backupdir.Key) (*backupdir.Dir, error) {
			d, err := backupdir.Open(fsys, path, key)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, backupdir.ErrNoDirectory) {
				err = &cli.Fault{Code: cli.ExitNotFound, Err: err, Hint: "is its disk mounted? for a new directory, or an empty one, add --init"}
			}
			return d, err
		}
	}
	d, err := o.openAs(ctx, to, open)
	if err == nil {
		err = explain(d.CheckKey(ctx), to)
	}
	return d, err
}

// open opens a directory or a bucket with the flags.
func (o *outside) open(ctx context.Context, from string) (*backupdir.Dir, error) {
	return o.openAs(ctx, from, backupdir.Open)
}

// openAs opens a bucket, or a directory by a function.
func (o *outside) openAs(ctx context.Context, at string, directory func(vfs.FS, string, *backupdir.Key) (*backupdir.Dir, error)) (*backupdir.Dir, error) {
	key, err := o.key(ctx)
	if err != nil {
		return nil, err
	}
	var d *backupdir.Dir
	if !strings.HasPrefix(at, s3store.Scheme) {
		d, err = directory(vfs.OS(), at, key)
	} else if s, bucketErr := s3store.Open(ctx, at, s3store.Config{Endpoint: o.endpoint}); bucketErr != nil {
		err = bucketErr
	} else {
		d = backupdir.In(s, key)
	}
	if err != nil {
		return nil, explain(err, at)
	}
	return d, o.apply(d)
}

// find opens a directory with the flags and returns a backup in it.
func (o *outside) find(ctx context.Context, from, id string) (*backupdir.Dir, *backupdir.Backup, error) {
	d, err := o.open(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	b, err := d.Find(ctx, id)
	if err != nil {
		return nil, nil, explain(err, from)
	}
	return d, b, nil
}

// jsonOfCopy is the --json form of a backup in a directory.
func jsonOfCopy(b *backupdir.Backup) backupJSON {
	return backupJSON{ID: b.ID, State: "copied", Created: moment(b.Created.UnixMilli()), Copied: moment(b.Copied.UnixMilli()),
		Tables: append([]string{}, b.Tables...), Tablets: b.Tablets, Bytes: b.Bytes, Files: int64(len(b.Files))}
}

// jsonOfEntry is the --json form of a backup that is listed.
func jsonOfEntry(e *backupdir.Entry) backupJSON {
	if errors.As(e.Err, new(*backupdir.KeyError)) {
		return backupJSON{ID: e.ID, State: "other-key", Tables: []string{}, Error: e.Err.Error()}
	}
	if e.Err != nil {
		return backupJSON{ID: e.ID, State: "damaged", Tables: []string{}, Error: e.Err.Error()}
	}
	return jsonOfCopy(e.Backup)
}

// listFrom lists the backups of a directory.
func listFrom(ctx context.Context, a *cli.App, from string, o *outside) error {
	d, err := o.open(ctx, from)
	if err != nil {
		return err
	}
	all, err := d.List(ctx)
	if err != nil {
		return err
	}
	unfinished, err := d.Unfinished(ctx)
	if err != nil {
		return err
	}
	g := cli.NewGrid("ID", "STATE", "CREATED", "COPIED", "TABLES", "TABLETS", "SIZE")
	for _, e := range all {
		x := jsonOfEntry(&e)
		if e.Err != nil {
			a.Notef("backup %s: %v", e.ID, e.Err)
		}
		if a.JSON {
			if err := a.PrintJSON(x); err != nil {
				return err
			}
			continue
		}
		g.Add(x.ID, x.State, cli.OrElse(x.Created, "-"), cli.OrElse(x.Copied, "-"), shownTables(x.Tables), cli.FormatCount(x.Tablets), cli.FormatSize(x.Bytes))
	}
	for _, id := range unfinished {
		a.Notef(`the copy of %[1]s was interrupted, or is at work: "stele backup copy %[1]s --to %[2]s" continues`, id, from)
	}
	if a.JSON {
		return nil
	}
	return a.Print(g)
}

// describeFrom prints a backup of a directory.
func describeFrom(ctx context.Context, a *cli.App, id, from string, o *outside) error {
	_, b, err := o.find(ctx, from, id)
	if err != nil {
		return err
	}
	return printBackup(a, jsonOfCopy(b))
}

// deleteFrom deletes backups of a directory.
func deleteFrom(ctx context.Context, a *cli.App, ids []string, from string, o *outside) error {
	d, err := o.open(ctx, from)
	if err != nil {
		return err
	}
	for _, id := range ids {
		freed, err := d.Delete(ctx, id)
		if err != nil {
			return explain(err, from)
		}
		a.Notef("backup %s is deleted, and %s freed", id, cli.FormatSize(freed.Bytes))
	}
	return nil
}

const verifyLong = `Read each byte of backups in a directory or bucket, and compare checksums. Without ids
all backups are verified. Damaged files are printed, and the exit code is then 5. A
directory without backups is an error.

"stele blob fsck" verifies backups inside the cluster.`

func verifyCommand(a *cli.App) *cobra.Command {
	from, o := "", outside{}
	cmd := &cobra.Command{
		Use:   "verify [ID...] --from DIR",
		Short: "Verify backups in a directory or bucket",
		Long:  verifyLong,
		Example: `  stele backup verify --from /mnt/backups
  stele backup verify 20261127-194512-3f9a01 --from /mnt/backups`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if from == "" {
				return cli.Usagef(`for backups inside the cluster use "stele blob fsck"`, "--from is missing")
			}
			ctx, cancel := a.Within(cmd, cli.NoTimeout)
			defer cancel()
			return verifyFrom(ctx, a, args, from, &o)
		},
	}
	fromFlag(cmd, &from)
	o.flags(cmd)
	return cmd
}

// fromFlag adds the flag that names a directory.
func fromFlag(cmd *cobra.Command, from *string) {
	cmd.Flags().StringVar(from, "from", "", "use the backups in this `directory`, outside the cluster, or in s3://BUCKET/PREFIX")
}

func verifyFrom(ctx context.Context, a *cli.App, ids []string, from string, o *outside) error {
	d, err := o.open(ctx, from)
	if err != nil {
		return err
	}
	if ids, err = orAll(ctx, d, ids); err != nil {
		return err
	}
	damaged := 0
	p, stop := showMoves(a, "verifying")
	err = d.Verify(ctx, ids, p, func(id string, err *backupdir.CorruptError) {
		damaged++
		a.Notef("backup %s: %v", id, err)
	})
	took := stop()
	if err != nil {
		return explain(err, from)
	}
	if a.JSON {
		if err := a.PrintJSON(map[string]any{"backups": len(ids), "damaged": damaged, "bytes": p.Total(), "read": p.Moved()}); err != nil {
			return err
		}
	}
	if damaged > 0 {
		return &cli.Fault{Code: cli.ExitUnhealthy, Err: fmt.Errorf("%s damaged", cli.Plural(int64(damaged), "file")), Hint: repairHint(from)}
	}
	a.Notef("%s whole: read %s", cli.Plural(int64(len(ids)), "backup"), rateOf(p.Moved(), took))
	return nil
}

// orAll returns ids, or those of all backups if there are none.
func orAll(ctx context.Context, d *backupdir.Dir, ids []string) ([]string, error) {
	if len(ids) > 0 {
		return ids, nil
	}
	all, err := d.List(ctx)
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	if err == nil && len(ids) == 0 {
		return nil, cli.NotFoundf(`"stele backup list --from DIR" also shows unfinished copies`, "the directory has no backups: nothing was verified")
	}
	return ids, err
}

// restoreFrom restores tables of a backup in a directory.
func restoreFrom(ctx context.Context, a *cli.App, c *client.Client, r *restoring) error {
	d, b, err := r.outside.find(ctx, r.from, r.id)
	if err != nil {
		return err
	}
	names, err := r.choose(b.Tables)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := checkFree(ctx, c, cli.OrElse(r.as, name)); err != nil {
			return err
		}
	}
	var selected backupdir.Selection
	if len(names) < len(b.Tables) {
		selected = selectTables(names)
	}
	p, stop := showMoves(a, "uploading "+b.ID)
	id, err := d.Import(ctx, backupdir.TargetOf(c), b.ID, selected, p)
	took := stop()
	if err != nil {
		return explain(err, r.from)
	}
	a.Notef("uploaded %s", rateOf(p.Moved(), took))
	for _, name := range names {
		if err := restore(ctx, a, c, id, name, cli.OrElse(r.as, name)); err != nil {
			return cli.WithHint(err, fmt.Sprintf(`the backup is in the cluster for a day: "stele backup restore %s %s --as NAME"`, id, name))
		}
	}
	return c.Backups().Delete(ctx, id) // the tables have its files
}

// checkFree checks that a table can have that name, before much is uploaded.
func checkFree(ctx context.Context, c *client.Client, name string) error {
	_, err := c.Tables().Describe(ctx, name)
	switch {
	case err == nil:
		return cli.Conflictf(fmt.Sprintf(`restore under another name by --as, or drop it: "stele table drop %s"`, name), "table %s exists", cli.EscapeText(name))
	case errors.Is(err, client.ErrNoTable):
		return nil
	}
	return err
}

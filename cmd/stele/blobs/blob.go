package blobs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

func blobCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blob",
		Short: "Store files as blobs, and inspect the block store",
		Long: `Store files as blobs, and inspect the block store, which holds blobs, the SSTables of
tables and the commit logs of nodes. Each is a sequence of extents of 64 MiB (the
setting extent_size), and each extent has replicas on three nodes, if the cluster has
three. Any node answers these commands.

A blob is immutable. Its id has 32 hexadecimal digits.`,
		Example: `  stele blob put backup.tar
  stele blob get 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65 backup.tar
  stele blob fsck`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(putCommand(a), getCommand(a), listCommand(a), statCommand(a), verifyCommand(a), removeCommand(a),
		fsckCommand(a), statusCommand(a), reviveCommand(a), resumeSweepCommand(a))
	return cmd
}

// blobJSON is the --json form of a blob. Unlike in client.BlobInfo, the time is in UTC, and what is
// unknown is omitted.
type blobJSON struct {
	ID       string `json:"id"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Bytes    int64  `json:"bytes"`
	Extents  int64  `json:"extents"`
	Replicas *int64 `json:"replicas,omitempty"`
	Created  string `json:"created,omitempty"`
}

func blobOf(b *client.BlobInfo) blobJSON {
	j := blobJSON{ID: b.ID, Kind: b.Kind, Name: b.Name, Bytes: b.Bytes, Extents: b.Extents}
	if b.Created.UnixMilli() > 0 {
		j.Created = b.Created.UTC().Format(time.RFC3339Nano)
	}
	return j
}

const putLong = `Store a file, or standard input for "-", as a blob, and print the id of the blob. When
the id is printed, the blob is on the disks of all its nodes. The maximum is 1600
extents: 100 GiB with extents of 64 MiB, less with a smaller extent_size.

The name is a label and need not be unique. The default is the name of the file. If the
command is interrupted, nothing is stored.`

const putExample = `  stele blob put backup.tar
  tar -c /etc | stele blob put - --name etc.tar
  id=$(stele blob put backup.tar)`

func putCommand(a *cli.App) *cobra.Command {
	name := ""
	cmd := &cobra.Command{
		Use:     "put FILE",
		Short:   "Store a file as a blob and print its id",
		Long:    putLong,
		Example: putExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, size, err := openInput(a, args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			if args[0] != "-" && !cmd.Flags().Changed("name") {
				name = filepath.Base(args[0])
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return putBlob(ctx, a, c, name, file, size)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the blob (default: the name of the file)")
	return cmd
}

// openInput opens a file, or standard input for "-", and returns its size: -1 if it is no regular file.
func openInput(a *cli.App, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(a.In), -1, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = cli.Usagef(fmt.Sprintf("to store a whole folder: tar -c %s | stele blob put - --name NAME", name), "%s is a folder", name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return f, -1, nil
	}
	return f, info.Size(), nil
}

func putBlob(ctx context.Context, a *cli.App, c *client.Client, name string, file io.Reader, size int64) error {
	start, counted := time.Now(), &cli.CountingReader{Reader: file}
	stop := showBytes(a, "storing "+cli.OrElse(name, "a blob"), size, counted.Count)
	b, err := c.Blobs().Put(ctx, name, counted)
	stop()
	if err != nil {
		return putFault(err)
	}
	if a.JSON {
		return a.PrintJSON(blobOf(&b))
	}
	a.Notef("stored %s in %s%s", cli.FormatSize(b.Bytes), cli.Plural(b.Extents, "extent"), formatRate(b.Bytes, time.Since(start)))
	_, err = fmt.Fprintln(a.Out, b.ID)
	return err
}

// putFault adds a hint to the error of a failed upload.
func putFault(err error) error {
	switch {
	case errors.Is(err, client.ErrUploadExpired):
		return &cli.Fault{Code: cli.ExitError, Hint: "the node was restarted, or the client switched to another one: store it again", Err: errors.New("nothing was stored: the upload has expired")}
	case errors.Is(err, client.ErrAmbiguous):
		return cli.WithHint(err, `"stele blob ls" shows whether it was stored`)
	case errors.Is(err, client.ErrLimit):
		return &cli.Fault{Code: cli.ExitUsage, Hint: "divide it, for example with split(1), and store each part", Err: err}
	}
	return err
}

// showBytes reports the progress of work on total bytes until stop is called; total is -1 if unknown.
func showBytes(a *cli.App, title string, total int64, done func() int64) (stop func()) {
	start := time.Now()
	state := func() string {
		n := done()
		if total >= 0 {
			return cli.FormatSize(n) + " of " + cli.FormatSize(total) + formatRate(n, time.Since(start))
		}
		return cli.FormatSize(n) + formatRate(n, time.Since(start))
	}
	if total < 0 && a.ErrTTY {
		return a.StartTicker(func() string { return title + ": " + state() })
	}
	p := a.NewProgress(title)
	p.Start(max(total, 1), func() (int64, string) { return done(), state() })
	return p.Stop
}

// formatRate returns ", " and the rate at which n bytes were moved; empty below 100 ms, or for 0 bytes.
func formatRate(n int64, took time.Duration) string {
	if took < 100*time.Millisecond || n == 0 {
		return ""
	}
	return ", " + cli.FormatSize(int64(float64(n)/took.Seconds())) + "/s"
}

const getLong = `Write a blob to a file, or to standard output for "-". Every byte is verified when it is
read. If a replica is corrupt or unreachable, another one is read.

The file appears only when it is complete. Until then the bytes go to a hidden file next
to it, which is removed on error. An existing file is kept, unless --force is given.`

const getExample = `  stele blob get 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65 backup.tar
  stele blob get 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65 - | tar -t`

func getCommand(a *cli.App) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:               "get ID FILE",
		Short:             "Write a blob to a file",
		Long:              getLong,
		Example:           getExample,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeBlob(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				s, err := c.Blobs().Stat(ctx, args[0], 0, 1, false)
				if err != nil {
					return err
				}
				err = getBlob(ctx, a, c, &s.BlobInfo, args[1], force)
				if errors.Is(err, client.ErrCorrupt) || errors.Is(err, client.ErrUnavailable) {
					err = cli.WithHint(err, fmt.Sprintf(`"stele blob stat %s" shows which replicas there are, and on which nodes`, s.ID))
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing file")
	return cmd
}

// checkOverwrite returns an error if name is a folder, or an existing file and force is not set.
func checkOverwrite(name string, b *client.BlobInfo, force bool) error {
	info, err := os.Lstat(name)
	if err != nil {
		return nil
	}
	if to, err := os.Stat(name); err == nil && to.IsDir() {
		return cli.Usagef("such as "+filepath.Join(name, cli.OrElse(filepath.Base(b.Name), b.ID)), "%s is a folder: want the name of a file", name)
	}
	if !force {
		return &cli.Fault{Code: cli.ExitError, Hint: "--force replaces it", Err: fmt.Errorf("%s exists and has %s", name, cli.FormatSize(info.Size()))}
	}
	return nil
}

func getBlob(ctx context.Context, a *cli.App, c *client.Client, b *client.BlobInfo, name string, force bool) (err error) {
	if name == "-" {
		return c.Blobs().Copy(ctx, b, a.Out)
	}
	if err := checkOverwrite(name, b, force); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		path.Path = name // not the hidden file
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	start, counted := time.Now(), &countingWriter{w: bufio.NewWriterSize(f, 1<<20)}
	stop := showBytes(a, "reading "+cli.OrElse(b.Name, b.ID), b.Bytes, counted.n.Load)
	err = c.Blobs().Copy(ctx, b, counted)
	stop()
	if err == nil {
		err = errors.Join(counted.w.Flush(), f.Chmod(0o666&^umask()), f.Sync())
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = checkOverwrite(name, b, force) // the file may have been created meanwhile
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(blobOf(b))
	}
	a.Notef("wrote %s to %s%s", cli.FormatSize(b.Bytes), name, formatRate(b.Bytes, time.Since(start)))
	return nil
}

// countingWriter counts the bytes written.
type countingWriter struct {
	w *bufio.Writer
	n atomic.Int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

const removeLong = `Delete a blob that was stored by "stele blob put". Files of tables cannot be deleted by
this command. Nodes that are down delete their replicas when they are back.`

const removeExample = `  stele blob rm 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65
  stele blob rm 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65 --yes`

func removeCommand(a *cli.App) *cobra.Command {
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:               "rm ID",
		Aliases:           []string{"remove", "delete"},
		Short:             "Delete a blob",
		Long:              removeLong,
		Example:           removeExample,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeBlob(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				return removeBlob(ctx, a, c, args[0], yes, dryRun)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the blob that would be deleted, and change nothing")
	return cmd
}

// removeBlob deletes a blob after confirmation, or prints what it would delete.
func removeBlob(ctx context.Context, a *cli.App, c *client.Client, id string, yes, dryRun bool) error {
	s, err := c.Blobs().Stat(ctx, id, 0, 1, false)
	if err != nil {
		return err
	}
	if err := removable(&s.BlobInfo); err != nil {
		return err
	}
	what := fmt.Sprintf("blob %s (%s, %s)", s.ID, cli.OrElse(s.Name, "without a name"), cli.FormatSize(s.Bytes))
	if dryRun {
		return reportBlobRemoval(a, &s.BlobInfo, false, "would delete "+what)
	}
	if err := a.Confirm(yes, "Delete "+what+"? This cannot be undone."); err != nil {
		return err
	}
	if err := c.Blobs().Delete(ctx, s.ID); err != nil {
		return err
	}
	return reportBlobRemoval(a, &s.BlobInfo, true, "deleted "+what)
}

func reportBlobRemoval(a *cli.App, b *client.BlobInfo, done bool, what string) error {
	if a.JSON {
		return a.PrintJSON(struct {
			blobJSON
			Done bool `json:"done"`
		}{blobOf(b), done})
	}
	a.Notef("%s", what)
	return nil
}

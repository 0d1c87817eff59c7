package locks

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

const watchLong = `Print a line for each event of a file, directory or lock, in order, until interrupted.
The path need not exist.

  contents_changed PATH       the file was written, created or removed
  child_added PATH NAME       the directory has a new entry
  child_removed PATH NAME     the directory lost an entry
  lock_acquired PATH          the lock is no longer free
  lock_freed PATH             the lock became free
  failed_over                 events may have been lost: read the file again

Events of the same kind in quick succession may be combined.`

const watchExample = `  stele lock watch /locks/config
  stele lock watch /servers --json`

func watchCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "watch PATH",
		Short:   "Print the events of a file or directory",
		Long:    watchLong,
		Example: watchExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return inSession(a, cmd, "lock watch", func(ctx context.Context, s *session.Session) error {
				w, err := s.Watch(ctx, args[0], api.AllEvents)
				if err != nil {
					return err
				}
				defer w.Close()
				a.Notef("watching %s: press Ctrl-C to stop", args[0])
				return printEvents(cmd.Context(), a, w)
			})
		},
	}
}

// inSession runs f with a session. The timeout bounds only the opening of the session, not f.
func inSession(a *cli.App, cmd *cobra.Command, verb string, f func(context.Context, *session.Session) error) error {
	c, err := newClient(a)
	if err != nil {
		return err
	}
	defer c.Close()
	opening, cancel := a.Within(cmd, cli.DefaultTimeout)
	defer cancel()
	host, _ := os.Hostname()
	s, err := c.Open(opening, session.Options{Name: fmt.Sprintf("stele %s, process %d on %.200s", verb, os.Getpid(), host)})
	if err != nil {
		return err
	}
	defer func() {
		// A clean close frees the locks at once; otherwise they are free when the session expires.
		wait := closeWait
		if !s.Valid() {
			wait /= 10 // the lock service probably does not answer
		}
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		_ = s.Close(ctx)
	}()
	return f(cmd.Context(), s)
}

func printEvents(ctx context.Context, a *cli.App, w *session.Watcher) error {
	for {
		v, err := w.Next(ctx)
		switch {
		case ctx.Err() != nil: // interrupted: the normal end
			return nil
		case err != nil:
			return err
		}
		if err := printEvent(a, &v); err != nil {
			return err
		}
		if err := a.Out.Flush(); err != nil {
			return err
		}
	}
}

func printEvent(a *cli.App, v *api.Event) error {
	kind := v.Kind.String()
	if a.JSON {
		return a.PrintJSON(struct {
			Event string `json:"event"`
			Path  string `json:"path,omitempty"`
			Name  string `json:"name,omitempty"`
			Index uint64 `json:"index,omitempty"`
		}{kind, v.Path, v.Name, v.Index})
	}
	line := kind
	for _, word := range []string{v.Path, v.Name} {
		if word != "" {
			line += "\t" + cli.EscapeText(word)
		}
	}
	_, err := fmt.Fprintln(a.Out, line)
	return err
}

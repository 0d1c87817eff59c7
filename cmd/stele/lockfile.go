package main

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

func (a *app) lockGetCommand() *cobra.Command {
	raw, stale := false, false
	cmd := &cobra.Command{
		Use:   "get PATH",
		Short: "Print the content of a file",
		Long: `Print the content of a file, unchanged. On a terminal, unprintable characters are
escaped, unless --raw is given.

The read is linearizable. With --stale any voter answers without the leader, and the
content may be old.`,
		Example: `  stele lock get /locks/config
  stele lock get /locks/config --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.locks(cmd, defaultTimeout, func(ctx context.Context, c *session.Client) error {
				get := c.Get
				if stale {
					get = c.GetStale
				}
				f, err := get(ctx, args[0])
				if err != nil {
					return lockError(err, args[0])
				}
				return a.printFile(&f, raw)
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print the content unchanged, also on a terminal")
	cmd.Flags().BoolVar(&stale, "stale", false, "read from any voter, without the leader; the content may be old")
	return cmd
}

func (a *app) printFile(f *api.File, raw bool) error {
	switch {
	case a.json:
		j := statOf(&f.Stat)
		value := bytesOf(f.Data)
		j.Value, j.ValueBytes = textOf(value), &value
		return a.printJSON(j)
	case a.outTTY && !raw:
		_, err := fmt.Fprintln(a.out, escapeLines(strings.TrimSuffix(string(f.Data), "\n")))
		return err
	}
	_, err := a.out.Write(f.Data)
	return err
}

// lockError adds the path to an error that lacks it.
func lockError(err error, p string) error {
	f := faultOf(err)
	if f.code != exitNotFound && f.code != exitConflict || strings.Contains(err.Error(), p) {
		return err
	}
	return &fault{code: f.code, hint: f.hint, err: fmt.Errorf("%s: %w", p, err)}
}

// generationFlag holds --generation and --create: the generation that a path must have.
type generationFlag struct {
	generation uint64
	create     bool
}

func (g *generationFlag) of(cmd *cobra.Command) (uint64, error) {
	given := cmd.Flags().Changed("generation")
	switch {
	case g.create && given:
		return 0, usagef("use one of them; --create means generation 0", "--create and --generation are both given")
	case g.create:
		return 0, nil
	case given:
		return g.generation, nil
	}
	return api.AnyGeneration, nil
}

func (a *app) lockSetCommand() *cobra.Command {
	var g generationFlag
	var guard string
	cmd := &cobra.Command{
		Use:   "set PATH VALUE",
		Short: "Write a file",
		Long: `Create a file, or replace its content. VALUE may be - for standard input, or @FILE.

With --create the file must not exist. With --generation it must have that generation:
see "stele lock stat". With --guard a lock must still be held, named by its sequencer,
as in STELE_LOCK_SEQUENCER of "stele lock hold". If the condition does not hold, nothing
is changed and the exit code is 11.

When the command returns, no client reads the old content any more.`,
		Example: `  stele lock set /locks/config 'replicas: 3'
  stele lock set /locks/config - < config.yaml
  stele lock set /locks/leader "$HOSTNAME" --create
  stele lock set /locks/done yes --guard "$STELE_LOCK_SEQUENCER"`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			gen, err := g.of(cmd)
			if err != nil {
				return err
			}
			o, err := guarded(guard)
			if err != nil {
				return err
			}
			value, err := (&valueReader{a: a}).read("the value", args[1])
			if err != nil {
				return err
			}
			return a.locks(cmd, defaultTimeout, func(ctx context.Context, c *session.Client) error {
				made, err := c.Set(ctx, args[0], value, gen, o)
				if err != nil || !a.json {
					return lockError(err, args[0])
				}
				return a.printJSON(struct {
					Path       string `json:"path"`
					Generation uint64 `json:"generation"`
				}{args[0], made})
			})
		},
	}
	cmd.Flags().Uint64Var(&g.generation, "generation", 0, "write only if the file's generation is this `number`; 0 if it must not exist")
	cmd.Flags().BoolVar(&g.create, "create", false, "write only if the file does not exist")
	cmd.Flags().StringVar(&guard, "guard", "", "write only while the lock of this `sequencer` is held")
	a.escapesFlag(cmd)
	return cmd
}

// guarded returns the options of a change with --guard; text is the sequencer, or empty.
func guarded(text string) (o api.SetOptions, err error) {
	if text == "" {
		return o, nil
	}
	if o.Guard, err = api.ParseSequencer(text); err != nil {
		err = usagef(`use STELE_LOCK_SEQUENCER of "stele lock hold"`, "--guard: %w", err)
	}
	return o, err
}

func (a *app) lockRemoveCommand() *cobra.Command {
	var g generationFlag
	var guard string
	cmd := &cobra.Command{
		Use:     "rm PATH",
		Aliases: []string{"delete"},
		Short:   "Remove a file or an empty directory",
		Long: `Remove a file or an empty directory. With --generation it must have that generation. A
file whose lock is held cannot be removed.`,
		Example: `  stele lock rm /locks/config
  stele lock rm /locks/config --generation 1234`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			gen, err := g.of(cmd)
			if err != nil {
				return err
			}
			o, err := guarded(guard)
			if err != nil {
				return err
			}
			return a.locks(cmd, defaultTimeout, func(ctx context.Context, c *session.Client) error {
				if err := c.Delete(ctx, args[0], gen, o); err != nil || !a.json {
					return lockError(err, args[0])
				}
				return a.printJSON(struct {
					Path string `json:"path"`
				}{args[0]})
			})
		},
	}
	cmd.Flags().Uint64Var(&g.generation, "generation", 0, "remove only if the generation is this `number`")
	cmd.Flags().StringVar(&guard, "guard", "", "remove only while the lock of this `sequencer` is held")
	return cmd
}

func (a *app) lockListCommand() *cobra.Command {
	long := false
	cmd := &cobra.Command{
		Use:     "ls [PATH]",
		Aliases: []string{"list"},
		Short:   "List a directory",
		Long: `List the entries of a directory, / by default. Prints one name per line, directories
with a trailing slash; with --long, a table.`,
		Example: `  stele lock ls
  stele lock ls /locks -l`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "/"
			if len(args) > 0 {
				dir = args[0]
			}
			return a.locks(cmd, defaultTimeout, func(ctx context.Context, c *session.Client) error {
				all, err := c.List(ctx, dir)
				if err != nil {
					return lockError(err, dir)
				}
				return a.printNodes(all, long)
			})
		},
	}
	cmd.Flags().BoolVarP(&long, "long", "l", false, "show sizes, generations and locks")
	return cmd
}

func (a *app) printNodes(all []api.Stat, long bool) error {
	g := newGrid("NAME", "SIZE", "GENERATION", "LOCK", "HELD BY", "EPHEMERAL OF")
	for i := range all {
		s := &all[i]
		name := path.Base(s.Path)
		if s.Dir {
			name += "/"
		}
		switch {
		case a.json:
			if err := a.printJSON(statOf(s)); err != nil {
				return err
			}
		case long:
			what := size(int64(s.Bytes))
			if s.Dir {
				what = number(plural(int64(s.Children), "entry"))
			}
			g.add(name, what, number(fmt.Sprint(s.Generation)), lockState(s), sessions(s.Holders...), sessions(s.Ephemeral))
		default:
			fmt.Fprintln(a.out, escapeText(name))
		}
	}
	return a.print(g)
}

// sessions returns the sessions whose ids are not 0, for messages.
func sessions(ids ...api.SessionID) string {
	var all []string
	for _, id := range ids {
		if id != 0 {
			all = append(all, fmt.Sprint("session ", id))
		}
	}
	return strings.Join(all, ", ")
}

func (a *app) lockStatCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stat PATH",
		Short: "Show the generations and the lock of a file or directory",
		Example: `  stele lock stat /locks/nightly
  stele lock stat /locks/nightly --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.locks(cmd, defaultTimeout, func(ctx context.Context, c *session.Client) error {
				s, err := c.Stat(ctx, args[0])
				if err != nil {
					return lockError(err, args[0])
				}
				if a.json {
					return a.printJSON(statOf(&s))
				}
				return a.print(statGrid(&s))
			})
		},
	}
}

func statGrid(s *api.Stat) *grid {
	g := newGrid("PROPERTY", "VALUE")
	g.add("path", s.Path)
	if s.Dir {
		g.add("directory of", plural(int64(s.Children), "entry"))
	} else {
		g.add("size", formatSize(int64(s.Bytes)))
	}
	g.add("generation", fmt.Sprint(s.Generation))
	g.add("instance", fmt.Sprint(s.Instance))
	if s.Ephemeral != 0 {
		g.add("ephemeral of", sessions(s.Ephemeral))
	}
	g.add("lock", lockState(s))
	if len(s.Holders) > 0 {
		g.add("held by", sessions(s.Holders...))
	}
	g.add("lock generation", fmt.Sprint(s.LockGeneration))
	if s.ACL != "" {
		g.add("ACL", s.ACL)
	}
	return g
}

func (a *app) lockCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check SEQUENCER",
		Short: "Check whether a sequencer is valid",
		Long: `Check whether the lock of a sequencer has been held without interruption since the
sequencer was issued. The exit code is 0 if it has, 11 if not. A server that acts for
the holder of a lock checks the holder's sequencer first.`,
		Example: `  stele lock check "$STELE_LOCK_SEQUENCER" && ./deploy`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := api.ParseSequencer(args[0])
			if err != nil {
				return usagef(`use STELE_LOCK_SEQUENCER of "stele lock hold"`, "%w", err)
			}
			return a.locks(cmd, defaultTimeout, func(ctx context.Context, c *session.Client) error {
				err := c.CheckSequencer(ctx, q)
				err = lockError(err, q.Path)
				if err != nil && faultOf(err).code == exitNotFound { // the lock was removed with its file
					err = &fault{code: exitConflict, hint: faultOf(err).hint, err: err}
				}
				if !a.json || err != nil && faultOf(err).code != exitConflict {
					return err
				}
				if printed := a.printJSON(struct {
					Sequencer string `json:"sequencer"`
					Valid     bool   `json:"valid"`
				}{args[0], err == nil}); printed != nil || err == nil {
					return printed
				}
				return silentExit(exitConflict)
			})
		},
	}
}

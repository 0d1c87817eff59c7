package locks

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

const getLong = `Print the content of a file, unchanged. On a terminal, unprintable characters are
escaped, unless --raw is given.

The read is linearizable. With --stale any voter answers without the leader, and the
content may be old.`

const getExample = `  stele lock get /locks/config
  stele lock get /locks/config --json`

func getCommand(a *cli.App) *cobra.Command {
	raw, stale := false, false
	cmd := &cobra.Command{
		Use:     "get PATH",
		Short:   "Print the content of a file",
		Long:    getLong,
		Example: getExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return callLocks(a, cmd, cli.DefaultTimeout, func(ctx context.Context, c *session.Client) error {
				get := c.Get
				if stale {
					get = c.GetStale
				}
				f, err := get(ctx, args[0])
				if err != nil {
					return lockError(err, args[0])
				}
				return printFile(a, &f, raw)
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print the content unchanged, also on a terminal")
	cmd.Flags().BoolVar(&stale, "stale", false, "read from any voter, without the leader; the content may be old")
	return cmd
}

func printFile(a *cli.App, f *api.File, raw bool) error {
	switch {
	case a.JSON:
		j := statOf(&f.Stat)
		value := cli.BytesOf(f.Data)
		j.Value, j.ValueBytes = cli.TextOf(value), &value
		return a.PrintJSON(j)
	case a.OutTTY && !raw:
		_, err := fmt.Fprintln(a.Out, cli.EscapeLines(strings.TrimSuffix(string(f.Data), "\n")))
		return err
	}
	_, err := a.Out.Write(f.Data)
	return err
}

// lockError adds the path to an error that lacks it.
func lockError(err error, p string) error {
	f := cli.FaultOf(err)
	if f.Code != cli.ExitNotFound && f.Code != cli.ExitConflict || strings.Contains(err.Error(), p) {
		return err
	}
	return &cli.Fault{Code: f.Code, Hint: f.Hint, Err: fmt.Errorf("%s: %w", p, err)}
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
		return 0, cli.Usagef("use one of them; --create means generation 0", "--create and --generation are both given")
	case g.create:
		return 0, nil
	case given:
		return g.generation, nil
	}
	return api.AnyGeneration, nil
}

const setLong = `Create a file, or replace its content. VALUE may be - for standard input, or @FILE.

With --create the file must not exist. With --generation it must have that generation:
see "stele lock stat". With --guard a lock must still be held, named by its sequencer,
as in STELE_LOCK_SEQUENCER of "stele lock hold". If the condition does not hold, nothing
is changed and the exit code is 11.

When the command returns, no client reads the old content any more.`

const setExample = `  stele lock set /locks/config 'replicas: 3'
  stele lock set /locks/config - < config.yaml
  stele lock set /locks/leader "$HOSTNAME" --create
  stele lock set /locks/done yes --guard "$STELE_LOCK_SEQUENCER"`

func setCommand(a *cli.App) *cobra.Command {
	var g generationFlag
	var guard string
	cmd := &cobra.Command{
		Use:     "set PATH VALUE",
		Short:   "Write a file",
		Long:    setLong,
		Example: setExample,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			gen, o, err := g.conditions(cmd, guard)
			if err != nil {
				return err
			}
			value, err := cli.NewValueReader(a).Read("the value", args[1])
			if err != nil {
				return err
			}
			return callLocks(a, cmd, cli.DefaultTimeout, func(ctx context.Context, c *session.Client) error {
				made, err := c.Set(ctx, args[0], value, gen, o)
				if err != nil || !a.JSON {
					return lockError(err, args[0])
				}
				return a.PrintJSON(struct {
					Path       string `json:"path"`
					Generation uint64 `json:"generation"`
				}{args[0], made})
			})
		},
	}
	cmd.Flags().Uint64Var(&g.generation, "generation", 0, "write only if the file's generation is this `number`; 0 if it must not exist")
	cmd.Flags().BoolVar(&g.create, "create", false, "write only if the file does not exist")
	cmd.Flags().StringVar(&guard, "guard", "", "write only while the lock of this `sequencer` is held")
	a.EscapesFlag(cmd)
	return cmd
}

// conditions returns the conditions of a change: the generation, and the sequencer of --guard.
func (g *generationFlag) conditions(cmd *cobra.Command, guard string) (gen uint64, o api.SetOptions, err error) {
	if gen, err = g.of(cmd); err == nil {
		o, err = guarded(guard)
	}
	return gen, o, err
}

// guarded returns the options of a change with --guard; text is the sequencer, or empty.
func guarded(text string) (o api.SetOptions, err error) {
	if text == "" {
		return o, nil
	}
	if o.Guard, err = api.ParseSequencer(text); err != nil {
		err = cli.Usagef(`use STELE_LOCK_SEQUENCER of "stele lock hold"`, "--guard: %w", err)
	}
	return o, err
}

const removeLong = `Remove a file or an empty directory. With --generation it must have that generation. A
file whose lock is held cannot be removed.`

const removeExample = `  stele lock rm /locks/config
  stele lock rm /locks/config --generation 1234`

func removeCommand(a *cli.App) *cobra.Command {
	var g generationFlag
	var guard string
	cmd := &cobra.Command{
		Use:     "rm PATH",
		Aliases: []string{"delete"},
		Short:   "Remove a file or an empty directory",
		Long:    removeLong,
		Example: removeExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			gen, o, err := g.conditions(cmd, guard)
			if err != nil {
				return err
			}
			return callLocks(a, cmd, cli.DefaultTimeout, func(ctx context.Context, c *session.Client) error {
				if err := c.Delete(ctx, args[0], gen, o); err != nil || !a.JSON {
					return lockError(err, args[0])
				}
				return a.PrintJSON(struct {
					Path string `json:"path"`
				}{args[0]})
			})
		},
	}
	cmd.Flags().Uint64Var(&g.generation, "generation", 0, "remove only if the generation is this `number`")
	cmd.Flags().StringVar(&guard, "guard", "", "remove only while the lock of this `sequencer` is held")
	return cmd
}

func listCommand(a *cli.App) *cobra.Command {
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
			return callLocks(a, cmd, cli.DefaultTimeout, func(ctx context.Context, c *session.Client) error {
				all, err := c.List(ctx, dir)
				if err != nil {
					return lockError(err, dir)
				}
				return printNodes(a, all, long)
			})
		},
	}
	cmd.Flags().BoolVarP(&long, "long", "l", false, "show sizes, generations and locks")
	return cmd
}

func printNodes(a *cli.App, all []api.Stat, long bool) error {
	g := cli.NewGrid("NAME", "SIZE", "GENERATION", "LOCK", "HELD BY", "EPHEMERAL OF")
	for i := range all {
		s := &all[i]
		name := path.Base(s.Path)
		if s.Dir {
			name += "/"
		}
		switch {
		case a.JSON:
			if err := a.PrintJSON(statOf(s)); err != nil {
				return err
			}
		case long:
			what := cli.Size(int64(s.Bytes))
			if s.Dir {
				what = cli.Number(cli.Plural(int64(s.Children), "entry"))
			}
			g.Add(name, what, cli.Number(fmt.Sprint(s.Generation)), lockState(s), sessions(s.Holders...), sessions(s.Ephemeral))
		default:
			fmt.Fprintln(a.Out, cli.EscapeText(name))
		}
	}
	return a.Print(g)
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

func statCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "stat PATH",
		Short: "Show the generations and the lock of a file or directory",
		Example: `  stele lock stat /locks/nightly
  stele lock stat /locks/nightly --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return callLocks(a, cmd, cli.DefaultTimeout, func(ctx context.Context, c *session.Client) error {
				s, err := c.Stat(ctx, args[0])
				if err != nil {
					return lockError(err, args[0])
				}
				if a.JSON {
					return a.PrintJSON(statOf(&s))
				}
				return a.Print(statGrid(&s))
			})
		},
	}
}

func statGrid(s *api.Stat) *cli.Grid {
	g := cli.NewGrid("PROPERTY", "VALUE")
	g.Add("path", s.Path)
	if s.Dir {
		g.Add("directory of", cli.Plural(int64(s.Children), "entry"))
	} else {
		g.Add("size", cli.FormatSize(int64(s.Bytes)))
	}
	g.Add("generation", fmt.Sprint(s.Generation))
	g.Add("instance", fmt.Sprint(s.Instance))
	if s.Ephemeral != 0 {
		g.Add("ephemeral of", sessions(s.Ephemeral))
	}
	g.Add("lock", lockState(s))
	if len(s.Holders) > 0 {
		g.Add("held by", sessions(s.Holders...))
	}
	g.Add("lock generation", fmt.Sprint(s.LockGeneration))
	if s.ACL != "" {
		g.Add("ACL", s.ACL)
	}
	return g
}

const checkLong = `Check whether the lock of a sequencer has been held without interruption since the
sequencer was issued. The exit code is 0 if it has, 11 if not. A server that acts for
the holder of a lock checks the holder's sequencer first.`

func checkCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "check SEQUENCER",
		Short:   "Check whether a sequencer is valid",
		Long:    checkLong,
		Example: `  stele lock check "$STELE_LOCK_SEQUENCER" && ./deploy`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := api.ParseSequencer(args[0])
			if err != nil {
				return cli.Usagef(`use STELE_LOCK_SEQUENCER of "stele lock hold"`, "%w", err)
			}
			return callLocks(a, cmd, cli.DefaultTimeout, func(ctx context.Context, c *session.Client) error {
				return checkSequencer(ctx, a, c, q, args[0])
			})
		},
	}
}

// checkSequencer returns an error if a sequencer is not valid; text is the sequencer as it was given.
func checkSequencer(ctx context.Context, a *cli.App, c *session.Client, q api.Sequencer, text string) error {
	err := c.CheckSequencer(ctx, q)
	err = lockError(err, q.Path)
	if err != nil && cli.FaultOf(err).Code == cli.ExitNotFound { // the lock was removed with its file
		err = &cli.Fault{Code: cli.ExitConflict, Hint: cli.FaultOf(err).Hint, Err: err}
	}
	if !a.JSON || err != nil && cli.FaultOf(err).Code != cli.ExitConflict {
		return err
	}
	if printed := a.PrintJSON(struct {
		Sequencer string `json:"sequencer"`
		Valid     bool   `json:"valid"`
	}{text, err == nil}); printed != nil || err == nil {
		return printed
	}
	return cli.SilentExit(cli.ExitConflict)
}

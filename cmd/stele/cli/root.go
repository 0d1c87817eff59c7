package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
)

// A Group is a section of the help of the program, with its commands.
type Group struct {
	ID       string
	Title    string
	Commands []*cobra.Command
}

// GroupTools is the id of the group that has the command help.
const GroupTools = "tools"

func inGroup(id string, c *cobra.Command) *cobra.Command {
	c.GroupID = id
	return c
}

// Root builds the whole command line of groups, in the order of the help.
func (a *App) Root(groups []Group) *cobra.Command {
	cobra.EnableCommandSorting = false // keep the order of commands
	root := &cobra.Command{
		Use:   "stele",
		Short: "Bigtable in one binary",
		Long: `Stele is Bigtable in one binary: the node that stores and serves tables, and
the tools to work with them.

Exit codes: 0 done, 1 error, 3 node unreachable, 4 wrong usage, 5 unhealthy, 6 not
found, 7 timed out, 8 permission denied or not authenticated, 9 over a quota, 10 disk
full, 11 a condition (of cas, or of a lock) did not hold and nothing was changed.

With --json, errors are JSON objects on standard error, one per line, with the fields
error, kind, exit_code and hint.`,
		Example: `  stele serve --dev
  stele scan webtable --prefix com.cnn.
  stele status --addr 10.0.0.5:7106`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          UnknownCommand,
		RunE:          RequireSubcommand,
	}
	root.Version = node.Version() // adds --version
	root.SetVersionTemplate(VersionLine())
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.CompletionOptions.DisableDefaultCmd = true // completionCommand has an example
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(inGroup(GroupTools, helpCommand()))
	flags := root.PersistentFlags()
	flags.StringVar(&a.Addr, "addr", envOr("STELE_ADDR", client.DefaultAddr), "`host:port` of a node, or several separated by commas; also STELE_ADDR")
	flags.StringVar(&a.Credential, "credential", os.Getenv("STELE_CREDENTIAL"), "`file` with the certificate and key, or the access token, to authenticate with; also STELE_CREDENTIAL")
	AllowEmpty(flags, "credential") // an empty value overrides STELE_CREDENTIAL
	flags.BoolVar(&a.JSON, "json", false, "print JSON: one object, or one per line")
	flags.Var((*PositiveDurationFlag)(&a.Timeout), "timeout", "give up after this `duration`, such as 10s (default 30s; none for scans and long-running commands); also STELE_TIMEOUT")
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if err := rejectEmptyFlags(cmd); err != nil {
			return err
		}
		if err := rejectEmptyArguments(cmd, args); err != nil {
			return err
		}
		return a.readEnvironment()
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.ID, Title: g.Title})
		for _, c := range g.Commands {
			root.AddCommand(inGroup(g.ID, c))
		}
	}
	wrapArgumentErrors(root)
	return root
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// readEnvironment sets --timeout from STELE_TIMEOUT if the flag was not given.
func (a *App) readEnvironment() error {
	v := os.Getenv("STELE_TIMEOUT")
	if a.Timeout != 0 || v == "" {
		return nil
	}
	d, err := ParseDuration(v)
	if err != nil {
		return fmt.Errorf("STELE_TIMEOUT: %w", err)
	}
	a.Timeout = d
	return nil
}

// helpCommand is cobra's help command, but rejects unknown topics.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command",
		Example: `  stele help
  stele help table create`,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return UnknownCommand(found, append(rest, "")[:1])
			}
			return found.Help()
		},
	}
}

// RequireSubcommand runs a command that has only subcommands: it rejects the call, or prints the root's help.
func RequireSubcommand(cmd *cobra.Command, args []string) error {
	if cmd.HasParent() {
		return Usagef("see "+Quoted(cmd.CommandPath()+" --help"), "%s needs a subcommand", cmd.CommandPath())
	}
	return cmd.Help()
}

// UnknownCommand rejects an argument where a subcommand is expected.
func UnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + Quoted(cmd.CommandPath()+" --help")
	cmd.SuggestionsMinimumDistance = 2 // letters
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + Quoted(cmd.CommandPath()+" "+near[0]) + "?"
	}
	return Usagef(hint, "%s has no command %q", cmd.CommandPath(), args[0])
}

// Quoted returns a command in quotation marks, for hints.
func Quoted(command string) string { return `"` + command + `"` }

// wrapArgumentErrors makes every command reject a wrong number of arguments with its usage line, not
// with a count.
func wrapArgumentErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil && cmd.RunE != nil && !cmd.HasSubCommands() {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			return Usagef(fmt.Sprintf("for example: %s", FirstExample(cmd)), "wrong number of arguments: want %s", cmd.UseLine())
		}
	}
	for _, c := range cmd.Commands() {
		wrapArgumentErrors(c)
	}
}

// FirstExample returns the first line of the command's examples.
func FirstExample(cmd *cobra.Command) string {
	line, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	return line
}

// flagError returns a usage error for an unknown flag or a bad value, with a hint.
func flagError(cmd *cobra.Command, err error) error {
	hint := "see " + Quoted(cmd.CommandPath()+" --help")
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	switch {
	case errors.As(err, &value):
		why := value.Unwrap()
		var number *strconv.NumError
		if errors.As(why, &number) {
			why = fmt.Errorf("%q is not a whole number", number.Num)
		}
		return Usagef(hint, "--%s: %w", value.GetFlag().Name, why)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return Usagef(`put "--" before arguments that begin with a dash`, "unknown flag -%s", unknown.GetSpecifiedName())
	case errors.As(err, &unknown):
		if near := Nearest(unknown.GetSpecifiedName(), flagNames(cmd)); near != "" {
			hint = "did you mean --" + near + "?"
		}
		return Usagef(hint, "unknown flag --%s", unknown.GetSpecifiedName())
	}
	return Usagef(hint, "%w", err)
}

// DurationFlag is a duration of at least 0. It accepts days, as in 30d.
type DurationFlag time.Duration

func (d *DurationFlag) Set(s string) error {
	v, err := ParseDuration(s)
	if err == nil && v < 0 {
		err = Usagef("", "%q is negative", s)
	}
	*d = DurationFlag(v)
	return err
}

func (d *DurationFlag) Type() string { return "duration" }

func (d *DurationFlag) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

// PositiveDurationFlag is a DurationFlag above 0, for flags whose absence means no limit. A 0 that
// a script computed must not mean that.
type PositiveDurationFlag time.Duration

func (d *PositiveDurationFlag) Set(s string) error {
	var v DurationFlag
	if err := v.Set(s); err != nil {
		return err
	}
	if v == 0 {
		return Usagef("omit it for the default", "%q is not above 0", s)
	}
	*d = PositiveDurationFlag(v)
	return nil
}

func (d *PositiveDurationFlag) Type() string { return "duration" }

func (d *PositiveDurationFlag) String() string { return (*DurationFlag)(d).String() }

// LimitFlag is a number of at least 1.
type LimitFlag int

func (n *LimitFlag) Set(s string) error {
	v, err := strconv.ParseInt(s, 10, 32)
	if err != nil || v < 1 {
		return Usagef("omit it for the default", "%q is not a number of at least 1", s)
	}
	*n = LimitFlag(v)
	return nil
}

func (n *LimitFlag) Type() string { return "int" }

func (n *LimitFlag) String() string { return strconv.Itoa(int(*n)) }

// guardAmount inserts "--" before a negative amount of incr, so that it is not parsed as a flag.
// Otherwise it returns args unchanged.
func guardAmount(root *cobra.Command, args []string) []string {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.Name() != "incr" || !cmd.HasParent() {
		return args
	}
	positional := 0
	for i := 0; i < len(rest); i++ {
		arg := rest[i]
		switch name, isFlag := strings.CutPrefix(arg, "--"); {
		case arg == "--":
			return args
		case isFlag:
			f := cmd.Flag(name) // nil also for --name=value
			if f != nil && f.NoOptDefVal == "" {
				i++ // its value
			}
		case positional == 3 && len(arg) > 1 && arg[0] == '-' && strings.Trim(arg[1:], "0123456789") == "":
			// Move the amount to the end: flags may follow it.
			before := args[:len(args)-len(rest)]
			return slices.Concat(before, rest[:i], rest[i+1:], []string{"--", arg})
		case arg[:min(1, len(arg))] != "-":
			positional++
		}
	}
	return args
}

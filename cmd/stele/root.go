package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
)

// The groups of commands, in the order in which help lists them.
const (
	groupNode   = "node"
	groupSchema = "schema"
	groupData   = "data"
	groupLocks  = "locks"
	groupTools  = "tools"
	groupBlobs  = "blobs"
)

// commands returns all commands, in the order in which help lists them.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		inGroup(groupNode, a.serveCommand()),
		inGroup(groupNode, a.initCommand()),
		inGroup(groupNode, a.statusCommand()),
		inGroup(groupNode, a.configCommand()),
		inGroup(groupNode, a.nodeCommand()),
		inGroup(groupNode, a.raftCommand()),
		inGroup(groupNode, a.tokenCommand()),
		inGroup(groupNode, a.authorityCommand()),
		inGroup(groupNode, a.userCommand()),
		inGroup(groupNode, a.whoamiCommand()),
		inGroup(groupNode, a.aclCommand()),
		inGroup(groupNode, a.quotaCommand()),
		inGroup(groupNode, a.usageCommand()),

		inGroup(groupSchema, a.tableCommand()),
		inGroup(groupSchema, a.familyCommand()),
		inGroup(groupSchema, a.tabletCommand()),

		inGroup(groupData, a.putCommand()),
		inGroup(groupData, a.getCommand()),
		inGroup(groupData, a.scanCommand()),
		inGroup(groupData, a.countCommand()),
		inGroup(groupData, a.deleteCommand()),
		inGroup(groupData, a.incrCommand()),
		inGroup(groupData, a.casCommand()),
		inGroup(groupData, a.loadCommand()),

		inGroup(groupBlobs, a.blobCommand()),

		inGroup(groupLocks, a.lockCommand()),

		inGroup(groupTools, a.benchCommand()),
		inGroup(groupTools, a.checkCommand()),
		inGroup(groupTools, a.auditCommand()),
		inGroup(groupTools, a.sstableCommand()),
		inGroup(groupTools, a.completionCommand()),
		inGroup(groupTools, a.manCommand()),
		inGroup(groupTools, a.versionCommand()),
	}
}

func inGroup(id string, c *cobra.Command) *cobra.Command {
	c.GroupID = id
	return c
}

// rootCommand builds the whole command line.
func (a *app) rootCommand() *cobra.Command {
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
		Args:          unknownCommand,
		RunE:          requireSubcommand,
	}
	root.Version = node.Version() // adds --version
	root.SetVersionTemplate(versionLine())
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.CompletionOptions.DisableDefaultCmd = true // completionCommand has an example
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(
		&cobra.Group{ID: groupNode, Title: "Nodes:"},
		&cobra.Group{ID: groupSchema, Title: "Tables:"},
		&cobra.Group{ID: groupData, Title: "Rows:"},
		&cobra.Group{ID: groupBlobs, Title: "Blobs:"},
		&cobra.Group{ID: groupLocks, Title: "Locks:"},
		&cobra.Group{ID: groupTools, Title: "Tools:"},
	)
	root.SetHelpCommand(inGroup(groupTools, helpCommand()))
	flags := root.PersistentFlags()
	flags.StringVar(&a.addr, "addr", envOr("STELE_ADDR", client.DefaultAddr), "`host:port` of a node, or several separated by commas; also STELE_ADDR")
	flags.StringVar(&a.credential, "credential", os.Getenv("STELE_CREDENTIAL"), "`file` with the certificate and key, or the access token, to authenticate with; also STELE_CREDENTIAL")
	allowEmpty(flags, "credential") // an empty value overrides STELE_CREDENTIAL
	flags.BoolVar(&a.json, "json", false, "print JSON: one object, or one per line")
	flags.Var((*positiveDurationFlag)(&a.timeout), "timeout", "give up after this `duration`, such as 10s (default 30s; none for scans and long-running commands); also STELE_TIMEOUT")
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if err := rejectEmptyFlags(cmd); err != nil {
			return err
		}
		if err := rejectEmptyArguments(cmd, args); err != nil {
			return err
		}
		return a.readEnvironment()
	}
	root.AddCommand(a.commands()...)
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
func (a *app) readEnvironment() error {
	v := os.Getenv("STELE_TIMEOUT")
	if a.timeout != 0 || v == "" {
		return nil
	}
	d, err := parseDuration(v)
	if err != nil {
		return fmt.Errorf("STELE_TIMEOUT: %w", err)
	}
	a.timeout = d
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
				return unknownCommand(found, append(rest, "")[:1])
			}
			return found.Help()
		},
	}
}

// requireSubcommand runs a command that has only subcommands: it rejects the call, or prints the root's help.
func requireSubcommand(cmd *cobra.Command, args []string) error {
	if cmd.HasParent() {
		return usagef("see "+quoted(cmd.CommandPath()+" --help"), "%s needs a subcommand", cmd.CommandPath())
	}
	return cmd.Help()
}

// unknownCommand rejects an argument where a subcommand is expected.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + quoted(cmd.CommandPath()+" --help")
	cmd.SuggestionsMinimumDistance = 2 // letters
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + quoted(cmd.CommandPath()+" "+near[0]) + "?"
	}
	return usagef(hint, "%s has no command %q", cmd.CommandPath(), args[0])
}

func quoted(command string) string { return `"` + command + `"` }

// wrapArgumentErrors makes every command reject a wrong number of arguments with its usage line, not
// with a count.
func wrapArgumentErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil && cmd.RunE != nil && !cmd.HasSubCommands() {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			return usagef(fmt.Sprintf("for example: %s", firstExample(cmd)), "wrong number of arguments: want %s", cmd.UseLine())
		}
	}
	for _, c := range cmd.Commands() {
		wrapArgumentErrors(c)
	}
}

func firstExample(cmd *cobra.Command) string {
	line, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	return line
}

// flagError returns a usage error for an unknown flag or a bad value, with a hint.
func flagError(cmd *cobra.Command, err error) error {
	hint := "see " + quoted(cmd.CommandPath()+" --help")
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	switch {
	case errors.As(err, &value):
		why := value.Unwrap()
		var number *strconv.NumError
		if errors.As(why, &number) {
			why = fmt.Errorf("%q is not a whole number", number.Num)
		}
		return usagef(hint, "--%s: %w", value.GetFlag().Name, why)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return usagef(`put "--" before arguments that begin with a dash`, "unknown flag -%s", unknown.GetSpecifiedName())
	case errors.As(err, &unknown):
		if near := nearest(unknown.GetSpecifiedName(), flagNames(cmd)); near != "" {
			hint = "did you mean --" + near + "?"
		}
		return usagef(hint, "unknown flag --%s", unknown.GetSpecifiedName())
	}
	return usagef(hint, "%w", err)
}

// durationFlag is a duration of at least 0. It accepts days, as in 30d.
type durationFlag time.Duration

func (d *durationFlag) Set(s string) error {
	v, err := parseDuration(s)
	if err == nil && v < 0 {
		err = usagef("", "%q is negative", s)
	}
	*d = durationFlag(v)
	return err
}

func (d *durationFlag) Type() string { return "duration" }

func (d *durationFlag) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

// positiveDurationFlag is a durationFlag above 0, for flags whose absence means no limit. A 0 that
// a script computed must not mean that.
type positiveDurationFlag time.Duration

func (d *positiveDurationFlag) Set(s string) error {
	var v durationFlag
	if err := v.Set(s); err != nil {
		return err
	}
	if v == 0 {
		return usagef("omit it for the default", "%q is not above 0", s)
	}
	*d = positiveDurationFlag(v)
	return nil
}

func (d *positiveDurationFlag) Type() string { return "duration" }

func (d *positiveDurationFlag) String() string { return (*durationFlag)(d).String() }

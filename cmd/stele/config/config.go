package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

// Precedence describes the sources of settings, for help and documents.
const Precedence = `A setting comes from the flag of "stele serve", else from the environment, else from the
configuration file, else from its default. The file is that of --config, else that of
STELE_CONFIG, else ` + DefaultFile + ` if it exists. An empty variable counts as not
set. A list comes from one source: lists are not merged.`

func configCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show or check the configuration of the node",
		Long: `Show or check the configuration of the node, or print a file with all settings.

` + Precedence + `

The file is YAML with a line for each setting, such as "data_dir: [/data1, /data2]". The
same setting is STELE_DATA_DIR in the environment, with commas between folders, and the
flag --data-dir, repeated for each folder. "stele config example" describes all settings.`,
		Example: `  stele config example > stele.yaml
  stele config check stele.yaml
  stele config show`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(showCommand(a), checkCommand(a), exampleCommand(a), memoryMaxCommand(a))
	return cmd
}

func memoryMaxCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "memory-max",
		Short: "Print the memory limit for systemd to enforce",
		Long: `Print the memory limit for systemd to enforce, in bytes: 1.25 times the setting memory,
which the node itself stays under. Print nothing if memory is not set. The systemd unit
sets MemoryMax from this output at each start.`,
		Example: `  stele config memory-max
  stele config memory-max --config stele.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := Load(cmd, false)
			if err != nil || c.Text("memory") == "" {
				return err
			}
			n, err := cli.ParseSize(c.Text("memory"))
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(map[string]int64{"memory_max": n + n/4})
			}
			_, err = fmt.Fprintln(a.Out, n+n/4)
			return err
		},
	}
	Register(cmd)
	return cmd
}

func showCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the effective settings and their sources",
		Long: `Show the settings that "stele serve" would use with the same flags, environment and
file, and the source of each. The command contacts no node.`,
		Example: `  stele config show
  stele config show --config stele.yaml --memory 4GiB --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := Load(cmd, false)
			if err != nil {
				return err
			}
			return showConfig(a, c)
		},
	}
	Register(cmd)
	return cmd
}

// OfHost returns the settings that "stele serve" would use on this host, by key, without secrets; nil if there is neither a default file nor
// STELE_CONFIG. Errors: those of the file.
func OfHost() (any, error) {
	cmd := &cobra.Command{}
	Register(cmd)
	if _, err := os.Stat(cli.OrElse(configFile(cmd), DefaultFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c, err := Load(cmd, false)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for i := range Settings {
		all[Settings[i].Key] = withoutSecrets(Settings[i].Key, fmt.Sprint(c.values[Settings[i].Key]))
	}
	return all, nil
}

// userInfo is the part of a URL that may have a password.
var userInfo = regexp.MustCompile(`//[^/@\s]*@`)

// withoutSecrets returns a value without what may be secret: a command has arguments, and a URL may have a password or a token.
func withoutSecrets(key, value string) string {
	if strings.HasSuffix(key, "_command") && value != "" {
		return "(set)"
	}
	value = userInfo.ReplaceAllString(value, "//…@")
	address, query, has := strings.Cut(value, "?")
	if has && query != "" {
		return address + "?…"
	}
	return value
}

func showConfig(a *cli.App, c *Config) error {
	type shown struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
		// Meaning describes the effect of an empty value.
		Meaning string `json:"meaning,omitempty"`
		From    string `json:"from"`
	}
	g := cli.NewGrid("KEY", "VALUE", "FROM")
	for i := range Settings {
		s := &Settings[i]
		value, meaning := c.values[s.Key], ""
		text := fmt.Sprint(value)
		if s.isList() {
			text = strings.Join(c.List(s.Key), " ")
		}
		if text == "" {
			meaning = s.unset
			text = cli.OrElse(meaning, "-")
		}
		if a.JSON {
			if err := a.PrintJSON(shown{s.Key, value, meaning, c.origin[s.Key]}); err != nil {
				return err
			}
			continue
		}
		g.Add(s.Key, text, c.origin[s.Key])
	}
	return a.Print(g)
}

func checkCommand(a *cli.App) *cobra.Command {
	valuesOnly := false
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file and the environment",
		Long: `Check a configuration file and the environment as "stele serve" does, and print each
problem with its source. The exit code is 4 if there are any. A variable that begins
with STELE_ and is no setting causes only a warning. The command contacts no node.
--values-only does not look at the files and folders that the settings name: for a host
whose keys do not exist yet.`,
		Example: `  stele config check
  stele config check stele.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if err := cmd.Flags().Set("config", args[0]); err != nil {
					return err
				}
			}
			c, err := Load(cmd, false)
			if err == nil && !valuesOnly {
				c.CheckPaths()
				err = c.Err()
			}
			for _, name := range UnknownVariables(os.Environ()) {
				a.Notef("warning: %s", UnknownVariableWarning(name))
			}
			return printVerdict(a, c, err)
		},
	}
	Register(cmd)
	cmd.Flags().BoolVar(&valuesOnly, "values-only", false, "do not look at the files and folders that the settings name")
	return cmd
}

// printVerdict prints whether a configuration is valid, and returns err or its exit code.
func printVerdict(a *cli.App, c *Config, err error) error {
	ps := problemsOf(err)
	switch {
	case a.JSON && ps != nil:
		code := cli.FaultOf(err).Code
		return errors.Join(a.PrintJSON(map[string]any{"ok": false, "problems": ps.forJSON()}), cli.SilentExit(code))
	case err != nil:
		return err
	case a.JSON:
		return a.PrintJSON(map[string]any{"ok": true, "file": c.file})
	}
	_, err = fmt.Fprintf(a.Out, "ok: %s\n", cli.OrElse(c.file, "no file, using defaults"))
	return err
}

// otherVariables are the STELE_ variables that are no settings.
var otherVariables = []string{"STELE_ADDR", "STELE_CREDENTIAL", "STELE_TIMEOUT", "STELE_CONFIG"}

// UnknownVariables returns the sorted names of STELE_ variables in environ that are not known.
func UnknownVariables(environ []string) (names []string) {
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "STELE_") && !slices.Contains(knownVariables(), name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func knownVariables() []string {
	all := slices.Clone(otherVariables)
	for i := range Settings {
		all = append(all, Settings[i].Variable())
	}
	return all
}

// UnknownVariableWarning returns the warning about an unknown variable.
func UnknownVariableWarning(name string) string {
	text := name + " is set, but is not a setting"
	if near := cli.Nearest(name, knownVariables()); near != "" {
		text += ": did you mean " + near + "?"
	}
	return text
}

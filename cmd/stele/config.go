package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// precedence says where settings come from, in the words of help and documents.
const precedence = `A setting is taken from the flag of "stele serve", else from the environment, else
from the configuration file, else it is the default. The file is the one of --config,
else that of STELE_CONFIG, else ` + defaultConfigFile + ` if it is there. A variable
that is set to nothing counts as not set. A list is taken whole from one place:
lists are not put together.`

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show or check the configuration of the node",
		Long: `Show or check the configuration of the node, or print a file with all settings.

` + precedence + `

The file is YAML with a line for each setting: "data_dir: [/data1, /data2]". The
variable of data_dir is STELE_DATA_DIR with commas between folders, and its flag is
--data-dir, once for each. "stele config example" explains every setting.`,
		Example: `  stele config example > stele.yaml
  stele config check stele.yaml
  stele config show`,
		Args: unknownVerb,
		RunE: needVerb,
	}
	cmd.AddCommand(a.configShowCommand(), a.configCheckCommand(), a.configExampleCommand(), a.configMemoryMaxCommand())
	return cmd
}

func (a *app) configMemoryMaxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "memory-max",
		Short: "Print the bound of memory for the system to enforce",
		Long: `Print the bound of memory for the system to enforce, in bytes: a quarter more than the
setting memory, which the node keeps to by itself. Print nothing if memory is not set.
The systemd unit sets MemoryMax by it at each start.`,
		Example: `  stele config memory-max
  stele config memory-max --config stele.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(cmd, false)
			if err != nil || c.text("memory") == "" {
				return err
			}
			n, err := parseSize(c.text("memory"))
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]int64{"memory_max": n + n/4})
			}
			_, err = fmt.Fprintln(a.out, n+n/4)
			return err
		},
	}
	registerSettings(cmd)
	return cmd
}

func (a *app) configShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the settings that a node would have, and where each is from",
		Long: `Show the settings that "stele serve" with the same flags, environment and files would
have, and where each is from. Nothing is asked of any node.`,
		Example: `  stele config show
  stele config show --config stele.yaml --memory 4GiB --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(cmd, false)
			if err != nil {
				return err
			}
			return a.showConfig(c)
		},
	}
	registerSettings(cmd)
	return cmd
}

func (a *app) showConfig(c *configuration) error {
	type shown struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
		// Meaning is what an empty value comes to.
		Meaning string `json:"meaning,omitempty"`
		From    string `json:"from"`
	}
	g := newGrid("KEY", "VALUE", "FROM")
	for i := range settings {
		s := &settings[i]
		value, meaning := c.values.Get(s.key), ""
		text := fmt.Sprint(value)
		if s.isList() {
			text = strings.Join(c.values.Strings(s.key), " ")
		}
		if text == "" {
			meaning = s.unset
			text = orElse(meaning, "-")
		}
		if a.json {
			if err := a.printJSON(shown{s.key, value, meaning, c.origin[s.key]}); err != nil {
				return err
			}
			continue
		}
		g.add(s.key, text, c.origin[s.key])
	}
	return a.print(g)
}

func (a *app) configCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file, and the environment",
		Long: `Check a configuration file, and the environment, as "stele serve" would: all that is
wrong is named with its place. Exit code 4 if anything is. A variable that begins with
STELE_ and is no setting is told of, and is no error. Nothing is asked of any node.`,
		Example: `  stele config check
  stele config check stele.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if err := cmd.Flags().Set("config", args[0]); err != nil {
					return err
				}
			}
			c, err := loadConfig(cmd, false)
			if err == nil {
				c.checkPaths()
				err = c.err()
			}
			for _, name := range strangeVariables(os.Environ()) {
				a.talk("warning: %s", strangeVariable(name))
			}
			return a.printVerdict(c, err)
		},
	}
	registerSettings(cmd)
	return cmd
}

// printVerdict says whether a configuration is good.
func (a *app) printVerdict(c *configuration, err error) error {
	ps := problemsOf(err)
	switch {
	case a.json && ps != nil:
		code := faultOf(err).code
		return errors.Join(a.printJSON(map[string]any{"ok": false, "problems": ps.forJSON()}), quietly(code))
	case err != nil:
		return err
	case a.json:
		return a.printJSON(map[string]any{"ok": true, "file": c.file})
	}
	_, err = fmt.Fprintf(a.out, "ok: %s\n", orElse(c.file, "no file, defaults hold"))
	return err
}

// otherVariables are those that are not about the node.
var otherVariables = []string{"STELE_ADDR", "STELE_CREDENTIAL", "STELE_TIMEOUT", "STELE_CONFIG"}

// strangeVariables returns the names of variables that look like settings and are
// none.
func strangeVariables(environ []string) (names []string) {
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
	for i := range settings {
		all = append(all, settings[i].variable())
	}
	return all
}

// strangeVariable tells of a variable that is no setting.
func strangeVariable(name string) string {
	text := name + " is set and means nothing"
	if near := nearest(name, knownVariables()); near != "" {
		text += ": did you mean " + near + "?"
	}
	return text
}

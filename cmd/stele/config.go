package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show or check the configuration of the node",
		Long: `Show or check the configuration of the node.

A setting is taken from the flag of "stele serve", else from the environment,
else from ` + defaultConfigFile + `, else it is the default. The file is YAML with a
line for each setting: "data_dir: [/data1, /data2]". The variable of data_dir is
STELE_DATA_DIR, and so on.`,
		Example: `  stele config show
  stele config check stele.yaml`,
		Args: unknownVerb,
		RunE: needVerb,
	}
	cmd.AddCommand(a.configShowCommand(), a.configCheckCommand())
	return cmd
}

func (a *app) configShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the settings that a node would have, and where each is from",
		Example: `  stele config show
  stele config show --config stele.yaml --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(cmd, false)
			if err != nil {
				return err
			}
			return a.showConfig(c)
		},
	}
	registerConfigFile(cmd)
	return cmd
}

func (a *app) showConfig(c *configuration) error {
	type shown struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
		From  string `json:"from"`
	}
	g := newGrid("KEY", "VALUE", "FROM")
	for _, key := range settingKeys() {
		value := c.values.Get(key)
		if a.json {
			if err := a.printJSON(shown{key, value, c.origin[key]}); err != nil {
				return err
			}
			continue
		}
		text := fmt.Sprint(value)
		if isList(key) {
			text = strings.Join(c.values.Strings(key), " ")
		}
		g.add(key, text, c.origin[key])
	}
	return a.print(g)
}

func (a *app) configCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file, and the environment",
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
			if err != nil {
				return err
			}
			if _, err := c.gossipKey(); err != nil {
				return err
			}
			for _, name := range strangeVariables(os.Environ()) {
				a.talk("warning: %s is set and means nothing%s", name, didYouMean(name))
			}
			if a.json {
				return a.printJSON(map[string]any{"ok": true, "file": c.file})
			}
			_, err = fmt.Fprintf(a.out, "ok: %s\n", orElse(c.file, "no file, defaults hold"))
			return err
		},
	}
	registerConfigFile(cmd)
	return cmd
}

// otherVariables are those that are not about the node.
var otherVariables = []string{"STELE_ADDR", "STELE_TIMEOUT", "STELE_CONFIG"}

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

func didYouMean(name string) string {
	if near := nearest(name, knownVariables()); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

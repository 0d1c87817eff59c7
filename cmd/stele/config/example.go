package config

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

func exampleCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a commented configuration file with all settings",
		Long: `Print a configuration file that describes all settings and sets none: remove the "#" of
a line to set it. With --json, print one object for each setting.`,
		Example: `  stele config example > stele.yaml
  stele config example --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.JSON {
				return explainSettings(a)
			}
			_, err := a.Out.WriteString(exampleConfig())
			return err
		},
	}
}

// explainSettings prints the table of settings as JSON.
func explainSettings(a *cli.App) error {
	for i := range Settings {
		s := &Settings[i]
		err := a.PrintJSON(map[string]any{
			"key": s.Key, "flag": "--" + s.Flag(), "variable": s.Variable(), "list": s.isList(),
			"usage": s.PlainUsage(), "default": s.initial, "meaning": s.unset, "example": s.sample(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// exampleColumns is the maximum width of comments in the example.
const exampleColumns = 86

// exampleConfig returns a file that describes all settings and sets none.
func exampleConfig() string {
	var b strings.Builder
	b.WriteString("# Configuration of a Stele node, " + DefaultFile + ".\n#\n")
	comment(&b, Precedence)
	b.WriteString("#\n")
	comment(&b, `Remove the "#" of a line to set it, then run "stele config check" and "stele config show".`)
	for i := range Settings {
		s := &Settings[i]
		b.WriteString("\n")
		comment(&b, cli.Capitalized(s.PlainUsage())+".")
		comment(&b, fmt.Sprintf("Default: %s. Flag --%s, variable %s.", s.WhatDefault(), s.Flag(), s.Variable()))
		fmt.Fprintf(&b, "#%s: %s\n", s.Key, s.sample())
	}
	return b.String()
}

// comment writes text as comment lines of at most exampleColumns.
func comment(b *strings.Builder, text string) {
	line := "#"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > exampleColumns {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

// configReference returns the content of docs/config.md.
func configReference() string {
	var b strings.Builder
	b.WriteString("# Settings\n\n" + Precedence + "\n\n")
	b.WriteString("`stele config check` checks the file and the environment, `stele config show` prints the effective settings\n" +
		"and the source of each, and `stele config example` prints a file to start from. This page, that file,\n" +
		"stele.yaml(5) and the flags of `stele serve` are generated from one table.\n\n")
	b.WriteString("Sizes are in bytes, or have a unit: KiB, MiB, GiB, TiB (powers of 1024), or kB, MB, GB, TB (powers of 1000).\n" +
		"Durations have a unit: ms, s, m, h, d. Lists are YAML lists in the file, `[a, b]`, comma-separated in the\n" +
		"environment, and repeated flags on the command line. Secrets are never settings: settings name files that\n" +
		"contain them.\n\n")
	b.WriteString("| key | flag, variable | default | |\n|---|---|---|---|\n")
	for i := range Settings {
		s := &Settings[i]
		fmt.Fprintf(&b, "| `%s` | `--%s` `%s` | %s | %s |\n", s.Key, s.Flag(), s.Variable(), s.WhatDefault(), cli.Capitalized(s.PlainUsage()))
	}
	return b.String()
}

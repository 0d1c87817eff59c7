package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a configuration file with all settings, explained",
		Long: `Print a configuration file with all settings, each explained, and none set: what is to
hold loses its "#". With --json, one object for each setting.`,
		Example: `  stele config example > stele.yaml
  stele config example --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.json {
				return a.explainSettings()
			}
			_, err := a.out.WriteString(exampleConfig())
			return err
		},
	}
}

// explainSettings prints the table of settings for programs.
func (a *app) explainSettings() error {
	for i := range settings {
		s := &settings[i]
		err := a.printJSON(map[string]any{
			"key": s.key, "flag": "--" + s.flag(), "variable": s.variable(), "list": s.isList(),
			"usage": s.plainUsage(), "default": s.initial, "meaning": s.unset, "example": s.sample(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// exampleColumns is how wide the comments of the example are.
const exampleColumns = 86

// exampleConfig is a file that explains all settings and sets none.
func exampleConfig() string {
	var b strings.Builder
	b.WriteString("# The configuration of a Stele node, " + defaultConfigFile + ".\n#\n")
	comment(&b, precedence)
	b.WriteString("#\n")
	comment(&b, `Take the "#" from the lines that are to hold, and look at the outcome with "stele config check" and "stele config show".`)
	for i := range settings {
		s := &settings[i]
		b.WriteString("\n")
		comment(&b, capitalized(s.plainUsage())+".")
		comment(&b, fmt.Sprintf("Default: %s. Flag --%s, variable %s.", s.whatDefault(), s.flag(), s.variable()))
		fmt.Fprintf(&b, "#%s: %s\n", s.key, s.sample())
	}
	return b.String()
}

// comment writes text as lines of comment.
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

func capitalized(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// configReference is docs/config.md.
func configReference() string {
	var b strings.Builder
	b.WriteString("# Settings\n\n" + precedence + "\n\n")
	b.WriteString("`stele config check` finds what is wrong with a file and the environment, `stele config show` says what\n" +
		"holds and where each setting is from, and `stele config example` prints a file to begin with. This page, that\n" +
		"file, stele.yaml(5) and the flags of `stele serve` are all made from one table.\n\n")
	b.WriteString("Sizes are numbers of bytes, or with a unit: KiB, MiB, GiB, TiB, or kB, MB, GB, TB of tens. Times have a unit:\n" +
		"ms, s, m, h, d. In the file, lists are YAML's, `[a, b]`; in the environment they have commas; a flag is given\n" +
		"once for each element. Secrets are never settings: they are in files that settings name.\n\n")
	b.WriteString("| key | flag, variable | default | |\n|---|---|---|---|\n")
	for i := range settings {
		s := &settings[i]
		fmt.Fprintf(&b, "| `%s` | `--%s` `%s` | %s | %s |\n", s.key, s.flag(), s.variable(), s.whatDefault(), capitalized(s.plainUsage()))
	}
	return b.String()
}

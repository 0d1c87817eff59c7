package tools

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/config"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node"
)

func manCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "man [FOLDER]",
		Short: "Write the manual pages",
		Long: `Write the manual pages of all commands to man1 in a folder, and stele.yaml(5) to man5.
Missing folders are created. Without a folder, print stele(1).`,
		Example: `  stele man | man -l -
  stele man /usr/local/share/man`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return writeManPage(a.Out, cmd.Root())
			}
			return writeManPages(a, cmd.Root(), args[0])
		},
	}
}

func writeManPages(a *cli.App, root *cobra.Command, dir string) error {
	pages := 0
	write := func(name string, page []byte) error {
		pages++
		name = filepath.Join(dir, "man"+name[len(name)-1:], name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := vfs.WriteFile(vfs.OS(), name, page); err != nil {
			return err
		}
		return os.Chmod(name, 0o644) // for all users of the host
	}
	var each func(cmd *cobra.Command) error
	each = func(cmd *cobra.Command) error {
		var page bytes.Buffer
		err := writeManPage(&page, cmd)
		if err == nil {
			err = write(manName(cmd)+".1", page.Bytes())
		}
		for _, c := range cmd.Commands() {
			if err == nil && c.IsAvailableCommand() {
				err = each(c)
			}
		}
		return err
	}
	if err := each(root); err != nil {
		return err
	}
	if err := write("stele.yaml.5", []byte(configManPage())); err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(map[string]any{"folder": dir, "pages": pages})
	}
	a.Notef("wrote %d pages to %s", pages, dir)
	return nil
}

// configManPage returns the content of stele.yaml(5).
func configManPage() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH STELE.YAML 5 \"\" \"Stele %s\" \"Stele\"\n", manText(node.Version()))
	b.WriteString(".SH NAME\nstele.yaml \\- configuration of a Stele node\n")
	fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", manText(config.DefaultFile))
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n.SH SETTINGS\n", manText(config.Precedence))
	for i := range config.Settings {
		s := &config.Settings[i]
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s.\nDefault: %s. Flag \\fB%s\\fR, variable \\fB%s\\fR.\n",
			manText(s.Key), manText(cli.Capitalized(s.PlainUsage())), manText(s.WhatDefault()), manText("--"+s.Flag()), manText(s.Variable()))
	}
	b.WriteString(".SH SEE ALSO\n.BR stele\\-serve (1),\n.BR stele\\-config\\-check (1)\n")
	return b.String()
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// writeManPage writes a command's manual page in man(7) format.
func writeManPage(w io.Writer, cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"Stele %s\" \"Stele\"\n", manText(strings.ToUpper(manName(cmd))), manText(node.Version()))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", manText(manName(cmd)), manText(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", manText(cmd.UseLine()))
	fmt.Fprintf(&b, ".SH DESCRIPTION\n.nf\n%s\n.fi\n", manText(cli.OrElse(cmd.Long, cmd.Short)))
	manCommands(&b, cmd)
	manFlags(&b, "OPTIONS", cmd.NonInheritedFlags())
	manFlags(&b, "GLOBAL OPTIONS", cmd.InheritedFlags())
	if cmd.HasExample() {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", manText(cmd.Example))
	}
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", manText(manName(cmd.Parent())))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func manCommands(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	b.WriteString(".SH COMMANDS\n")
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(b, ".TP\n.BR %s (1)\n%s\n", manText(manName(c)), manText(c.Short))
		}
	}
}

func manFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		what, usage := pflag.UnquoteUsage(f)
		if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "[]" && !strings.Contains(usage, "(default") {
			usage += " (default " + d + ")"
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR \\fI%s\\fR\n%s\n", manText(name), manText(what), manText(usage))
	})
}

// manText escapes text for man(7).
func manText(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

func completionCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh, fish or powershell",
		Long: `Print a completion script for a shell. It completes commands, flags, and the names of
tables and families. SHELL is bash, zsh, fish or powershell.`,
		Example: `  source <(stele completion bash)
  stele completion zsh > "${fpath[1]}/_stele"
  stele completion fish > ~/.config/fish/completions/stele.fish`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Out, true)
			case "zsh":
				return root.GenZshCompletion(a.Out)
			case "fish":
				return root.GenFishCompletion(a.Out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.Out)
			}
			return cli.Usagef("use bash, zsh, fish or powershell", "no completion for shell %q", args[0])
		},
	}
}

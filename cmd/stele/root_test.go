package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli/clitest"
	"github.com/steledb/stele/cmd/stele/config"
)

// CM4: every command has help, and its examples use existing commands and flags.
func TestCommandsAreExplained(t *testing.T) {
	a, _, _ := clitest.New()
	root := a.Root(groups(a))
	var each func(cmd *cobra.Command)
	each = func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short help %q", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		if cmd.RunE == nil || cmd.Run != nil {
			t.Errorf("%s: want RunE, so that errors have exit codes", cmd.CommandPath())
		}
		if cmd.InheritedFlags().Lookup("json") == nil && cmd.HasParent() {
			t.Errorf("%s has no --json", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			checkExample(t, root, strings.TrimSpace(line))
		}
		for line := range strings.Lines(cmd.Long) {
			if len([]rune(line)) > 90 {
				t.Errorf("%s: help is wider than 90 columns: %s", cmd.CommandPath(), line)
			}
		}
		for _, c := range cmd.Commands() {
			each(c)
		}
	}
	each(root)
}

// checkExample checks that the command of an example and its flags exist.
func checkExample(t *testing.T, root *cobra.Command, line string) {
	_, command, ok := strings.Cut(" "+line, " stele ")
	if !ok && !strings.Contains(line, "(stele ") {
		t.Errorf("example %q has no command", line)
		return
	}
	if !ok {
		_, command, _ = strings.Cut(line, "(stele ")
		command, _, _ = strings.Cut(command, ")")
	}
	command, _, _ = strings.Cut(command, " | ")
	words := strings.Fields(command)
	cmd, rest, err := root.Find(words)
	if err == nil && cmd.Flags().Lookup("ttl") != nil && slices.Contains(words, ">") { // of a token or credential
		t.Errorf("example %q: use --out: a file created by the shell may be readable by others, and is then rejected", line)
	}
	if err != nil || cmd == root && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		t.Errorf("example %q: no such command", line)
		return
	}
	for _, word := range rest {
		if word == "--" {
			break
		}
		if name, ok := strings.CutPrefix(word, "--"); ok {
			name, _, _ = strings.Cut(name, "=")
			if cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
				t.Errorf("example %q: %s has no flag --%s", line, cmd.CommandPath(), name)
			}
		}
	}
}

// Flags with the same meaning have the same name in all commands.
func TestFlagNames(t *testing.T) {
	a, _, _ := clitest.New()
	root := a.Root(groups(a))
	for _, path := range []string{"get", "scan", "count"} {
		cmd, _, _ := root.Find([]string{path})
		for _, name := range []string{"family", "column", "versions", "since", "until", "escaped"} {
			if cmd.Flags().Lookup(name) == nil {
				t.Errorf("%s has no --%s", path, name)
			}
		}
	}
	for _, path := range []string{"table drop", "family drop", "node remove", "raft recover"} {
		cmd, _, _ := root.Find(strings.Fields(path))
		for _, name := range []string{"yes", "dry-run"} {
			if cmd.Flags().Lookup(name) == nil {
				t.Errorf("%s has no --%s", path, name)
			}
		}
	}
}

// CM5: serve has a flag for each setting.
func TestServeHasAllSettings(t *testing.T) {
	a, _, _ := clitest.New()
	serve, _, err := a.Root(groups(a)).Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range config.Settings {
		s := &config.Settings[i]
		if f := serve.Flags().Lookup(s.Flag()); f == nil || !strings.Contains(f.Usage, s.Usage) {
			t.Errorf("%s: serve has no such flag", s.Key)
		}
	}
}

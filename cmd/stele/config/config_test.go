package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
)

var update = flag.Bool("update", false, "write docs/config.md")

// CM5: flags, variables, the example file, stele.yaml(5) and docs/config.md have the same settings.
func TestSettingsAreOneTable(t *testing.T) {
	serve := &cobra.Command{}
	Register(serve)
	reference := filepath.Join("..", "..", "..", "docs", "config.md")
	if *update {
		if err := os.WriteFile(reference, []byte(configReference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(reference); err != nil || string(b) != configReference() {
		t.Errorf("docs/config.md is out of date: go test ./cmd/stele/config -run TestSettingsAreOneTable -update (%v)", err)
	}
	example := exampleConfig()
	for i := range Settings {
		s := &Settings[i]
		f := serve.Flags().Lookup(s.Flag())
		if f == nil || !strings.Contains(f.Usage, s.Usage) {
			t.Errorf("%s: no such flag", s.Key)
		}
		if n := strings.Count(example, "\n#"+s.Key+": "); n != 1 {
			t.Errorf("%s: %d lines of the example", s.Key, n)
		}
	}
	for line := range strings.Lines(example) {
		if len(line) > exampleColumns+1 || line != "\n" && !strings.HasPrefix(line, "#") {
			t.Errorf("line of the example: %q", line)
		}
	}
}

func parsed(text string) *Config {
	c := &Config{values: map[string]any{}, origin: map[string]string{}, place: map[string]string{}, file: "f"}
	c.layer(defaults(), func(string) string { return "default" })
	c.parseFile([]byte(text))
	c.validate()
	return c
}

// The example sets nothing; without the "#" marks it sets everything.
func TestExampleConfig(t *testing.T) {
	c := parsed(exampleConfig())
	if err := c.Err(); err != nil || !reflect.DeepEqual(c.values, parsed("").values) {
		t.Errorf("the example is not the defaults: %v", err)
	}
	all := regexp.MustCompile(`(?m)^#([a-z_]+: )`).ReplaceAllString(exampleConfig(), "$1")
	c = parsed(all)
	if err := c.Err(); err != nil {
		t.Errorf("the example's values are rejected: %v", err)
	}
	for _, key := range settingKeys() {
		if !c.fromFile(key) {
			t.Errorf("%s is not set by its line", key)
		}
	}
}

// Every field of node.Config is set by a setting, except those for programs that embed a node.
func TestSettingsReachTheNode(t *testing.T) {
	all := regexp.MustCompile(`(?m)^#([a-z_]+: )`).ReplaceAllString(exampleConfig(), "$1")
	cfg, err := parsed(all).NodeConfig()
	if err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(cfg)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if !v.Type().Field(i).IsExported() {
			continue // for tests of package node
		}
		if v.Field(i).IsZero() && !slices.Contains([]string{"Dev", "Logger", "Waiting", "Network", "FS", "OpenRaftLog", "Tuning"}, name) {
			t.Errorf("no setting sets node.Config.%s", name)
		}
	}
}

// Parsing terminates for every input, and each problem names its line.
func FuzzConfigFile(f *testing.F) {
	for _, text := range []string{exampleConfig(), "listen: [", "a: &a [*a]", "data_dir: [a, {b: c}]", "join: {<<: x}", "? [a]\n: b", "memory: 1e999\nmemory: 2", "\x00", "--- a\n--- b", "listen: !!binary aGk="} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range parsed(text).problems {
			if !strings.HasPrefix(p.Error(), "f:") && !strings.Contains(p.Error(), "f:") {
				t.Errorf("%q: %v names no line", text, p)
			}
		}
	})
}

func TestUnitHints(t *testing.T) {
	for text, want := range map[string]string{
		"4Gib": "did you mean 4GiB?", "4gib": "did you mean 4GiB?", "4gigabytes": "did you mean 4GiB?", "4 parsec": `unknown unit "parsec": use one of `,
		"a lot": "", "": "", "-1GiB": "", "4kb": "did you mean 4kB?",
	} {
		_, err := cli.ParseSize(text)
		if err == nil {
			t.Errorf("%q is accepted", text)
		} else if hint := cli.FaultOf(err).Hint; !strings.HasPrefix(hint, want) || want == "" && hint != "" {
			t.Errorf("%q: hint %q, want %q", text, hint, want)
		}
	}
	for text, want := range map[string]string{
		"30sec": "did you mean 30s?", "2minutes": "did you mean 2m?", "10": "add a unit: one of s, m, h, d, ms",
		"3D": "did you mean 3d?", "1w": `unknown unit "w": `, "soon": "",
	} {
		_, err := cli.ParseDuration(text)
		if err == nil {
			t.Errorf("%q is accepted", text)
		} else if hint := cli.FaultOf(err).Hint; !strings.HasPrefix(hint, want) || want == "" && hint != "" {
			t.Errorf("%q: hint %q, want %q", text, hint, want)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "no.such.host.invalid:1": false, "nonsense": false,
	} {
		if got := IsLoopback(addr); got != want {
			t.Errorf("isLoopback(%q) = %v, want %v", addr, got, want)
		}
	}
}

// Settings that are shown to others have no secrets.
func TestOfHostHasNoSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stele.yaml")
	t.Setenv("STELE_CONFIG", file)
	if all, err := OfHost(); all != nil || err != nil {
		t.Errorf("without a file: %v, %v", all, err)
	}
	text := "data_dir: /d\nencryption_key_command: vault -token secret\notlp_endpoint: http://u:secret@h:4318/v1?key=secret\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := OfHost()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(all); strings.Contains(got, "secret") || !strings.Contains(got, "encryption_key_command:(set)") || !strings.Contains(got, "h:4318/v1") {
		t.Errorf("%s", got)
	}
}

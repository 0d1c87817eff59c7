package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	yamlnode "go.yaml.in/yaml/v3"
)

// defaultConfigFile is read if it is there; any other must be.
const defaultConfigFile = "/etc/stele/stele.yaml"

// configFileMax bounds a configuration file: 1 MiB.
const configFileMax = 1 << 20

// registerSettings adds the flags of all settings.
func registerSettings(cmd *cobra.Command) {
	f := cmd.Flags()
	for _, s := range settings {
		switch initial := s.initial.(type) {
		case bool:
			f.Bool(s.flag(), initial, s.usage)
		case []string:
			f.StringArray(s.flag(), initial, s.usage)
		case string:
			f.String(s.flag(), initial, s.usage)
		}
	}
	registerConfigFile(cmd)
}

func registerConfigFile(cmd *cobra.Command) {
	cmd.Flags().String("config", "", "configuration `file` (default "+defaultConfigFile+", if it is there); also STELE_CONFIG")
}

// loadConfig reads the configuration: flags before environment before the file
// before defaults. Flags that cmd does not have are passed over. A development node
// reads only a file that it was told of: the default one is about real data.
func loadConfig(cmd *cobra.Command, dev bool) (*configuration, error) {
	c := &configuration{values: koanf.New("."), origin: map[string]string{}}
	c.layer(defaults(), func(string) string { return "default" })
	if err := c.loadFile(configFile(cmd), dev); err != nil {
		return nil, err
	}
	env := map[string]any{}
	for i := range settings {
		s := &settings[i]
		if text := os.Getenv(s.variable()); text != "" {
			v, err := s.parse(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.variable(), err)
			}
			env[s.key] = v
		}
	}
	c.layer(env, func(key string) string { return findSetting(key).variable() })
	c.layer(changedFlags(cmd.Flags()), func(key string) string { return "--" + findSetting(key).flag() })
	return c, c.validate()
}

// layer puts values over those that are there.
func (c *configuration) layer(values map[string]any, origin func(key string) string) {
	// Load fails when its provider or parser does; these values are parsed.
	_ = c.values.Load(mapProvider(values), nil)
	for key := range values {
		c.origin[key] = origin(key)
	}
}

// mapProvider gives koanf a map that is made already.
type mapProvider map[string]any

func (m mapProvider) ReadBytes() ([]byte, error)    { return nil, errors.New("BUG: no bytes in a map") }
func (m mapProvider) Read() (map[string]any, error) { return m, nil }

func defaults() map[string]any {
	m := map[string]any{}
	for _, s := range settings {
		m[s.key] = s.initial
	}
	return m
}

// parse reads a setting from the text of an environment variable. Elements of lists
// are divided by commas there.
func (s *setting) parse(text string) (any, error) {
	switch s.initial.(type) {
	case bool:
		switch strings.ToLower(text) {
		case "1", "true", "yes", "on":
			return true, nil
		case "0", "false", "no", "off":
			return false, nil
		}
		return nil, usagef("", "%q is neither true nor false", text)
	case []string:
		return strings.Split(text, ","), nil
	}
	return text, nil
}

func changedFlags(flags *pflag.FlagSet) map[string]any {
	m := map[string]any{}
	for _, s := range settings {
		f := flags.Lookup(s.flag())
		if f == nil || !f.Changed {
			continue
		}
		switch s.initial.(type) {
		case bool:
			m[s.key], _ = flags.GetBool(f.Name)
		case []string:
			m[s.key], _ = flags.GetStringArray(f.Name)
		default:
			m[s.key] = f.Value.String()
		}
	}
	return m
}

// configFile returns the file that cmd was told to read; empty if none.
func configFile(cmd *cobra.Command) string {
	if name, _ := cmd.Flags().GetString("config"); name != "" {
		return name
	}
	return os.Getenv("STELE_CONFIG")
}

// loadFile puts the file's values over the defaults. An empty name is the default
// file, which need not be there.
func (c *configuration) loadFile(name string, dev bool) error {
	optional := name == ""
	if optional {
		if dev {
			return nil
		}
		name = defaultConfigFile
	}
	text, err := readConfigFile(name)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	values, lines, err := parseConfig(name, text)
	if err != nil {
		return err
	}
	c.file = name
	c.layer(values, func(key string) string { return fmt.Sprintf("%s:%d", name, lines[key]) })
	return nil
}

func readConfigFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, configFileMax+1))
	if err == nil && len(text) > configFileMax {
		err = fmt.Errorf("%s is over %s", name, formatSize(configFileMax))
	}
	return text, err
}

// parseConfig reads a file of settings: their values, and the line of each. Every
// error names the line.
func parseConfig(name string, text []byte) (values map[string]any, lines map[string]int, err error) {
	var doc yamlnode.Node
	if err := yamlnode.Unmarshal(text, &doc); err != nil {
		return nil, nil, usagef("", "%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(bytes.TrimSpace(text)) == 0 || len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return map[string]any{}, nil, nil // nothing but comments
	}
	top := doc.Content[0]
	if top.Kind != yamlnode.MappingNode {
		return nil, nil, usagef(`such as "listen: 127.0.0.1:7106"`, "%s:%d: want lines of key: value", name, top.Line)
	}
	lines = map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if err := checkConfigLine(key, value, lines); err != nil {
			return nil, nil, withLine(err, name, key.Line)
		}
		lines[key.Value] = key.Line
	}
	if values, err = yaml.Parser().Unmarshal(text); err != nil {
		return nil, nil, usagef("", "%s: %w", name, err)
	}
	for key, v := range values {
		if one, ok := v.(string); ok && isList(key) {
			values[key] = []string{one}
		}
	}
	return values, lines, nil
}

func isList(key string) bool {
	_, ok := findSetting(key).initial.([]string)
	return ok
}

// withLine puts the place before the text of err.
func withLine(err error, name string, line int) error {
	f := faultOf(err)
	return &fault{code: f.code, hint: f.hint, err: fmt.Errorf("%s:%d: %w", name, line, f.err)}
}

// checkConfigLine checks that there is such a setting and that the value is of its
// kind.
func checkConfigLine(key, value *yamlnode.Node, seen map[string]int) error {
	s := findSetting(key.Value)
	if s == nil {
		hint := "known keys: " + strings.Join(settingKeys(), ", ")
		if near := nearest(strings.ReplaceAll(strings.ToLower(key.Value), "-", "_"), settingKeys()); near != "" {
			hint = "did you mean " + near + "?"
		}
		return usagef(hint, "unknown key %q", key.Value)
	}
	if seen[s.key] > 0 {
		return usagef("", "%s is given twice", s.key)
	}
	scalar := value.Kind == yamlnode.ScalarNode && value.Tag != "!!null"
	switch s.initial.(type) {
	case bool:
		if value.Tag != "!!bool" {
			return usagef("", "%s is neither true nor false", s.key)
		}
	case []string:
		if !scalar && value.Kind != yamlnode.SequenceNode {
			return usagef("", "%s is neither a text nor a list of texts", s.key)
		}
		for _, v := range value.Content {
			if v.Kind != yamlnode.ScalarNode || v.Tag == "!!null" {
				return usagef("", "%s has an element that is no text", s.key)
			}
		}
	default:
		if !scalar {
			return usagef("", "%s has no value", s.key)
		}
		if s.check == nil {
			return nil
		}
		if err := s.check(value.Value); err != nil {
			return fmt.Errorf("%s: %w", s.key, err)
		}
	}
	return nil
}

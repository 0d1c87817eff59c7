package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/steledb/stele/cmd/stele/cli"
)

// DefaultFile is read if it exists. A file that is named explicitly must exist.
const DefaultFile = "/etc/stele/stele.yaml"

// configFileMax bounds a configuration file: 1 MiB.
const configFileMax = 1 << 20

// loadFile adds the values of the file as a layer over the defaults. An empty name means the default
// file, which need not exist; a development node does not read it. The error is that the file cannot
// be read. Problems in its content are added to c.problems.
func (c *Config) loadFile(name string, dev bool) error {
	optional := name == ""
	if optional {
		if dev {
			return nil
		}
		name = DefaultFile
	}
	text, err := readConfigFile(name)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return cli.WithHint(fmt.Errorf("read configuration: %w", err), `"stele config example" prints a file with all settings`)
	}
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	c.file = name
	c.parseFile(text)
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
		err = fmt.Errorf("%s exceeds %s", name, cli.FormatSize(configFileMax))
	}
	return text, err
}

// at returns FILE:LINE.
func (c *Config) at(line int) string { return fmt.Sprintf("%s:%d", c.file, line) }

// yamlLine matches the line number in an error of the YAML parser.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s+)?line (\d+): `)

// parseFile adds the values of a file as a layer, and a problem for each invalid value.
func (c *Config) parseFile(text []byte) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		from, what := c.file, strings.TrimPrefix(err.Error(), "yaml: ")
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			from, what = c.file+":"+m[1], strings.TrimPrefix(err.Error(), m[0])
		}
		c.addProblemAt("", from, cli.Usagef("the file is YAML with a line for each setting, such as listen: 127.0.0.1:7106", "%s", what))
		return
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return // only comments
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		c.addProblemAt("", c.at(top.Line), cli.Usagef(`write lines such as "listen: 127.0.0.1:7106"`, "not a mapping of keys to values"))
		return
	}
	values, seen := map[string]any{}, map[string]int{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		s := findSetting(key.Value)
		switch {
		case s == nil:
			c.addProblemAt(key.Value, c.at(key.Line), unknownKey(key.Value))
			continue
		case seen[s.Key] > 0:
			c.addProblemAt(s.Key, c.at(key.Line), cli.Usagef("", "%s is set twice, first in line %d", s.Key, seen[s.Key]))
			continue
		}
		seen[s.Key] = key.Line
		v, line, err := s.read(value)
		if err != nil {
			c.addProblemAt(s.Key, c.at(max(line, key.Line)), err)
			continue
		}
		values[s.Key] = v
		c.place[s.Key] = c.at(key.Line)
	}
	c.layer(values, func(key string) string { return c.place[key] })
}

func unknownKey(key string) error {
	hint := "known keys: " + strings.Join(settingKeys(), ", ")
	if near := cli.Nearest(strings.ReplaceAll(strings.ToLower(key), "-", "_"), settingKeys()); near != "" {
		hint = "did you mean " + near + "?"
	}
	return cli.Usagef(hint, "unknown key %q", key)
}

// read returns the value of a setting from the file, as a string or a []string. line is the line of
// the error, or 0 for the line of the key.
func (s *Setting) read(value *yaml.Node) (v any, line int, err error) {
	scalar := value.Kind == yaml.ScalarNode && value.Tag != "!!null"
	if s.isList() {
		elements := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			elements = value.Content
		} else if !scalar {
			return nil, 0, cli.Usagef("", "%s is neither a string nor a list of strings", s.Key)
		}
		list := []string{}
		for _, e := range elements {
			if e.Kind != yaml.ScalarNode || e.Tag == "!!null" {
				return nil, e.Line, cli.Usagef("", "%s: an element is not a string", s.Key)
			}
			if err := s.accept(e.Value); err != nil {
				return nil, e.Line, err
			}
			list = append(list, e.Value)
		}
		return list, 0, nil
	}
	if !scalar {
		return nil, 0, cli.Usagef("such as "+s.Key+": "+s.sample(), "%s has no value", s.Key)
	}
	return value.Value, value.Line, s.accept(value.Value)
}

// accept checks a value, or one element of a list.
func (s *Setting) accept(text string) error {
	if s.check == nil {
		return nil
	}
	if err := s.check(text); err != nil {
		return fmt.Errorf("%s: %w", s.Key, err)
	}
	return nil
}

package main

import (
	"maps"
	"os"
	"strings"

	"github.com/steledb/stele/cmd/stele/cli"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// registerSettings adds the flags of all settings.
func registerSettings(cmd *cobra.Command) {
	f := cmd.Flags()
	for i := range settings {
		s := &settings[i]
		switch initial := s.initial.(type) {
		case []string:
			f.StringArray(s.flag(), initial, s.flagUsage())
		case string:
			f.String(s.flag(), initial, s.flagUsage())
		}
		cli.AllowEmpty(f, s.flag()) // an empty value overrides the environment and the file
	}
	f.String("config", "", "configuration `file` (default "+defaultConfigFile+", if it exists); also STELE_CONFIG")
}

// loadConfig reads the configuration: flags override the environment, which overrides the file, which
// overrides the defaults. A development node does not read the default file, which is for production
// data. If the file could be read, the error is of type problems.
func loadConfig(cmd *cobra.Command, dev bool) (*configuration, error) {
	c := &configuration{dev: dev, values: map[string]any{}, origin: map[string]string{}, place: map[string]string{}}
	c.layer(defaults(), func(string) string { return "default" })
	if err := c.loadFile(configFile(cmd), dev); err != nil {
		return nil, err
	}
	env := map[string]any{}
	for i := range settings {
		s := &settings[i]
		if text := os.Getenv(s.variable()); text != "" {
			env[s.key] = s.parse(text)
		}
	}
	c.layer(env, func(key string) string { return findSetting(key).variable() })
	c.layer(changedFlags(cmd.Flags()), func(key string) string { return "--" + findSetting(key).flag() })
	c.validate()
	return c, c.err()
}

// layer overrides the present values. A list replaces the one below it.
func (c *configuration) layer(values map[string]any, origin func(key string) string) {
	maps.Copy(c.values, values)
	for key := range values {
		c.origin[key] = origin(key)
	}
}

func defaults() map[string]any {
	m := map[string]any{}
	for _, s := range settings {
		m[s.key] = s.initial
	}
	return m
}

// parse returns the value of a setting from an environment variable. Lists are comma-separated.
func (s *setting) parse(text string) any {
	if s.isList() {
		return strings.Split(text, ",")
	}
	return text
}

func changedFlags(flags *pflag.FlagSet) map[string]any {
	m := map[string]any{}
	for _, s := range settings {
		f := flags.Lookup(s.flag())
		if f == nil || !f.Changed {
			continue
		}
		if s.isList() {
			m[s.key], _ = flags.GetStringArray(f.Name)
		} else {
			m[s.key] = f.Value.String()
		}
	}
	return m
}

// configFile returns the file of --config or STELE_CONFIG; empty if neither is set.
func configFile(cmd *cobra.Command) string {
	if name, _ := cmd.Flags().GetString("config"); name != "" {
		return name
	}
	return os.Getenv("STELE_CONFIG")
}

func (s *setting) isList() bool {
	_, ok := s.initial.([]string)
	return ok
}

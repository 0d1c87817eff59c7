package config

import (
	"maps"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/steledb/stele/cmd/stele/cli"
)

// Register adds the flags of all settings.
func Register(cmd *cobra.Command) {
	f := cmd.Flags()
	for i := range Settings {
		s := &Settings[i]
		switch initial := s.initial.(type) {
		case []string:
			f.StringArray(s.Flag(), initial, s.flagUsage())
		case string:
			f.String(s.Flag(), initial, s.flagUsage())
		}
		cli.AllowEmpty(f, s.Flag()) // an empty value overrides the environment and the file
	}
	f.String("config", "", "configuration `file` (default "+DefaultFile+", if it exists); also STELE_CONFIG")
}

// Load reads the configuration: flags override the environment, which overrides the file, which
// overrides the defaults. A development node does not read the default file, which is for production
// data. If the file could be read, the error is of type problems.
func Load(cmd *cobra.Command, dev bool) (*Config, error) {
	c := &Config{dev: dev, values: map[string]any{}, origin: map[string]string{}, place: map[string]string{}}
	c.layer(defaults(), func(string) string { return "default" })
	if err := c.loadFile(configFile(cmd), dev); err != nil {
		return nil, err
	}
	env := map[string]any{}
	for i := range Settings {
		s := &Settings[i]
		if text := os.Getenv(s.Variable()); text != "" {
			env[s.Key] = s.parse(text)
		}
	}
	c.layer(env, func(key string) string { return findSetting(key).Variable() })
	c.layer(changedFlags(cmd.Flags()), func(key string) string { return "--" + findSetting(key).Flag() })
	c.validate()
	return c, c.Err()
}

// layer overrides the present values. A list replaces the one below it.
func (c *Config) layer(values map[string]any, origin func(key string) string) {
	maps.Copy(c.values, values)
	for key := range values {
		c.origin[key] = origin(key)
	}
}

func defaults() map[string]any {
	m := map[string]any{}
	for _, s := range Settings {
		m[s.Key] = s.initial
	}
	return m
}

// parse returns the value of a setting from an environment variable. Lists are comma-separated.
func (s *Setting) parse(text string) any {
	if s.isList() {
		return strings.Split(text, ",")
	}
	return text
}

func changedFlags(flags *pflag.FlagSet) map[string]any {
	m := map[string]any{}
	for _, s := range Settings {
		f := flags.Lookup(s.Flag())
		if f == nil || !f.Changed {
			continue
		}
		if s.isList() {
			m[s.Key], _ = flags.GetStringArray(f.Name)
		} else {
			m[s.Key] = f.Value.String()
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

func (s *Setting) isList() bool {
	_, ok := s.initial.([]string)
	return ok
}

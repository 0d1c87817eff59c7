package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/knadh/koanf/v2"

	"github.com/steledb/stele/node"
)

// A setting is a key of the configuration: a flag of serve, a line of the file, and
// an environment variable.
type setting struct {
	key   string // as in the file; in flags with - for _
	usage string // `what` it takes, in backquotes
	// initial is the default: a string, a bool, or a []string, which is what the
	// setting then is.
	initial any
	// check says what is wrong with a value, or with an element of a list; nil accepts
	// all.
	check func(string) error
}

func (s *setting) flag() string     { return strings.ReplaceAll(s.key, "_", "-") }
func (s *setting) variable() string { return "STELE_" + strings.ToUpper(s.key) }

// settings lists the keys in the order in which people should meet them.
var settings = []setting{
	{"data_dir", "`folder` to keep data in, one for each disk; may be given several times", []string{"/var/lib/stele"}, nil},
	{"listen", "`host:port` for clients and nodes", "127.0.0.1:7106", checkAddr},
	{"gossip", "`host:port` for membership, or off for a node that stays alone", "127.0.0.1:7107", checkAddrOrOff},
	{"http", "`host:port` for metrics and health, or off", "127.0.0.1:7108", checkAddrOrOff},
	{"join", "`host:port` of nodes whose cluster to join, that of their --listen, several between commas; a node with data finds the others there if they have moved", []string{}, checkJoin},
	{"expect", "`number` of nodes without data that found a cluster together, each given the same number and the same nodes to join", "", checkExpect},
	{"advertise", "`host` or host:port that other nodes reach this one by (default: that of listen, or an address of the machine)", "", checkAdvertise},
	{"zone", "`name` of the zone that the node is in: voters are spread across zones", "", checkZone},
	{"voter_stable", "`time` that a voter must be gone before another node gets its vote", "10s", checkStable},
	{"gossip_key_file", "`file` with the key that gossip is encrypted with, the same on all nodes: 64 hexadecimal digits, or 32 bytes in base64", "", nil},
	{"insecure", "listen on other addresses than loopback, though anyone who reaches them may read and write everything", false, nil},
	{"memory", "`size` of the memory to use, such as 4GiB (default: a quarter of the machine's)", "", checkSize},
	{"reserve", "`size` of the disk space to keep free in each data folder (default: a twentieth of the disk, at most 1GiB)", "", checkSize},
	{"extent_size", "`size` of the pieces in which blobs and commit logs are kept, from 64KiB to 1GiB, the same on all nodes (default: 64MiB; a node prepares about ten of them for logs)", "", checkExtentSize},
	{"name", "`name` of the node (default: the host's)", "", nil},
	{"drain_timeout", "`time` that requests under way get to finish when the node stops", "30s", checkDuration},
	{"log_format", "`form` of the log: auto (colour on a terminal, else text), text or json", "auto", oneOf("auto", "text", "json")},
	{"log_level", "least `level` that is logged: debug, info, warn or error", "info", oneOf("debug", "info", "warn", "error")},
}

func settingKeys() (keys []string) {
	for _, s := range settings {
		keys = append(keys, s.key)
	}
	return keys
}

func findSetting(key string) *setting {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
	if i < 0 {
		return nil
	}
	return &settings[i]
}

func checkAddr(s string) error {
	if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
		return usagef("", "%q is not of the form host:port", s)
	}
	return nil
}

func checkAddrOrOff(s string) error {
	if s == "off" {
		return nil
	}
	return checkAddr(s)
}

func checkSize(s string) error {
	if s == "" {
		return nil
	}
	_, err := parseSize(s)
	return err
}

// checkExtentSize leaves the rest to the block store.
func checkExtentSize(s string) error {
	if s == "" {
		return nil
	}
	n, err := parseSize(s)
	if err == nil && (n < 64<<10 || n > 1<<30 || n%(64<<10) != 0) {
		return usagef("", "%q is not a multiple of 64KiB from that to 1GiB", s)
	}
	return err
}

func checkDuration(s string) error {
	d, err := parseDuration(s)
	if err == nil && d < 0 {
		err = usagef("", "%q is negative", s)
	}
	return err
}

func oneOf(words ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(words, s) {
			return nil
		}
		return usagef("", "%q is none of %s", s, strings.Join(words, ", "))
	}
}

// A configuration is the settings of a node, each with where it came from.
type configuration struct {
	values *koanf.Koanf
	// origin tells of each key where its value came from, for people.
	origin map[string]string
	// file is the one that was read; empty if there is none.
	file string
}

func (c *configuration) text(key string) string { return c.values.String(key) }

// validate checks each value and says where a wrong one came from.
func (c *configuration) validate() error {
	for i := range settings {
		s := &settings[i]
		if s.check == nil {
			continue
		}
		texts := []string{c.text(s.key)}
		if isList(s.key) {
			texts = c.values.Strings(s.key)
		}
		for _, text := range texts {
			if err := s.check(text); err != nil {
				return fmt.Errorf("%s (%s): %w", s.key, c.origin[s.key], err)
			}
		}
	}
	if slices.Contains(c.values.Strings("data_dir"), "") || len(c.values.Strings("data_dir")) == 0 {
		return usagef("", "data_dir (%s): a folder without a name", c.origin["data_dir"])
	}
	if err := c.checkMembership(); err != nil {
		return err
	}
	return c.checkExposure()
}

// checkExposure refuses addresses that others can reach: there is no authentication
// yet, so the port is all that stands between them and the data.
func (c *configuration) checkExposure() error {
	if c.values.Bool("insecure") {
		return nil
	}
	for _, key := range c.unguarded() {
		if addr := c.text(key); addr != "off" && !isLoopback(addr) {
			return usagef(
				"listen on 127.0.0.1, or add --insecure if only people whom you trust can reach this machine",
				"refusing to listen on %s (%s, %s): Stele does not ask for a password yet, so anyone who reaches it could read and write everything", addr, key, c.origin[key])
		}
	}
	return nil
}

// unguarded returns the keys of the addresses that take anybody's word. Gossip does
// not, if there is a key.
func (c *configuration) unguarded() []string {
	if c.text("gossip_key_file") != "" {
		return []string{"listen", "http"}
	}
	return []string{"listen", "gossip", "http"}
}

// isLoopback tells whether only this machine can reach addr. A name must stand for
// loopback addresses alone.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return false
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	ips, err := net.LookupIP(host)
	return err == nil && len(ips) > 0 && !slices.ContainsFunc(ips, func(ip net.IP) bool { return !ip.IsLoopback() })
}

// node returns the configuration of a node.
func (c *configuration) node() (node.Config, error) {
	cfg := node.Config{
		DataDirs: c.values.Strings("data_dir"),
		Listen:   c.text("listen"), Gossip: c.text("gossip"), HTTP: c.text("http"),
		Name: c.text("name"), Zone: c.text("zone"), Advertise: c.text("advertise"),
		Join: c.join(), Expect: c.expect(),
	}
	cfg.VoterStable, _ = parseDuration(c.text("voter_stable")) // validate has read it
	var err error
	if cfg.GossipKey, err = c.gossipKey(); err != nil {
		return cfg, err
	}
	for key, field := range map[string]*int64{"memory": &cfg.MemoryBytes, "reserve": &cfg.ReserveBytes, "extent_size": &cfg.ExtentBytes} {
		if s := c.text(key); s != "" {
			n, err := parseSize(s)
			if err != nil {
				return cfg, fmt.Errorf("%s (%s): %w", key, c.origin[key], err)
			}
			*field = n
		}
	}
	return cfg, nil
}

func (c *configuration) drainTimeout() time.Duration {
	d, _ := parseDuration(c.text("drain_timeout")) // validate has read it
	return d
}

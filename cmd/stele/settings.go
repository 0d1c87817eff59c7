package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/knadh/koanf/v2"

	"github.com/steledb/stele/node"
)

// A setting is a key of the configuration: a flag of serve, a line of the file, and
// an environment variable. What people read of it anywhere is made of this.
type setting struct {
	key   string // as in the file; in flags with - for _
	usage string // `what` it takes, in backquotes
	// initial is the default: a string or a []string, which is what the setting then is.
	initial any
	// unset says what an empty default comes to, if it comes to something.
	unset string
	// example is a value for the example file, of settings whose default is empty.
	example string
	// check says what is wrong with a value, or with an element of a list; nil accepts
	// all.
	check func(string) error
}

func (s *setting) flag() string     { return strings.ReplaceAll(s.key, "_", "-") }
func (s *setting) variable() string { return "STELE_" + strings.ToUpper(s.key) }

// settings lists the keys in the order in which people should meet them.
var settings = []setting{
	{key: "data_dir", usage: "`folder` to keep data in, one for each disk", initial: []string{"/var/lib/stele"}},
	{key: "listen", usage: "`host:port` for clients and nodes", initial: "127.0.0.1:7106", check: checkAddr},
	{key: "gossip", usage: "`host:port` for membership, or off for a node that stays alone", initial: "127.0.0.1:7107", check: checkAddrOrOff},
	{key: "http", usage: "`host:port` for metrics and health, or off", initial: "127.0.0.1:7108", check: checkAddrOrOff},
	{key: "profiles", usage: "`place` of Go's profiles: the absolute path of a socket that the node's user alone may open, http for the port of http on loopback too, where every process of the host gets them, or off; where http speaks TLS, users with the right monitor get them there", initial: "off", example: "/run/stele/profiles", check: checkProfiles},
	{key: "join", usage: "`host:port` of nodes whose cluster to join, that of their --listen, several between commas; a node with data needs it only when all others have moved", initial: []string{}, example: "[host1, host2, host3]", check: checkJoin},
	{key: "expect", usage: "`number` of nodes without data and keys, all on this machine, that found a cluster together, each given the same number and the same nodes to join", initial: "", example: "3", check: checkExpect},
	{key: "advertise", usage: "`host` or host:port that other nodes reach this one by", initial: "", unset: "that of listen, or an address of the machine", example: "10.0.0.5", check: checkAdvertise},
	{key: "zone", usage: "`name` of the zone that the node is in: voters are spread across zones", initial: "", example: "rack-1", check: checkZone},
	{key: "voter_stable", usage: "`time` that a voter must be gone before another node gets its vote", initial: "10s", check: checkStable},
	{key: "security_dir", usage: "`folder` with the keys and certificate of the node, as \"stele init\" makes it: then only holders of a certificate of the cluster are answered. A node without listens on loopback alone", initial: "", unset: "security in the first data folder, if it is there", example: "/etc/stele/security"},
	{key: "token_file", usage: "`file` with a token, of \"stele token create\", by which this host joins the cluster of the nodes to join, if it has no keys yet or its certificate has ended", initial: "", example: "/etc/stele/token"},
	{key: "authority_passphrase_file", usage: "`file` with the passphrase that encrypts ca.key, the authority's key, on this node; one that is not encrypted is at the next start. Keep it on another disk, such as a credential of systemd", initial: "", example: "/run/credentials/stele.service/authority"},
	{key: "encryption_key_file", usage: "`file` with master keys, a line of 64 hexadecimal digits each, that encrypt tables and commit logs on the disks; the first is the current one, the others are of before. A data folder is encrypted from its beginning or never. Keep it on another disk, such as a credential of systemd", initial: "", example: "/run/credentials/stele.service/encryption"},
	{key: "encryption_key_command", usage: "`command` for sh that prints what encryption_key_file would hold, such as one that asks a key service, within 30s", initial: "", example: "/usr/local/bin/stele-master-key"},
	{key: "audit_to", usage: "second `place` of the audit log, which its rotation does not reach: journal (systemd's, with the identifier stele-audit), the absolute path of a file that is only appended to, off, or auto: journal if standard error goes there", initial: "auto", example: "journal", check: checkAuditTo},
	{key: "memory", usage: "`size` of the memory to use, such as 4GiB", initial: "", unset: "a quarter of the machine's", example: "4GiB", check: checkMemory},
	{key: "reserve", usage: "`size` of the disk space to keep free in each data folder; half of it is for METADATA and for what makes room", initial: "", unset: "a twentieth of the disk, at most 1GiB", example: "1GiB", check: checkReserve},
	{key: "extent_size", usage: "`size` of the pieces in which blobs and commit logs are kept, from 64KiB to 1GiB, the same on all nodes", initial: "", unset: "64MiB; a node prepares about ten of them for logs", example: "64MiB", check: checkExtentSize},
	{key: "name", usage: "`name` of the node", initial: "", unset: "the host's", example: "host1"},
	{key: "drain_timeout", usage: "`time` that requests under way get to finish when the node stops", initial: "30s", check: checkDuration},
	{key: "log_format", usage: "`form` of the log: text, json, journal (systemd's, with a field for each attribute), or auto: journal if standard error goes there, colour on a terminal, else text", initial: "auto", check: oneOf("auto", "text", "json", "journal")},
	{key: "log_level", usage: "least `level` that is logged: debug, info, warn or error", initial: "info", check: oneOf("debug", "info", "warn", "error")},
}

// flagUsage is the usage of the setting's flag.
func (s *setting) flagUsage() string {
	usage := s.usage
	if s.isList() {
		usage += "; may be given several times"
	}
	if s.unset != "" {
		usage += " (default: " + s.unset + ")"
	}
	return usage
}

// plainUsage is the usage without the marks of what it takes.
func (s *setting) plainUsage() string { return strings.ReplaceAll(s.usage, "`", "") }

// whatDefault says for people what holds if nothing is set.
func (s *setting) whatDefault() string {
	switch {
	case s.unset != "":
		return s.unset
	case s.isList():
		return orElse(strings.Join(s.initial.([]string), " "), "none")
	}
	return orElse(s.initial.(string), "none")
}

// sample is a value as a line of the file has it: the default, or an example.
func (s *setting) sample() string {
	switch {
	case s.example != "":
		return s.example
	case s.isList():
		return "[" + strings.Join(s.initial.([]string), ", ") + "]"
	}
	return s.initial.(string)
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
	_, port, err := net.SplitHostPort(s)
	if err != nil || port == "" {
		return usagef("", "%q is not of the form host:port", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return usagef("", "%q has no port from 0 to 65535", s)
	}
	return nil
}

func checkAddrOrOff(s string) error {
	if s == "off" {
		return nil
	}
	return checkAddr(s)
}

// checkMemory returns an error for less memory than a node works in.
func checkMemory(s string) error {
	return checkSizeMin(s, node.MemoryMin)
}

// checkReserve returns an error for 0, which the block store would take for its default.
func checkReserve(s string) error { return checkSizeMin(s, 1) }

func checkSizeMin(s string, least int64) error {
	if s == "" {
		return nil
	}
	n, err := parseSize(s)
	if err == nil && n < least {
		return usagef("leave it out for the default", "%q is too small: it must be at least %s", s, formatSize(least))
	}
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

func checkProfiles(s string) error {
	if s == "off" || s == node.ProfilesOnHTTP || filepath.IsAbs(s) {
		return nil
	}
	return usagef("", "%q is none of off, http and an absolute path", s)
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
		hint := ""
		if near := nearest(s, words); near != "" {
			hint = "did you mean " + near + "?"
		}
		return usagef(hint, "%q is none of %s", s, strings.Join(words, ", "))
	}
}

// A configuration is the settings of a node, each with where it came from.
type configuration struct {
	values *koanf.Koanf
	// origin tells of each key where its value came from, for people.
	origin map[string]string
	// place tells of each key of the file in which line it is.
	place map[string]string
	// dev tells that it is of a development node, which is open.
	dev bool
	// file is the one that was read; empty if there is none.
	file     string
	problems problems
}

func (c *configuration) text(key string) string { return c.values.String(key) }

// validate notes what is wrong with each value, and with some together. The values of
// the file have been checked where they stood.
func (c *configuration) validate() {
	for i := range settings {
		s := &settings[i]
		if s.check == nil || c.fromFile(s.key) {
			continue
		}
		texts := []string{c.text(s.key)}
		if s.isList() {
			texts = c.values.Strings(s.key)
		}
		for _, text := range texts {
			if err := s.check(text); err != nil {
				c.ill(s.key, err)
				break
			}
		}
	}
	if slices.Contains(c.values.Strings("data_dir"), "") || len(c.values.Strings("data_dir")) == 0 {
		c.ill("data_dir", usagef("", "a folder without a name"))
	}
	if len(c.problems) == 0 { // else it may be these that are wrong
		c.checkMembership()
		c.checkExposure()
	}
}

// fromFile tells whether the value that holds is one of the file.
func (c *configuration) fromFile(key string) bool { return c.origin[key] == c.place[key] }

// checkExposure refuses addresses that others can reach where there are no keys: the port is all
// that stands between them and the data.
func (c *configuration) checkExposure() {
	if c.securityDir() != "" {
		return
	}
	for _, key := range []string{"listen", "gossip", "http"} {
		addr := c.text(key)
		if addr == "off" || isLoopback(addr) {
			continue
		}
		if c.dev {
			c.illTogether(key, usagef(`leave it out; a node for others is made by "stele init"`,
				"refusing to listen on %s (%s, %s): a node for development lets everybody do everything, and is for this machine alone", addr, key, c.origin[key]))
			continue
		}
		c.illTogether(key, usagef(
			"\"stele init\" makes the keys of a new cluster, and --join with --token-file has this host join one; to try a node without keys, listen on 127.0.0.1",
			"refusing to listen on %s (%s, %s): this node has no keys, so anyone who reaches it could read and write everything", addr, key, c.origin[key]))
	}
}

// securityDir returns the folder of the node's keys, empty for an open node. A folder that is
// there counts, whatever is in it: the node must not be open because a file is missing.
func (c *configuration) securityDir() string {
	if c.dev {
		return ""
	}
	if dir := c.text("security_dir"); dir != "" {
		return dir
	}
	dir := filepath.Join(c.values.Strings("data_dir")[0], node.SecurityFolder)
	if _, err := os.Lstat(dir); c.text("token_file") == "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
		return ""
	}
	return dir
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
		Join: c.join(), Expect: c.expect(), Security: c.securityDir(),
	}
	if cfg.Security != "" {
		cfg.TokenFile = c.text("token_file")
		cfg.PassphraseFile = c.text("authority_passphrase_file")
	}
	if s := c.text("profiles"); s != "off" {
		cfg.Profiles = s
	}
	cfg.Encryption = node.Encryption{KeyFile: c.text("encryption_key_file"), KeyCommand: c.text("encryption_key_command")}
	cfg.AuditTo = auditTo(c.text("audit_to"))
	cfg.VoterStable, _ = parseDuration(c.text("voter_stable")) // validate has read it
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

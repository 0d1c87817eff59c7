package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/node/monitor"
	"github.com/steledb/stele/security/audit"
)

// A Setting is a configuration key: a flag of serve, a line of the file, and an environment variable.
// All help and documentation of settings is generated from it.
type Setting struct {
	Key   string // as in the file; flags have - for _
	Usage string // a description, with the name of the value in backquotes
	// initial is the default: a string or a []string. It determines the type of the setting.
	initial any
	// unset describes the effect of an empty default, if it has one.
	unset string
	// example is the value in the example file, for settings whose default is empty.
	example string
	// check returns an error for an invalid value, or an invalid element of a list. nil accepts all.
	check func(string) error
}

// Flag returns the name of the setting's flag, without dashes.
func (s *Setting) Flag() string { return strings.ReplaceAll(s.Key, "_", "-") }

// Variable returns the name of the environment variable.
func (s *Setting) Variable() string { return "STELE_" + strings.ToUpper(s.Key) }

// Settings lists all settings, in the order of the documentation.
var Settings = []Setting{
	{Key: "data_dir", Usage: "data `folder`, one for each disk", initial: []string{"/var/lib/stele"}},
	{Key: "listen", Usage: "`host:port` for clients and nodes", initial: "127.0.0.1:7106", check: checkAddr},
	{Key: "gossip", Usage: "`host:port` for cluster membership, or off for a single node", initial: "127.0.0.1:7107", check: checkAddrOrOff},
	{Key: "http", Usage: "`host:port` for metrics and health, or off", initial: "127.0.0.1:7108", check: checkAddrOrOff},
	{Key: "bigtable", Usage: "`host:port` for clients of Google's Cloud Bigtable: with TLS, unless the node has no keys; or off", initial: "127.0.0.1:7109", check: checkAddrOrOff},
	{Key: "bigtable_sessions", Usage: "on or off: whether clients of Google's Cloud Bigtable make point reads and row mutations in `sessions`, which is faster; see docs/bigtable.md for what Google's Go client then does while a node restarts", initial: "off", example: "on", check: checkOnOff},
	{Key: "bigtable_strict_limits", Usage: "on or off: whether requests of clients of Google's Cloud Bigtable beyond the limits of Google's service are rejected; for tests of programs that will run there", initial: "off", example: "on", check: checkOnOff},
	{Key: "profiles", Usage: "`address` of Go's profiles: the absolute path of a Unix socket that only the node's user can open; http for the port of http, also on loopback without TLS, where every local process can read them; or off. With TLS, users with the right monitor can always read them on the port of http", initial: "off", example: "/run/stele/profiles", check: checkProfiles},
	{Key: "join", Usage: "`host:port` of the --listen of nodes whose cluster to join, several separated by commas; a node with data needs it only if all other nodes have new addresses", initial: []string{}, example: "[host1, host2, host3]", check: checkJoin},
	{Key: "expect", Usage: "`number` of nodes without data and keys, all on this machine, that found a cluster together; each needs the same number and the same nodes to join", initial: "", example: "3", check: checkExpect},
	{Key: "advertise", Usage: "`host` or host:port at which other nodes reach this one", initial: "", unset: "that of listen, or an address of the machine", example: "10.0.0.5", check: checkAdvertise},
	{Key: "zone", Usage: "`name` of the zone of the node; voters are spread across zones", initial: "", example: "rack-1", check: checkZone},
	{Key: "voter_stable", Usage: "`duration` that a voter must be down before another node replaces it as a voter", initial: "10s", check: checkStable},
	{Key: "security_dir", Usage: "`folder` with the keys and certificate of the node, as \"stele init\" creates it; the node then accepts only connections with a certificate of the cluster. A node without keys listens only on loopback addresses", initial: "", unset: "security in the first data folder, if it exists", example: "/etc/stele/security"},
	{Key: "token_file", Usage: "`file` with a token of \"stele token create\", by which this host joins the cluster if it has no keys yet or its certificate has expired", initial: "", example: "/etc/stele/token"},
	{Key: "authority_passphrase_file", Usage: "`file` with the passphrase that encrypts ca.key, the authority's key, on this node; an unencrypted key is encrypted at the next start. Keep the file on another disk, for example as a systemd credential", initial: "", example: "/run/credentials/stele.service/authority"},
	{Key: "encryption_key_file", Usage: "`file` with master keys that encrypt tables and commit logs on disk, one line of 64 hexadecimal digits for each; the first is the current key, the others are older ones. A data folder is encrypted from its creation or never. Keep the file on another disk, for example as a systemd credential", initial: "", example: "/run/credentials/stele.service/encryption"},
	{Key: "encryption_key_command", Usage: "shell `command` that prints the content of encryption_key_file within 30s, for example from a key management service", initial: "", example: "/usr/local/bin/stele-master-key"},
	{Key: "audit_to", Usage: "second `destination` for the audit log, which the node does not rotate: journal (systemd's, with the identifier stele-audit), the absolute path of an append-only file, off, or auto: journal if standard error goes there", initial: "auto", example: "journal", check: checkAuditTo},
	{Key: "memory", Usage: "`size` of the memory to use, such as 4GiB", initial: "", unset: "a quarter of the machine's memory", example: "4GiB", check: checkMemory},
	{Key: "reserve", Usage: "`size` of the disk space to keep free in each data folder; half of it is reserved for METADATA and for work that frees space", initial: "", unset: "a twentieth of the disk, at most 1GiB", example: "1GiB", check: checkReserve},
	{Key: "extent_size", Usage: "`size` of the extents of blobs and commit logs, from 64KiB to 1GiB, the same on all nodes", initial: "", unset: "64MiB, and 8MiB with --dev; a node preallocates about ten extents for logs", example: "64MiB", check: checkExtentSize},
	{Key: "name", Usage: "`name` of the node", initial: "", unset: "the host name", example: "host1"},
	{Key: "slow_request", Usage: "`duration` from which a request is among the slow ones that the console and stele requests show", initial: "200ms", example: "1s", check: checkDuration},
	{Key: "trace_sample", Usage: "`number` of requests of which one is traced although it is not slow, from 1, which traces all, or off, which traces none: stele trace shows them", initial: "1000", example: "100", check: checkTraceSample},
	{Key: "otlp_endpoint", Usage: "`URL` of an OpenTelemetry collector that gets the traces by OTLP over HTTP", initial: "", unset: "that of OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT, or none", example: "http://127.0.0.1:4318", check: checkURL},
	{Key: "drain_timeout", Usage: "`duration` for requests in progress to finish when the node stops", initial: "30s", check: checkDuration},
	{Key: "log_format", Usage: "`format` of the log: text, json, journal (systemd's, with a field for each attribute), or auto: journal if standard error goes there, colour on a terminal, else text", initial: "auto", check: oneOf("auto", "text", "json", "journal")},
	{Key: "log_level", Usage: "minimum `level` to log: debug, info, warn or error", initial: "info", check: oneOf("debug", "info", "warn", "error")},
}

// flagUsage returns the usage text of the setting's flag.
func (s *Setting) flagUsage() string {
	usage := s.Usage
	if s.isList() {
		usage += "; may be repeated"
	}
	if s.unset != "" {
		usage += " (default: " + s.unset + ")"
	}
	return usage
}

// PlainUsage returns the usage without backquotes.
func (s *Setting) PlainUsage() string { return strings.ReplaceAll(s.Usage, "`", "") }

// WhatDefault describes the default.
func (s *Setting) WhatDefault() string {
	switch {
	case s.unset != "":
		return s.unset
	case s.isList():
		return cli.OrElse(strings.Join(s.initial.([]string), " "), "none")
	}
	return cli.OrElse(s.initial.(string), "none")
}

// sample returns a value in the syntax of the file: the example, or else the default.
func (s *Setting) sample() string {
	switch {
	case s.example != "":
		return s.example
	case s.isList():
		return "[" + strings.Join(s.initial.([]string), ", ") + "]"
	}
	return s.initial.(string)
}

func settingKeys() (keys []string) {
	for _, s := range Settings {
		keys = append(keys, s.Key)
	}
	return keys
}

func findSetting(key string) *Setting {
	i := slices.IndexFunc(Settings, func(s Setting) bool { return s.Key == key })
	if i < 0 {
		return nil
	}
	return &Settings[i]
}

func checkAddr(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil || port == "" {
		return cli.Usagef("", "%q is not host:port", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return cli.Usagef("", "%q has no port between 0 and 65535", s)
	}
	return nil
}

func checkAddrOrOff(s string) error {
	if s == "off" {
		return nil
	}
	return checkAddr(s)
}

func checkOnOff(s string) error {
	if s != "on" && s != "off" {
		return cli.Usagef("", "%q is neither on nor off", s)
	}
	return nil
}

// checkMemory returns an error below the minimum memory of a node.
func checkMemory(s string) error {
	return checkSizeMin(s, node.MemoryMin)
}

// checkReserve returns an error for 0, which the block store would read as its default.
func checkReserve(s string) error { return checkSizeMin(s, 1) }

func checkSizeMin(s string, minimum int64) error {
	if s == "" {
		return nil
	}
	n, err := cli.ParseSize(s)
	if err == nil && n < minimum {
		return cli.Usagef("omit it for the default", "%q is too small: it must be at least %s", s, cli.FormatSize(minimum))
	}
	return err
}

// checkExtentSize returns an error for a size that the block store would reject.
func checkExtentSize(s string) error {
	if s == "" {
		return nil
	}
	n, err := cli.ParseSize(s)
	if err == nil && (n < 64<<10 || n > 1<<30 || n%(64<<10) != 0) {
		return cli.Usagef("", "%q is not a multiple of 64KiB between 64KiB and 1GiB", s)
	}
	return err
}

func checkProfiles(s string) error {
	if s == "off" || s == monitor.ProfilesOnHTTP || filepath.IsAbs(s) {
		return nil
	}
	return cli.Usagef("", "%q is not off, http or an absolute path", s)
}

func checkDuration(s string) error {
	d, err := cli.ParseDuration(s)
	if err == nil && d < 0 {
		err = cli.Usagef("", "%q is negative", s)
	}
	return err
}

func oneOf(words ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(words, s) {
			return nil
		}
		hint := ""
		if near := cli.Nearest(s, words); near != "" {
			hint = "did you mean " + near + "?"
		}
		return cli.Usagef(hint, "%q is not one of %s", s, strings.Join(words, ", "))
	}
}

// A Config holds the settings of a node and the source of each.
type Config struct {
	values map[string]any // a string or a []string for each key
	// origin is the source of each key's value, for messages.
	origin map[string]string
	// place is FILE:LINE of each key in the file.
	place map[string]string
	// dev is true for a development node, which has no access control.
	dev bool
	// file is the file that was read; empty if none was.
	file     string
	problems problems
}

// Text returns the value of a setting that is no list.
func (c *Config) Text(key string) string {
	s, _ := c.values[key].(string)
	return s
}

// Source returns the source of the value of a setting, for messages.
func (c *Config) Source(key string) string { return c.origin[key] }

// IsDefault reports whether the value of a setting is its default.
func (c *Config) IsDefault(key string) bool { return c.origin[key] == "default" }

// List returns the value of a setting that is a list.
func (c *Config) List(key string) []string {
	l, _ := c.values[key].([]string)
	return l
}

// validate adds a problem for each invalid value, and for conflicts between values. Values of the file
// are not checked again: parseFile has checked them.
func (c *Config) validate() {
	for i := range Settings {
		s := &Settings[i]
		if s.check == nil || c.fromFile(s.Key) {
			continue
		}
		texts := []string{c.Text(s.Key)}
		if s.isList() {
			texts = c.List(s.Key)
		}
		for _, text := range texts {
			if err := s.check(text); err != nil {
				c.addProblem(s.Key, err)
				break
			}
		}
	}
	if slices.Contains(c.List("data_dir"), "") || len(c.List("data_dir")) == 0 {
		c.addProblem("data_dir", cli.Usagef("", "the name of a folder is empty"))
	}
	if len(c.problems) == 0 { // conflicts between invalid values are not meaningful
		c.checkMembership()
		c.checkExposure()
	}
}

// fromFile reports whether the value of key comes from the file.
func (c *Config) fromFile(key string) bool { return c.origin[key] == c.place[key] }

// checkExposure rejects addresses that other hosts can reach if the node has no keys, since every
// client that can connect has full access.
func (c *Config) checkExposure() {
	if c.SecurityDir() != "" {
		return
	}
	for _, key := range []string{"listen", "gossip", "http", "bigtable"} {
		addr := c.Text(key)
		if addr == "off" || IsLoopback(addr) {
			continue
		}
		if c.dev {
			c.addConflict(key, cli.Usagef(`omit it, or create a cluster with access control by "stele init"`,
				"refusing to listen on %s (%s, %s): a node for development has no access control, and must listen on loopback addresses", addr, key, c.origin[key]))
			continue
		}
		c.addConflict(key, cli.Usagef(
			"create the keys of a new cluster by \"stele init\", or join a cluster by --join and --token-file; to try a node without keys, listen on 127.0.0.1",
			"refusing to listen on %s (%s, %s): this node has no keys, so every client could read and write everything", addr, key, c.origin[key]))
	}
}

// SecurityDir returns the folder of the node's keys; empty for a node without keys. An existing folder
// counts whatever it contains: a missing file must not turn off access control.
func (c *Config) SecurityDir() string {
	if c.dev {
		return ""
	}
	if dir := c.Text("security_dir"); dir != "" {
		return dir
	}
	dir := filepath.Join(c.List("data_dir")[0], certs.FolderName)
	if _, err := os.Lstat(dir); c.Text("token_file") == "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
		return ""
	}
	return dir
}

// IsLoopback reports whether addr is a loopback address, or a name that resolves only to loopback
// addresses.
func IsLoopback(addr string) bool {
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

// NodeConfig returns the settings as a node.Config.
func (c *Config) NodeConfig() (node.Config, error) {
	cfg := node.Config{
		DataDirs: c.List("data_dir"),
		Listen:   c.Text("listen"), Gossip: c.Text("gossip"), HTTP: c.Text("http"), Bigtable: c.Text("bigtable"),
		BigtableSessions: c.Text("bigtable_sessions") == "on", BigtableStrictLimits: c.Text("bigtable_strict_limits") == "on",
		Name: c.Text("name"), Zone: c.Text("zone"), Advertise: c.Text("advertise"),
		Join: c.join(), Expect: c.expect(), Security: c.SecurityDir(),
	}
	if cfg.Security != "" {
		cfg.TokenFile = c.Text("token_file")
		cfg.PassphraseFile = c.Text("authority_passphrase_file")
	}
	if s := c.Text("profiles"); s != "off" {
		cfg.Profiles = s
	}
	cfg.Encryption = masterkeys.Source{File: c.Text("encryption_key_file"), Command: c.Text("encryption_key_command")}
	cfg.SlowRequest, _ = cli.ParseDuration(c.Text("slow_request")) // validate has checked it
	cfg.OTLPEndpoint = otlpEndpoint(c.Text("otlp_endpoint"))
	cfg.TraceSample = traceSample(c.Text("trace_sample"))
	cfg.AuditTo = auditTo(c.Text("audit_to"))
	cfg.VoterStable, _ = cli.ParseDuration(c.Text("voter_stable")) // validate has checked it
	for key, field := range map[string]*int64{"memory": &cfg.MemoryBytes, "reserve": &cfg.ReserveBytes, "extent_size": &cfg.ExtentBytes} {
		if s := c.Text(key); s != "" {
			n, err := cli.ParseSize(s)
			if err != nil {
				return cfg, fmt.Errorf("%s (%s): %w", key, c.origin[key], err)
			}
			*field = n
		}
	}
	return cfg, nil
}

// DrainTimeout returns the time for requests in progress to finish when the node stops.
func (c *Config) DrainTimeout() time.Duration {
	d, _ := cli.ParseDuration(c.Text("drain_timeout")) // validate has checked it
	return d
}

// checkAuditTo checks the setting audit_to.
func checkURL(s string) error {
	if u, err := url.Parse(s); s != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return fmt.Errorf("%q is not a URL that begins with http:// or https://", s)
	}
	return nil
}

// otlpEndpoint returns the URL of the collector: the setting, or that of OpenTelemetry's environment.
func otlpEndpoint(set string) string {
	for _, from := range []struct{ url, path string }{{set, ""}, {os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), ""}, {os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/v1/traces"}} {
		if from.url != "" && checkURL(from.url) == nil {
			return strings.TrimSuffix(from.url, "/") + from.path
		}
	}
	return ""
}

func checkTraceSample(s string) error {
	if n, err := strconv.Atoi(s); s != "off" && (err != nil || n < 1) {
		return fmt.Errorf("%q is neither a number of requests, at least 1, nor off", s)
	}
	return nil
}

// traceSample returns the value of node.Config.TraceSample.
func traceSample(s string) int {
	if s == "off" {
		return -1
	}
	n, _ := strconv.Atoi(s) // checkTraceSample has checked it
	return n
}

func checkAuditTo(s string) error {
	if s == "auto" || s == "off" || s == audit.Journal || filepath.IsAbs(s) {
		return nil
	}
	return cli.Usagef("", "%q is not auto, off, journal or an absolute path", s)
}

// auditTo returns the second destination of the audit log; empty if there is none.
func auditTo(setting string) string {
	switch {
	case setting == "off", setting == "auto" && !cli.InJournal():
		return ""
	case setting == "auto":
		return audit.Journal
	}
	return setting
}

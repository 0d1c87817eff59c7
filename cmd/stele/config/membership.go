package config

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/steledb/stele/cmd/stele/cli"
)

// expectMax is the maximum of the setting expect.
const expectMax = 1000

func checkExpect(s string) error {
	if s == "" {
		return nil
	}
	if n, err := strconv.Atoi(s); err != nil || n < 1 || n > expectMax {
		return cli.Usagef("", "%q is not a number of nodes between 1 and %s", s, cli.FormatCount(expectMax))
	}
	return nil
}

// checkJoin checks an element of the setting join: an address, or several separated by commas.
func checkJoin(s string) error {
	for _, addr := range strings.Split(s, ",") {
		addr = strings.TrimSpace(addr)
		if err := checkHost(addr); err != nil {
			return err
		}
	}
	return nil
}

func checkAdvertise(s string) error {
	if s == "" {
		return nil
	}
	if err := checkHost(s); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(s)
	if err != nil {
		host = strings.Trim(s, "[]")
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return cli.Usagef("use an address at which other hosts reach this one", "%q is not reachable from other hosts", s)
	}
	return nil
}

// checkHost checks host or host:port.
func checkHost(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), ""
		if net.ParseIP(host) == nil && strings.Contains(host, ":") {
			return cli.Usagef("", "%q is neither a host nor host:port", s)
		}
	}
	if _, bad := strconv.ParseUint(port, 10, 16); host == "" || port != "" && bad != nil {
		return cli.Usagef("", "%q is neither a host nor host:port", s)
	}
	return nil
}

// zoneBytesMax is the maximum length of a zone's name. Every gossip message of a node contains the
// name, and has 512 bytes for all of the node's metadata.
const zoneBytesMax = 64

func checkZone(s string) error {
	if len(s) > zoneBytesMax {
		return cli.Usagef("", "the name has %d bytes, the maximum is %d", len(s), zoneBytesMax)
	}
	return nil
}

// voterStableMin is the minimum of voter_stable. A new voter has to receive the whole namespace, so a
// short interruption must not replace one.
const voterStableMin = time.Second

func checkStable(s string) error {
	d, err := cli.ParseDuration(s)
	if err == nil && d < voterStableMin {
		err = cli.Usagef("", "%q is below the minimum of %v", s, voterStableMin)
	}
	return err
}

// checkMembership checks the settings of membership against each other.
func (c *Config) checkMembership() {
	switch {
	case c.Text("gossip") == "off" && (len(c.join()) > 0 || c.expect() > 1):
		c.addConflict("gossip", cli.Usagef("enable gossip, or omit join and expect", "gossip is off (%s), which excludes join and expect", c.origin["gossip"]))
	case c.expect() > 1 && len(c.join()) == 0:
		c.addConflict("expect", cli.Usagef("set the same --join on all of them, with the addresses of some of them",
			"expect (%s): %d nodes cannot find each other without an address to join", c.origin["expect"], c.expect()))
	}
	ports := []string{"listen", "gossip", "http", "bigtable"}
	for i, key := range ports {
		for _, other := range ports[i+1:] {
			if _, port, _ := net.SplitHostPort(c.Text(key)); c.Text(key) == c.Text(other) && port != "" && port != "0" {
				c.addConflict(other, cli.Usagef("use a different port for each", "%s (%s) and %s (%s) are both %s", key, c.origin[key], other, c.origin[other], c.Text(key)))
			}
		}
	}
}

// join returns the addresses of the nodes to join.
func (c *Config) join() (addrs []string) {
	for _, list := range c.List("join") {
		for _, addr := range strings.Split(list, ",") {
			addrs = append(addrs, strings.TrimSpace(addr))
		}
	}
	return addrs
}

func (c *Config) expect() int {
	n, _ := strconv.Atoi(c.Text("expect")) // validate has checked it
	return n
}

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/steledb/stele/internal/testport"
)

type membersKey struct{}

// scriptCluster is the nodes of a script's cluster, by name.
type scriptCluster map[string]*memberNode

// memberNode is a node of a cluster, and the ports that it keeps.
type memberNode struct {
	node        *scriptNode
	rpc, gossip string
}

func membersOf(ts *testscript.TestScript) scriptCluster {
	return ts.Value(membersKey{}).(scriptCluster)
}

func (f scriptCluster) kill() {
	for _, n := range f {
		n.node.kill()
	}
}

// addrs returns the RPC addresses of all nodes, in order of their names.
func (f scriptCluster) addrs() string {
	var addrs []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		addrs = append(addrs, f[name].rpc)
	}
	return strings.Join(addrs, ",")
}

// add adds a node with ports of its own, and does not start it.
func (f scriptCluster) add(ts *testscript.TestScript, name string) *memberNode {
	n := &memberNode{node: &scriptNode{}, rpc: freePort(ts), gossip: freePort(ts)}
	f[name] = n
	ts.Setenv("ADDR_"+name, n.rpc)
	return n
}

// freePort returns an address with a free port.
func freePort(ts *testscript.TestScript) string {
	addr, err := testport.New()
	ts.Check(err)
	return addr
}

func (n *memberNode) start(ts *testscript.TestScript, name string, args ...string) {
	n.node.start(ts, append([]string{
		"--name", name, "--data-dir", ts.MkAbs(name), "--listen", n.rpc, "--gossip", n.gossip, "--voter-stable", "1s",
	}, args...))
}

func startCluster(ts *testscript.TestScript, _ bool, args []string) {
	members := membersOf(ts)
	count, err := strconv.Atoi(args[0])
	ts.Check(err)
	for i := range count {
		members.add(ts, fmt.Sprintf("n%d", i+1))
	}
	for name, n := range members {
		n.start(ts, name, append([]string{"--join", members.addrs(), "--expect", args[0]}, args[1:]...)...)
	}
	for _, n := range members {
		n.node.await(ts)
	}
	ts.Setenv("STELE_ADDR", members["n1"].rpc)
}

func joinCluster(ts *testscript.TestScript, _ bool, args []string) {
	members := membersOf(ts)
	others := members.addrs()
	n := members.add(ts, args[0])
	n.start(ts, args[0], append([]string{"--join", others}, args[1:]...)...)
	n.node.await(ts)
}

func restartInCluster(ts *testscript.TestScript, _ bool, args []string) {
	n := membersOf(ts)[args[0]]
	n.start(ts, args[0], args[1:]...)
	n.node.await(ts)
	ts.Setenv("STELE_ADDR", n.rpc)
}

func stopInCluster(ts *testscript.TestScript, _ bool, args []string) {
	n := membersOf(ts)[args[0]].node
	if err := n.stop(); err != nil {
		ts.Fatalf("%v\n%s", err, n.text())
	}
}

func matchLogInCluster(ts *testscript.TestScript, neg bool, args []string) {
	membersOf(ts)[args[0]].node.match(ts, neg, args[1])
}

// eventually runs a command until its output matches.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[0])
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(250 * time.Millisecond) {
		_ = ts.Exec(args[1], args[2:]...) // only the output matters
		if printed := ts.ReadFile("stdout") + ts.ReadFile("stderr"); pattern.MatchString(printed) != neg {
			return
		} else if time.Now().After(deadline) {
			ts.Fatalf("no match for %q:\n%s", args[0], printed)
		}
	}
}

func findLeader(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Exec("stele", "raft", "status", "--json"))
	var status struct {
		LeaderName string `json:"leader_name"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &status))
	if status.LeaderName == "" {
		ts.Fatalf("no leader is known: %+v", status)
	}
	ts.Setenv(args[0], status.LeaderName)
}

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes "stele" a command of the scripts, which runs this program in a process of its own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"stele": main})
}

// TestScripts runs testdata/script. Besides the standard commands, scripts have
//
//	node [FLAG...]       start a node on free ports and $WORK/data, and set STELE_ADDR
//	node-log TEXT        fail unless the node's log contains TEXT
//	stopnode             SIGTERM, and wait: it must exit with 0
//	killnode             SIGKILL, and wait
//	devnode              start a development node, and set DEVDIR to its folder
//	deaf                 set STELE_ADDR to a port that accepts connections and never answers
//	exits CODE CMD...    run a command that must exit with CODE
//	flip FILE OFFSET     change a byte; a negative offset counts from the end
//	oneof VAR PATTERN    set VAR to the only file that matches
//	cluster N [FLAG...]  start nodes n1 to nN that found a cluster, with data in $WORK/n1
//	                     and so on; set ADDR_n1 and so on, and STELE_ADDR to n1's address
//	join NAME [FLAG...]  start another node that joins the cluster, and set ADDR_NAME
//	up NAME [FLAG...]    restart a node of the cluster, without --join
//	down NAME, down-hard NAME  stop a node of the cluster, by SIGTERM or by SIGKILL
//	leader VAR           set VAR to the name of the node that leads the lock service
//	node-of NAME TEXT    fail unless the log of a node of the cluster contains TEXT
//	eventually PATTERN CMD...  run a command until its output matches
//	bucket NAME          start a server of Amazon S3's protocol with a bucket, and set AWS_ENDPOINT_URL and credentials
//	readme               run the lines of README.md that begin with bin/stele, except serve
func TestScripts(t *testing.T) {
	rowfiles, err := filepath.Abs("../../internal/rowfile/testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("STELE_ADDR", "127.0.0.1:1") // nothing listens there
			env.Setenv("NO_COLOR", "1")
			env.Setenv("ROWFILES", rowfiles) // files of rows that other programs have written
			n, members := &scriptNode{}, scriptCluster{}
			env.Values[nodeKey{}], env.Values[membersKey{}] = n, members
			env.Defer(n.kill)
			env.Defer(members.kill)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"node":     startNode,
			"devnode":  startDevNode,
			"deaf":     deaf,
			"node-log": matchNodeLog,
			"stopnode": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(nodeOf(ts).stop()) },
			"killnode": func(ts *testscript.TestScript, _ bool, _ []string) { nodeOf(ts).kill() },
			"exits":    exits,
			"flip":     flip,
			"oneof":    oneOfFiles,

			"cluster":    startCluster,
			"join":       joinCluster,
			"up":         restartInCluster,
			"down":       stopInCluster,
			"down-hard":  func(ts *testscript.TestScript, _ bool, args []string) { membersOf(ts)[args[0]].node.kill() },
			"leader":     findLeader,
			"node-of":    matchLogInCluster,
			"eventually": eventually,
			"bucket":     startBucket,
			"readme":     runReadme,
		},
	})
}

type nodeKey struct{}

func nodeOf(ts *testscript.TestScript) *scriptNode { return ts.Value(nodeKey{}).(*scriptNode) }

// scriptNode is a node of a script, in a process of its own.
type scriptNode struct {
	cmd  *exec.Cmd
	done chan error
	addr chan string // receives its address when it serves

	mu struct {
		sync.Mutex
		log strings.Builder
	}
}

func (n *scriptNode) stop() error {
	if n.cmd == nil {
		return errors.New("no node runs")
	}
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := <-n.done
	n.cmd = nil
	return err
}

func (n *scriptNode) kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.done
	n.cmd = nil
}

func startNode(ts *testscript.TestScript, _ bool, args []string) {
	startServe(ts, append([]string{"--data-dir", ts.MkAbs("data")}, args...))
}

func startDevNode(ts *testscript.TestScript, _ bool, args []string) {
	startServe(ts, append([]string{"--dev"}, args...))
	found, err := filepath.Glob(filepath.Join(ts.Getenv("WORK"), "stele-dev-*"))
	ts.Check(err)
	if len(found) != 1 {
		ts.Fatalf("temporary folders: %v, want one", found)
	}
	ts.Setenv("DEVDIR", found[0])
}

func deaf(ts *testscript.TestScript, _ bool, _ []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv("STELE_ADDR", l.Addr().String())
}

func startServe(ts *testscript.TestScript, args []string) {
	n := nodeOf(ts)
	n.start(ts, append([]string{"--listen", "127.0.0.1:0", "--gossip", "127.0.0.1:0"}, args...))
	ts.Setenv("STELE_ADDR", n.await(ts))
}

// start starts the node, and does not wait until it serves.
func (n *scriptNode) start(ts *testscript.TestScript, args []string) {
	if n.cmd != nil {
		ts.Fatalf("the node runs already")
	}
	args = append([]string{"serve", "--http", "127.0.0.1:0", "--bigtable", "off", "--memory", "256MiB", "--extent-size", "4MiB", "--log-format", "json"}, args...)
	binary, err := exec.LookPath(filepath.Join(firstPath(ts), "stele"))
	ts.Check(err)
	n.cmd, n.done, n.addr = exec.Command(binary, args...), make(chan error, 1), make(chan string, 1)
	n.cmd.Env = append(os.Environ(), "TMPDIR="+ts.Getenv("WORK"))
	stderr, err := n.cmd.StderrPipe()
	ts.Check(err)
	ts.Check(n.cmd.Start())
	go func() {
		n.follow(stderr, n.addr)
		n.done <- n.cmd.Wait()
	}()
}

// await waits until the node serves, and returns its address.
func (n *scriptNode) await(ts *testscript.TestScript) string {
	select {
	case a := <-n.addr:
		return a
	case err := <-n.done:
		n.cmd = nil
		ts.Fatalf("node did not start: %v\n%s", err, n.text())
	case <-time.After(time.Minute):
		ts.Fatalf("node is not up after a minute\n%s", n.text())
	}
	return ""
}

// firstPath returns the folder with the commands of testscript.
func firstPath(ts *testscript.TestScript) string {
	return filepath.SplitList(ts.Getenv("PATH"))[0]
}

// follow records the node's log, and sends its address when it serves.
func (n *scriptNode) follow(log io.Reader, addr chan<- string) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		n.mu.Lock()
		n.mu.log.WriteString(lines.Text() + "\n")
		n.mu.Unlock()
		var line struct{ Msg, RPC string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "node serves" {
			select {
			case addr <- line.RPC:
			default: // sent already
			}
		}
	}
}

func (n *scriptNode) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.log.String()
}

func matchNodeLog(ts *testscript.TestScript, neg bool, args []string) {
	nodeOf(ts).match(ts, neg, args[0])
}

func (n *scriptNode) match(ts *testscript.TestScript, neg bool, text string) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if strings.Contains(n.text(), text) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("the node's log, match of %q is not %v:\n%s", text, !neg, n.text())
		}
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d\n%s%s", got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

func flip(ts *testscript.TestScript, _ bool, args []string) {
	offset, err := strconv.ParseInt(args[1], 0, 64)
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR, 0)
	ts.Check(err)
	defer f.Close()
	if offset < 0 {
		end, err := f.Seek(0, io.SeekEnd)
		ts.Check(err)
		offset += end
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], offset)
	ts.Check(err)
	b[0] ^= 0x20
	_, err = f.WriteAt(b[:], offset)
	ts.Check(err)
}

func oneOfFiles(ts *testscript.TestScript, _ bool, args []string) {
	found, err := filepath.Glob(ts.MkAbs(args[1]))
	ts.Check(err)
	if len(found) != 1 {
		ts.Fatalf("%d files match %s, want one: %v", len(found), args[1], found)
	}
	ts.Setenv(args[0], found[0])
}

// runReadme runs the commands of README.md with the tested program.
func runReadme(ts *testscript.TestScript, _ bool, _ []string) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	ts.Check(err)
	ran := 0
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "bin/stele ")
		if !ok || strings.HasPrefix(command, "serve ") {
			continue
		}
		if err := ts.Exec("sh", "-c", "exec stele "+command); err != nil {
			ts.Fatalf("README.md has: stele %s\n%v", command, err)
		}
		ran++
	}
	if ran < 3 {
		ts.Fatalf("README.md has %d commands, want at least 3", ran)
	}
}

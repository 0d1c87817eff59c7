package node_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testport"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// exposed is a node in a process of its own, with all its ports, of 256 MiB.
type exposed struct {
	*process
	target
	log    *transcript
	admin  *client.Client
	keys   string // the folder, empty on an open node
	first  *keydir.Contents
	secret map[string]string // what no answer of the node may contain, by what it is
}

// expose starts a node, with a table.
func expose(t testing.TB, secured bool) *exposed {
	e := &exposed{process: newProcess(t), log: &transcript{}, secret: map[string]string{}}
	e.rpc, e.gossip, e.web = e.addr, good(testport.New()), good(testport.New())
	cfg, listenWeb := client.Config{}, e.web
	if secured {
		_, port, _ := net.SplitHostPort(e.web)
		listenWeb = "0.0.0.0:" + port // TLS is for addresses that others reach
		e.keys = filepath.Join(t.TempDir(), certs.FolderName)
		cfg.Credential = good(enrol.Initialise([]string{e.dir}, e.keys, []string{"127.0.0.1"}, time.Now()))
		e.first = good(keydir.At(e.keys).Load())
		e.key = e.first.GossipKeys[0]
	}
	t.Setenv("STELE_TEST_NODE_PORTS", e.gossip+" "+listenWeb)
	t.Setenv("STELE_TEST_NODE_SECURITY", e.keys)
	e.start(e.log)
	t.Cleanup(func() {
		e.kill()
		if t.Failed() {
			all := e.log.String()
			t.Logf("the end of the node's log:\n%s", all[max(0, len(all)-20<<10):])
		}
	})
	ctx := within(t, endWait)
	for {
		c, err := client.Open(ctx, e.addr, cfg)
		if err == nil {
			if _, err = c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"}); err == nil {
				e.admin = c
				break
			}
			c.Close()
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Cleanup(func() { e.admin.Close() })
	if err := e.admin.Table("t").Apply(ctx, client.NewRowMutation("r").SetAt("f:q", 1, []byte("seen-value")).SetAt("g:q", 1, []byte("hidden-value"))); err != nil {
		t.Fatal(err)
	}
	all := good(e.admin.Nodes().List(ctx))
	raft := good(e.admin.Nodes().RaftStatus(ctx))
	e.node, e.cluster, e.epoch = all[0].ID, raft.Cluster, raft.RaftEpoch
	if secured {
		e.people(ctx, t, cfg.Credential)
	}
	return e
}

// people creates the senders, and records the secrets.
func (e *exposed) people(ctx context.Context, t testing.TB, admin *pki.Credential) {
	looker, _, err := e.admin.Users().Add(ctx, "looker", 0)
	if err != nil {
		t.Fatal(err)
	}
	access, _, err := e.admin.Users().AddToken(ctx, "tom", 0, "")
	if err != nil {
		t.Fatal(err)
	}
	join := good(e.admin.JoinTokens().Create(ctx, client.TokenRequest{Kind: api.TokenJoin}))
	for _, name := range []string{"looker", "tom"} {
		if err := e.admin.Grants().Add(ctx, client.Grant{Principal: name, Rights: "read"}); err != nil {
			t.Fatal(err)
		}
	}
	mallory := issue(t, e.first.Authority, func(r []byte) (*x509.Certificate, error) {
		return e.first.Authority.SignNode(r, "mallory", nil, time.Now())
	})
	e.anonymous = pki.NewEndpoint(pki.AnonymousCredential(admin.Trust()), pki.Options{})
	e.looker, e.member = pki.NewEndpoint(looker, pki.Options{}), pki.NewEndpoint(mallory, pki.Options{})
	e.token = access.Reveal()
	for what, text := range map[string]string{"access token": access.Reveal(), "join token": join.Text} {
		body := text[strings.LastIndex(text, "-")+1:]
		e.secret[what], e.secret[what+", its end"], e.secret[what+", the part that is secret"] = text, body[32:], body[16:48]
	}
	for _, k := range e.first.GossipKeys {
		e.secret["gossip key"], e.secret["gossip key in hex"], e.secret["gossip key in base64"] = string(k), hex.EncodeToString(k), base64.StdEncoding.EncodeToString(k)
	}
	file := filepath.Join(t.TempDir(), "admin.pem")
	if err := pki.WriteCredential(file, admin); err != nil {
		t.Fatal(err)
	}
	e.privateKeys(t, file)
	err = filepath.WalkDir(e.keys, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			e.privateKeys(t, path)
		}
		return err
	})
	if err != nil || len(e.secret) < 8 {
		t.Fatalf("secrets: %d, %v", len(e.secret), err)
	}
}

// privateKeys notes those of a file.
func (e *exposed) privateKeys(t testing.TB, path string) {
	for rest := good(os.ReadFile(path)); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return
		}
		if !strings.Contains(block.Type, "PRIVATE KEY") {
			continue
		}
		what := filepath.Base(path)
		e.secret[what], e.secret[what+" in hex"] = string(block.Bytes), hex.EncodeToString(block.Bytes)
		for i, line := range strings.Split(string(pem.EncodeToMemory(block)), "\n") {
			if len(line) > 20 && !strings.HasPrefix(line, "-") {
				e.secret[fmt.Sprintf("%s, line %d", what, i)] = line
			}
		}
	}
}

// page requests one of the node's pages with the right to see it.
func (e *exposed) page(t testing.TB, path string) string {
	t.Helper()
	scheme, transport := "http", &http.Transport{}
	defer transport.CloseIdleConnections()
	if e.looker != nil {
		scheme = "https"
		transport.DialTLSContext = func(ctx context.Context, _, addr string) (net.Conn, error) { return e.looker.Dial(ctx, "", addr) }
	}
	request := good(http.NewRequestWithContext(within(t, endWait), http.MethodGet, scheme+"://"+e.web+path, nil))
	r, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v: %.200s", path, r.Status, err, b)
	}
	return string(b)
}

// tellsNothing searches what the node returns for secrets.
func (e *exposed) tellsNothing(t testing.TB, where, text string) {
	t.Helper()
	for what, secret := range e.secret {
		if strings.Contains(text, secret) {
			t.Errorf("%s: it has the secret %s", where, what)
		}
	}
}

// peak is the most memory that the process had, all that is resident of it.
func (e *exposed) peak(t testing.TB) int64 {
	t.Helper()
	_, text, _ := strings.Cut(string(good(os.ReadFile(fmt.Sprintf("/proc/%d/status", e.cmd.Process.Pid)))), "VmHWM:")
	fields := strings.Fields(text)
	if len(fields) == 0 {
		t.Fatal("the kernel does not tell the peak: the node is gone")
	}
	return good(strconv.ParseInt(fields[0], 10, 64)) << 10
}

// hostileFrames is the number of frames for each port, half of them with credentials: STELE_HOSTILE, or 2,000 times STELE_SOAK.
func hostileFrames() int {
	if n, err := strconv.Atoi(os.Getenv("STELE_HOSTILE")); err == nil && n > 0 {
		return n
	}
	times, _ := strconv.Atoi(os.Getenv("STELE_SOAK"))
	return 2000 * max(times, 1)
}

// linger opens connections to each port that stay and send little.
func (e *exposed) linger(ctx context.Context, t testing.TB, r *rand.Rand) {
	for i := range 40 {
		for what, addr := range map[string]string{"rpc": e.rpc, "web": e.web, "gossip": e.gossip} {
			c, err := net.Dial("tcp", addr)
			if quiet(err) != nil {
				t.Fatal(err)
			}
			if err != nil { // it is refused already
				continue
			}
			t.Cleanup(func() { c.Close() })
			if i%2 == 0 { // something, and no more
				_, _ = c.Write([]byte(pick(r, "\x16", "\x16\x03\x01\x02", "GET /hea", "R\x00", "STELE", "\xf4\x02", "\x94\x00")))
			}
			if e.member == nil || what == "gossip" {
				continue
			}
			if secured, err := e.member.Over(ctx, "", good(net.Dial("tcp", addr))); err == nil { // a node may fall silent as well
				t.Cleanup(func() { secured.Close() })
				greeting := e.raftGreeting(e.cluster, "mallory", e.node)
				hello, snapshot := raftFrame(e.raftHello("mallory")), raftFrame(raftMessage(5, 0, 1, 1, 1, 1, []byte{0x80}, int64(1)<<40))
				parts := pick(r, [][]byte{greeting[:1+r.IntN(len(greeting)-1)]}, [][]byte{greeting}, [][]byte{greeting, hello[:5]}, [][]byte{greeting, hello}, [][]byte{greeting, hello, snapshot, {1}})
				if what == "web" {
					parts = [][]byte{[]byte("GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n")}
				}
				_, _ = secured.Write(bytes.Join(parts, nil))
			}
		}
	}
}

// TestHostilePorts (I11, I12, I13): whatever comes to a node's ports, with and without credentials, including those of another node, slowly or
// at full speed, the node continues to serve, changes nothing, stays within its memory, and reveals no secret in its log or metrics.
func TestHostilePorts(t *testing.T) {
	for _, secured := range []bool{true, false} {
		t.Run(map[bool]string{true: "secured", false: "open"}[secured], func(t *testing.T) {
			seed := seedOf(t)
			e := expose(t, secured)
			ctx := within(t, 12*time.Hour)
			state := dataOf
			if secured {
				state = stateOf
			}
			before, term := good(state(ctx, e.admin)), good(e.admin.Nodes().RaftStatus(ctx)).Term
			e.linger(ctx, t, seed)
			type port struct {
				name string
				send func(ctx context.Context, r *rand.Rand, known bool) (int, error)
			}
			ports := []port{{"HTTP", e.sendWeb}, {"streams of gossip", e.sendStream}, {"packets of gossip", e.sendPackets}}
			if secured { // on an open node any client may do anything
				ports = append(ports, port{"Raft", e.sendRaft}, port{"RPC", e.sendRPC})
			}
			for _, p := range ports {
				for _, known := range []bool{false, true} {
					e.answered.Store(0)
					began := time.Now()
					_, dropped, err := packetSocket(e.gossip)
					if err != nil {
						t.Fatal(err)
					}
					sent := flood(ctx, t, seed, hostileFrames()/2, func(r *rand.Rand) (int, error) { return p.send(ctx, r, known) })
					note := ""
					if p.name == "packets of gossip" {
						_, now, _ := packetSocket(e.gossip)
						note = fmt.Sprintf(", %d of them dropped by the kernel", now-dropped)
					}
					t.Logf("%s, %s: %d frames in %v%s; the node's peak is %d MiB", p.name, map[bool]string{true: "known", false: "strangers"}[known], sent, time.Since(began).Round(time.Millisecond), note, e.peak(t)>>20)
					if known && !strings.Contains(p.name, "gossip") && e.answered.Load() == 0 {
						t.Errorf("%s: nobody was answered, so who is known is not", p.name)
					}
					// While others still hold their connections.
					if err := e.admin.Table("t").Apply(within(t, endWait), client.NewRowMutation("r").SetAt("f:q", 1, []byte("seen-value"))); err != nil {
						t.Fatalf("after %s the node does not serve: %v", p.name, err)
					}
					if e.page(t, "/healthz") != "ok\n" {
						t.Errorf("after %s the node is not well", p.name)
					}
				}
			}
			if after, err := state(ctx, e.admin); err != nil || after != before {
				t.Errorf("before: %s\nafter:  %s, %v", before, after, err)
			}
			if after := good(e.admin.Nodes().RaftStatus(ctx)).Term; after != term {
				t.Errorf("a node that does not vote has taken the lock service from term %d to %d", term, after)
			}
			if peak := e.peak(t); peak > exposedBytes && !raceEnabled {
				t.Errorf("I13: the process took %d MiB, of %d", peak>>20, exposedBytes>>20)
			}
			metrics := e.page(t, "/metrics")
			if !strings.Contains(metrics, "stele_") {
				t.Errorf("no metrics: %.300s", metrics)
			}
			e.tellsNothing(t, "metrics", metrics)
			e.tellsNothing(t, "log", e.log.String())
			for _, bad := range []string{"panic", "goroutine ", "fatal error", "PRIVATE KEY"} {
				if i := strings.Index(e.log.String(), bad); i >= 0 {
					t.Errorf("the log has %q: %.2000s", bad, e.log.String()[i:])
				}
			}
		})
	}
}

const exposedBytes = 256 << 20

// senders send concurrently. Some answers take the node half a second, for example for a header that is too large, because it waits for the
// client to read them.
const senders = 32

// flood has some at once send so many frames.
func flood(ctx context.Context, t testing.TB, seed *rand.Rand, frames int, send func(*rand.Rand) (int, error)) (sent int) {
	t.Helper()
	var wait sync.WaitGroup
	var mu sync.Mutex
	for range senders {
		own := rand.New(rand.NewPCG(seed.Uint64(), 1))
		wait.Go(func() {
			for ctx.Err() == nil {
				n, err := send(own)
				mu.Lock()
				sent += n
				over := sent >= frames || err != nil
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if over {
					return
				}
			}
		})
	}
	wait.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return sent
}

// preamble is how many bytes a node answers to that of a framed connection.
const preamble = 8

// sendRPC sends requests, more or less: see hostile.
func (e *exposed) sendRPC(ctx context.Context, r *rand.Rand, known bool) (int, error) {
	h := hostile{addr: e.rpc, caller: e.anonymous, rnd: r, met: map[string]int{}, methods: node.KnownMethods(), calls: tableCalls("t")}
	if known && r.IntN(2) == 0 {
		h.caller = e.looker
	} else if known {
		h.token = e.token
	}
	err := h.connect(ctx)
	if h.heard > preamble {
		e.answered.Add(1)
	}
	return h.sent, err
}

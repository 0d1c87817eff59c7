package node_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/security/pki"
)

// target is a node as seen by the hostile senders.
type target struct {
	rpc, web, gossip string
	// answered counts the connections on which more came back than that the peer is welcome.
	answered      atomic.Int64
	epoch         uint64 // of the lock service
	cluster, node string
	key           []byte // of gossip; nil if it is in the clear
	// anonymous has no certificate, looker that of a principal that may read the cluster, member that of a node. Nil on an open node.
	anonymous, looker, member *pki.Endpoint
	token                     string // of a principal that may read the cluster
}

// endWait is how long a node may take to end a connection whose other end is done: far longer than it does.
const endWait = time.Minute

// sendAll sends on a new connection, with TLS unless caller is nil, and waits until the node closes it. It returns the number of bytes received.
func sendAll(ctx context.Context, from net.IP, addr string, caller *pki.Endpoint, parts ...[]byte) (heard int64, err error) {
	d := net.Dialer{}
	if from != nil {
		d.LocalAddr = &net.TCPAddr{IP: from}
	}
	tcp, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, quiet(err)
	}
	defer tcp.Close()
	_ = tcp.SetDeadline(time.Now().Add(endWait))
	c := tcp
	if caller != nil {
		if c, err = caller.Over(ctx, "", tcp); err != nil {
			return 0, quiet(err)
		}
		defer c.Close() // its endpoint keeps it until then
	}
	go func() {
		for _, p := range parts {
			if _, err := c.Write(p); err != nil {
				break
			}
		}
		_ = tcp.(*net.TCPConn).CloseWrite()
	}()
	if heard, err = io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		return heard, fmt.Errorf("the node has not ended a connection %v after %.200q", endWait, parts)
	}
	return heard, nil
}

// welcome is what comes back on a connection that is taken, before anything is answered, at most: Raft's greeting.
const welcome = 2

func (t *target) send(ctx context.Context, from net.IP, addr string, caller *pki.Endpoint, parts ...[]byte) error {
	heard, err := sendAll(ctx, from, addr, caller, parts...)
	if heard > welcome {
		t.answered.Add(1)
	}
	return err
}

// mutate changes a message a little, or not.
func mutate(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	for range r.IntN(4) {
		if len(b) == 0 {
			break
		}
		switch i := r.IntN(len(b)); r.IntN(4) {
		case 0:
			b[i] ^= 1 << r.IntN(8)
		case 1:
			b[i] = byte(r.IntN(256))
		case 2:
			b = b[:i]
		default:
			b = append(b[:i:i], append(noise(r, make([]byte, 1+r.IntN(8))), b[i:]...)...)
		}
	}
	return b
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// webRequests returns requests for one connection, after the last of which a node ends it, or should.
func (t *target) webRequests(r *rand.Rand) (requests [][]byte) {
	for range r.IntN(30) {
		path := pick(r, "/healthz", "/readyz", "/", "/healthz?"+strings.Repeat("a=b&", r.IntN(500)), "/debug/pprof/cmdline", "/%2e%2e/etc/passwd", "/debug/pprof/heap?seconds=1e9", "*",
			"/debug/pprof/../../metrics", fmt.Sprintf("/%x", noise(r, make([]byte, r.IntN(200)))))
		if r.IntN(20) == 0 {
			path = pick(r, "/metrics", "/metrics?name[]=a&name[]=\xff", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine?debug=1", "/debug/pprof/trace?seconds=0.001")
		}
		head := pick(r, "", "Accept-Encoding: gzip\r\n", "Accept-Encoding: zstd, gzip;q=0, *;q=9e99\r\n", "Range: bytes=0-1,1-2,5-\r\n", "Expect: 100-continue\r\n", "Upgrade: h2c\r\nConnection: Upgrade\r\n",
			"Authorization: Bearer "+t.token+"\r\n", "Authorization: Bearer "+strings.Repeat("x", r.IntN(300))+"\r\n", "X: "+strings.Repeat("y", r.IntN(9000))+"\r\n")
		requests = append(requests, fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: a\r\n%s\r\n", pick(r, "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "BREW"), path, head))
	}
	fine := []byte("GET /healthz HTTP/1.1\r\nHost: a\r\nX-Much: little\r\n\r\n")
	last := [][]byte{
		mutate(r, fine), mutate(r, fine), noise(r, make([]byte, 1+r.IntN(500))), fine[:r.IntN(len(fine))],
		append(fine[:len(fine)-2:len(fine)-2], "X: "+strings.Repeat("z", 10_000+r.IntN(60_000))...),
		[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"),
		[]byte("GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: " + pick(r, "-1", "5", "99999999999999999999", "1, 2", "0x10") + "\r\n\r\nabc"),
		[]byte("GET /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + pick(r, "ffffffffffffffff\r\n", "5;"+strings.Repeat("e", 9000), "\r\n", "0\r\n", "-1\r\n")),
		[]byte("GET /healthz HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("A:b\r\n", 100+r.IntN(6000)) + "\r\n"),
		[]byte("GET /" + strings.Repeat("%00", r.IntN(9000)) + " HTTP/9.9\r\n\r\n"), {0x16, 3, 1, 0xff, 0xff}, {},
	}
	return append(requests, pick(r, last...))
}

// sendWeb sends to the HTTP port, with a certificate or a token if known.
func (t *target) sendWeb(ctx context.Context, r *rand.Rand, known bool) (int, error) {
	caller := t.anonymous
	if known && r.IntN(2) == 0 {
		caller = t.looker
	} else if r.IntN(10) == 0 {
		caller = nil // in the clear
	}
	requests := t.webRequests(r)
	return len(requests), t.send(ctx, nil, t.web, caller, requests...)
}

// raftGreeting begins a connection to a voter.
func (t *target) raftGreeting(cluster, from, to string) []byte {
	b := wiretest.Encode(func(e *wire.Encoder) {
		e.Array(5)
		e.Uint(1)
		e.Str(cluster)
		e.Uint(t.epoch)
		e.Str(from)
		e.Str(to)
	})
	return append([]byte{'R', byte(len(b) >> 8), byte(len(b))}, b...)
}

// raftFrame is a message between voters.
func raftFrame(b []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	return append(binary.BigEndian.AppendUint32(head, crc.Sum(head, b)), b...)
}

func raftMessage(values ...any) []byte {
	return wiretest.Encode(func(e *wire.Encoder) {
		wiretest.Any(e, values)
	})
}

func (t *target) raftHello(from string) []byte { return raftMessage("stele raft", 1, from, t.node) }

// raftMessages returns messages for one connection, of which only the last is invalid. A node may claim to lead, and others cannot verify it, so
// the messages are such as no leader would send. Their terms are long past, or in the far future.
func raftMessages(r *rand.Rand) (messages [][]byte) {
	entry := func(index, term uint64) any {
		return []any{index, term, uint64(r.IntN(4)), int64(0), noise(r, make([]byte, r.IntN(50)))}
	}
	for range r.IntN(30) { // answered, and refused
		messages = append(messages, raftFrame(pick(r, raftMessage(7), raftMessage(2, 0), raftMessage(3, 1<<20, 1<<20, 1<<20, r.IntN(2) == 0),
			raftMessage(4, 1<<20, 1<<20, 1<<20), raftMessage(1, 0, 0, 0, 1<<20, []any{entry(1, 0)}), raftMessage(6))))
	}
	far := uint64(1)<<40 + r.Uint64N(1<<62)
	stop := [][]byte{
		noise(r, make([]byte, r.IntN(300))), {0x7f, 255, 255, 255}, {0, 0, 0, 3, 0, 0, 0, 0, 0x92, 2, 3}, raftFrame(noise(r, make([]byte, r.IntN(300)))),
		raftFrame([]byte{0x96, 1, 0, 0, 0, 0, 0xdd, 255, 255, 255, 255}), raftFrame(append([]byte{0x92, 2}, bytes.Repeat([]byte{0x91}, r.IntN(3000))...)),
		raftFrame(raftMessage(1, 1<<20, 0, 0, 1<<20, []any{entry(1<<30, 1<<20)})),                   // a gap
		raftFrame(raftMessage(1, 1<<20, 0, 0, 1<<20, []any{entry(1, 1<<20), entry(3, 1<<20)})),      // another
		raftFrame(raftMessage(1, 0, 0, 0, 0, []any{[]any{1, 1, 5, 0, noise(r, make([]byte, 20))}})), // members of nowhere
		raftFrame(raftMessage(2, far)), raftFrame(raftMessage(1, far, 0, 0, 0, []any{})), raftFrame(raftMessage(2, ^uint64(0))), // terms that never come
		raftFrame(raftMessage(5, 0, 1, 1<<40, 1, 1, []byte{0x80}, int64(1)<<40)), append(raftFrame(raftMessage(5, 0, 1, 1, 1, 1, noise(r, make([]byte, 20)), 100)), 1, 2, 3),
		raftFrame(raftMessage(8)), raftFrame(raftMessage(0, 1, 1, "no")), raftFrame(nil), raftFrame(make([]byte, 1<<20)),
	}
	return append(messages, pick(r, stop...))
}

// sendRaft sends data that begins like a voter's connection, as a node of the cluster if known.
func (t *target) sendRaft(ctx context.Context, r *rand.Rand, known bool) (int, error) {
	greeting := t.raftGreeting(t.cluster, "mallory", t.node)
	if known {
		parts := append([][]byte{greeting, raftFrame(pick(r, t.raftHello("mallory"), t.raftHello("mallory"), t.raftHello("mallory"), t.raftHello(t.node), mutate(r, t.raftHello("mallory"))))}, raftMessages(r)...)
		return len(parts), t.send(ctx, nil, t.rpc, t.member, parts...)
	}
	b := pick(r, greeting, mutate(r, greeting), greeting[:r.IntN(len(greeting))], append([]byte{'R'}, noise(r, make([]byte, r.IntN(300)))...),
		t.raftGreeting(t.cluster, t.node, t.node), t.raftGreeting("another", "mallory", t.node), []byte{'R', 255, 255}, []byte{'R', 4, 0})
	caller := pick(r, t.anonymous, t.looker)
	if r.IntN(100) == 0 { // in plain text, which is refused after half a second
		caller = nil
	}
	return 1, t.send(ctx, nil, t.rpc, caller, append(b, raftFrame(raftMessage(2, ^uint64(0)))...))
}

// gossipMessage returns an invalid gossip message, or one that no node sends.
func gossipMessage(r *rand.Rand) []byte {
	str := func(n int) string { return string(noise(r, make([]byte, r.IntN(n)))) }
	body := raftMessage
	asMap := func(kv ...any) []byte {
		m := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return wiretest.Encode(func(e *wire.Encoder) { wiretest.Any(e, m) })
	}
	kind := byte(r.IntN(15))
	switch r.IntN(8) {
	case 0:
		return noise(r, make([]byte, r.IntN(1000)))
	case 1:
		return append([]byte{kind}, noise(r, make([]byte, r.IntN(1000)))...)
	case 2:
		return append([]byte{kind}, bytes.Repeat([]byte{pick[byte](r, 0x91, 0x81, 0xdd)}, r.IntN(1200))...)
	case 3:
		return append([]byte{kind}, pick(r, "\x81\xa4Node\xdb\x7f\xff\xff\xff", "\x81\xa5Nodes\xce\x7f\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\x81\xaaUserMsgLen\xce\x01\x00\x00\x00")...)
	case 4: // of a node of no run, or with nothing of what it should contain
		return mutate(r, append([]byte{pick[byte](r, 3, 4, 5)}, asMap("Node", str(50), "From", str(20), "Incarnation", r.Uint32(), "Addr", noise(r, make([]byte, r.IntN(20))), "Port", 7107, "Meta", noise(r, make([]byte, r.IntN(600))), "Vsn", []byte{1, 5, 2, 0, 0, 0})...))
	case 5:
		return mutate(r, append([]byte{0}, asMap("SeqNo", r.Uint32(), "Node", str(30), "SourceNode", str(30))...))
	case 6:
		return mutate(r, append([]byte{7, byte(r.IntN(256))}, noise(r, make([]byte, r.IntN(600)))...))
	}
	return append([]byte{kind}, mutate(r, body(str(10), r.Uint64(), nil, []any{}, []byte(str(100))))...)
}

func (t *target) gossipLabel() []byte {
	return append([]byte{0xf4, byte(len(t.cluster))}, t.cluster...)
}

// sealed encrypts as memberlist does, what goes before it and the label authenticated.
func (t *target) sealed(r *rand.Rand, before, message []byte) []byte {
	block, err := aes.NewCipher(t.key)
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	nonce := noise(r, make([]byte, gcm.NonceSize()))
	return gcm.Seal(append([]byte{1}, nonce...), nonce, message, append(bytes.Clone(before), t.cluster...))
}

const sealedMore = 1 + 12 + 16

// stream is what a stream of gossip brings.
func (t *target) stream(r *rand.Rand, known bool) []byte {
	m := gossipMessage(r)
	switch {
	case known && t.key != nil:
		if r.IntN(200) == 0 { // deep
			m = append([]byte{byte(r.IntN(15))}, bytes.Repeat([]byte{pick[byte](r, 0x91, 0x81)}, 1+r.IntN(1<<20))...)
		}
		head := binary.BigEndian.AppendUint32([]byte{10}, uint32(len(m)+sealedMore))
		return append(append(t.gossipLabel(), head...), t.sealed(r, head, m)...)
	case known: // in plain text any sender is
		return append(t.gossipLabel(), m...)
	}
	crypt := binary.BigEndian.AppendUint32([]byte{10}, pick(r, uint32(len(m)), r.Uint32(), 0, 1<<20, 20<<20))
	return pick(r, append(t.gossipLabel(), m...), append(append(t.gossipLabel(), crypt...), m...), m, mutate(r, t.gossipLabel()), append([]byte("\xf4\x02c2"), m...), []byte("GET / HTTP/1.1\r\n\r\n"))
}

func (t *target) sendStream(ctx context.Context, r *rand.Rand, known bool) (int, error) {
	return 1, t.send(ctx, net.IPv4(127, 9, byte(r.IntN(4)), byte(1+r.IntN(250))), t.gossip, nil, t.stream(r, known))
}

// packetSocket has the bytes waiting in the kernel for the owner of a port, and the number of dropped packets.
func packetSocket(addr string) (waiting, dropped int64, err error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, 0, err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0, 0, err
	}
	all, err := os.ReadFile("/proc/net/udp")
	for line := range strings.Lines(string(all)) {
		f := strings.Fields(line)
		if len(f) < 13 || !strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) {
			continue
		}
		var sending, w, d int64
		if _, err := fmt.Sscanf(f[4]+" "+f[len(f)-1], "%x:%x %d", &sending, &w, &d); err != nil {
			return 0, 0, err
		}
		waiting, dropped = waiting+w, dropped+d
	}
	return waiting, dropped, err
}

// sendPackets sends gossip packets once most earlier ones have been read: the kernel drops packets that do not fit.
func (t *target) sendPackets(ctx context.Context, r *rand.Rand, known bool) (sent int, err error) {
	c, err := net.Dial("udp", t.gossip)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for {
		waiting, _, err := packetSocket(t.gossip)
		if err != nil {
			return 0, err
		}
		if waiting < 16<<10 || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for sent = range 8 {
		m := gossipMessage(r)
		switch {
		case known && t.key != nil:
			m = append(t.gossipLabel(), t.sealed(r, nil, m)...)
		case known:
			m = append(t.gossipLabel(), m...)
		default:
			m = pick(r, m, append(t.gossipLabel(), m...), mutate(r, t.gossipLabel()), noise(r, make([]byte, r.IntN(9000))))
		}
		_, _ = c.Write(m) // an error is of one before
	}
	return sent + 1, nil
}

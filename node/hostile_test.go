package node_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// hostile sends to a node what no client would, with few rights or none.
type hostile struct {
	addr   string
	caller *pki.Endpoint
	token  string // sent first, unless empty
	rnd    *rand.Rand
	// methods are those of the node, and calls the parameters that some of them want.
	methods []string
	calls   map[string]func(*wire.Encoder)
	sent    int
	heard   int            // bytes
	met     map[string]int // how often each of secrets was received
}

// secrets are what answers are searched for.
var secrets = []string{"hidden-value", "seen-value", "unauthenticated", "permission_denied", "bad_request", "table_not_found"}

// message returns a message, which is more or less a request.
func (h *hostile) message() []byte {
	r := h.rnd
	switch r.IntN(20) {
	case 0: // noise
		return append([]byte{0x94}, noise(r, make([]byte, r.IntN(300)))...)
	case 1: // deep
		return append([]byte{0x94, 0, 1, 0xa4, 'p', 'i', 'n', 'g'}, bytes.Repeat([]byte{0x91}, 1+r.IntN(3000))...)
	case 2: // what claims to be very long
		long := [][]byte{{0xdd, 255, 255, 255, 255}, {0xdf, 255, 255, 255, 255}, {0xc6, 255, 255, 255, 255}, {0xdb, 127, 255, 255, 255}, {0xc9, 255, 255, 255, 255, 1}}
		return append([]byte{0x94, 0, 1, 0xa4, 'r', 'e', 'a', 'd'}, long[r.IntN(len(long))]...)
	case 3: // unrequested answers, and messages of unknown kinds
		return []byte{0x94, byte(1 + r.IntN(100)), byte(r.IntN(100)), 0xc0, 0x90}
	}
	e := wire.GetEncoder()
	defer e.Release()
	method := h.methods[r.IntN(len(h.methods))]
	if r.IntN(10) > 0 {
		e.Array(4)
		e.Int(0)
		e.Uint(uint64(r.Uint32()))
	} else { // a notification
		e.Array(3)
		e.Int(2)
	}
	e.Str(method)
	params := h.calls[method]
	if params == nil || r.IntN(5) == 0 {
		params = values([]any{"t", []byte("r"), 1 << 40, nil, map[string]any{"table": "t"}, []any{}, strings.Repeat("x", r.IntN(2000))}[:r.IntN(8)]...)
	}
	params(e)
	b := bytes.Clone(e.Bytes())
	for range r.IntN(4) - 1 { // half are as they should be
		switch i := r.IntN(len(b)); r.IntN(4) {
		case 0:
			b[i] ^= 1 << r.IntN(8)
		case 1:
			b[i] = byte(r.IntN(256))
		case 2:
			b = b[:1+i]
		default:
			b = slices.Insert(b, i, noise(r, make([]byte, 1+r.IntN(8)))...)
		}
	}
	return b
}

// wellFormed reports whether a message is one MessagePack value that begins like a message.
func wellFormed(b []byte) bool {
	d := wire.NewDecoder(b)
	if d.Array() < 3 || d.Err() != nil {
		return false
	}
	if kind := d.Int(); d.Err() != nil || kind != 0 && kind != 2 {
		return false
	}
	d = wire.NewDecoder(b)
	d.Skip()
	return d.Err() == nil && !d.More()
}

func noise(r *rand.Rand, b []byte) []byte {
	for i := range b {
		b[i] = byte(r.IntN(256))
	}
	return b
}

// frame returns a message in a frame, which mostly is one.
func (h *hostile) frame(message []byte) []byte {
	f := append(seal(message), message...)
	switch h.rnd.IntN(60) {
	case 0:
		binary.LittleEndian.PutUint32(f, h.rnd.Uint32())
	case 1:
		binary.LittleEndian.PutUint32(f[8:], h.rnd.Uint32())
	case 2:
		f[h.rnd.IntN(len(f))] ^= 4
		return f
	}
	binary.LittleEndian.PutUint32(f[12:], crc.Sum(f[:12], message))
	return f
}

// connect sends some frames on a connection of its own.
func (h *hostile) connect(ctx context.Context) error {
	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.addr)
	if err != nil {
		return err
	}
	defer tcp.Close()
	_ = tcp.SetDeadline(time.Now().Add(20 * time.Second))
	if h.rnd.IntN(50) == 0 { // not even TLS, or the beginning of it
		h.sent++
		start := [][]byte{{}, {0x16}, {0x16, 3, 1, 0xff, 0xff, 1}, []byte("STELE\x01\x00\n"), {0x94, 0, 1}}[h.rnd.IntN(5)]
		_, _ = tcp.Write(append(start, noise(h.rnd, make([]byte, h.rnd.IntN(600)))...))
		_ = tcp.(*net.TCPConn).CloseWrite()
		_, err = io.Copy(io.Discard, io.LimitReader(tcp, 1<<20))
		return quiet(err)
	}
	c, err := h.caller.Over(ctx, "", tcp)
	if err != nil {
		return err
	}
	defer c.Close() // its endpoint keeps it until then
	framed := h.rnd.IntN(3) > 0
	heard, answered, before := make(chan struct{}), make(chan struct{}), 0
	if framed {
		before = 8 // of the preamble
	}
	go func() {
		defer close(heard)
		h.listen(c, before, answered)
	}()
	var out []byte
	if framed {
		out = append(out, "STELE\x01\x00\n"...)
	}
	if h.token != "" {
		e := wire.GetEncoder()
		values(0, 1, "auth", []any{h.token})(e)
		if framed {
			out = append(out, seal(e.Bytes())...)
		}
		out = append(out, e.Bytes()...)
		e.Release()
	}
	if _, err := c.Write(out); err != nil {
		return quiet(err)
	}
	if h.token != "" {
		select {
		case <-answered:
		case <-heard:
		}
	}
	var last []byte // what ends the connection
	out = out[:0]
	for n := h.rnd.IntN(60); n > 0 || last == nil; {
		message := h.message()
		if !wellFormed(message) {
			last = message
			continue
		}
		if n--; framed {
			message = append(seal(message), message...)
		}
		out = append(out, message...)
		h.sent++
	}
	_, err = c.Write(out)
	time.Sleep(time.Duration(h.rnd.IntN(50)) * time.Millisecond)
	if framed {
		last = h.frame(last)
	}
	if _, lost := c.Write(last); err == nil {
		err = lost
	}
	h.sent++
	if h.rnd.IntN(20) == 0 { // what no key of TLS has sealed
		h.sent++
		_, err = tcp.Write(noise(h.rnd, make([]byte, 1+h.rnd.IntN(100))))
	}
	_ = tcp.(*net.TCPConn).CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(time.Duration(100+h.rnd.IntN(200)) * time.Millisecond))
	<-heard
	return quiet(err)
}

// seal returns the header of a frame.
func seal(message []byte) []byte {
	f := make([]byte, 16)
	binary.LittleEndian.PutUint32(f, uint32(len(message)))
	binary.LittleEndian.PutUint32(f[12:], crc.Sum(f[:12], message))
	return f
}

// quiet takes errors of a connection that the node has ended for none.
func quiet(err error) error {
	var op *net.OpError
	if errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// listen looks through what comes back. When it is more than so many bytes something was
// answered.
func (h *hostile) listen(c net.Conn, before int, answered chan<- struct{}) {
	b, n := make([]byte, 64<<10), 0
	for {
		m, err := c.Read(b[n:])
		h.heard += m
		if n += m; m > 0 && before >= 0 {
			if before -= m; before < 0 {
				close(answered)
			}
		}
		for _, tell := range secrets {
			h.met[tell] += bytes.Count(b[:n], []byte(tell))
		}
		if err != nil {
			return
		}
		const tail = 12 // shorter than any of secrets: none is counted twice
		if n > tail {
			n = copy(b, b[n-tail+1:n])
		}
	}
}

// stateOf is what of a cluster with certificates a stranger might change.
func stateOf(ctx context.Context, c *client.Client) (string, error) {
	data, err1 := dataOf(ctx, c)
	users, err2 := c.Users().List(ctx)
	grants, err3 := c.Grants().List(ctx, "", "")
	tokens, err4 := c.JoinTokens().List(ctx)
	return fmt.Sprintf("%s %+v %+v %+v", data, users, grants, tokens), errors.Join(err1, err2, err3, err4)
}

// dataOf is what of any cluster one might change.
func dataOf(ctx context.Context, c *client.Client) (string, error) {
	var all []any
	rows := c.Table("t").Scan(ctx)
	for rows.Next() {
		all = append(all, fmt.Sprintf("%+v", *rows.Row()))
	}
	tables, err1 := c.Tables().List(ctx)
	nodes, err2 := c.Nodes().List(ctx)
	for i := range tables {
		all = append(all, tables[i].Name, len(tables[i].Families))
	}
	for i := range nodes {
		all = append(all, nodes[i].ID, nodes[i].State)
	}
	return fmt.Sprintf("%+v", all), errors.Join(rows.Err(), err1, err2)
}

// TestHostileFrames (I11, I12): whatever a client with few rights or none sends, before TLS, within it and below it, the node continues to
// serve, reveals nothing that the client may not know, changes nothing, and releases its resources. 4,000 messages, times STELE_SOAK: 250 make
// a million.
func TestHostileFrames(t *testing.T) {
	rnd, total := seedOf(t), 4000
	if times, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil && times > 0 {
		total *= times
	}
	f, _, log := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 6*time.Hour)
	admin := f.client(0)
	if _, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"}); err != nil {
		t.Fatal(err)
	}
	if err := admin.Table("t").Apply(ctx, client.NewRowMutation("r").SetAt("f:q", 1, []byte("seen-value")).SetAt("g:q", 1, []byte("hidden-value"))); err != nil {
		t.Fatal(err)
	}
	ann := f.user(admin, "ann")
	tok, _, err := admin.Users().AddToken(ctx, "tom", 0, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Family: "f", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	anonymous := pki.AnonymousCredential(f.as.Trust())
	var all []*hostile
	for _, h := range []hostile{{caller: pki.NewEndpoint(anonymous, pki.Options{})}, {caller: pki.NewEndpoint(ann, pki.Options{})},
		{caller: pki.NewEndpoint(f.user(admin, "nobody"), pki.Options{})}, {caller: pki.NewEndpoint(anonymous, pki.Options{}), token: tok.Reveal()}} {
		h.addr, h.rnd, h.met = f.nodes[0].RPCAddr(), rand.New(rand.NewPCG(rnd.Uint64(), 1)), map[string]int{}
		h.methods, h.calls = f.nodes[0].Methods(), tableCalls("t")
		h.calls[metaapi.MethodSet], h.calls[metaapi.MethodDelete] = values(acl.ClusterFile, []byte{}, nil), values(acl.ClusterFile, nil)
		all = append(all, &h)
	}
	before, err := stateOf(ctx, admin)
	if err != nil {
		t.Fatal(err)
	}
	heap, served := inUse(), serving()
	var wait sync.WaitGroup
	for _, h := range all {
		wait.Go(func() {
			for h.sent < total/len(all) && ctx.Err() == nil {
				if err := h.connect(ctx); err != nil {
					t.Errorf("connection after %d messages: %v", h.sent, err)
					return
				}
			}
		})
	}
	wait.Wait()
	for i, h := range all {
		t.Logf("%d: %d messages, %d bytes came back, of which %v", i, h.sent, h.heard, h.met)
		if h.met["hidden-value"] > 0 || h.met["seen-value"] > 0 != (i == 1) {
			t.Errorf("hostile %d was told %v", i, h.met)
		}
		want := []string{"permission_denied", "bad_request", "table_not_found"}
		if i == 0 {
			want = []string{"unauthenticated"}
		}
		for _, w := range want {
			if h.met[w] == 0 && i != 1 {
				t.Errorf("hostile %d was never told %s: %v", i, w, h.met)
			}
		}
	}
	after, err := stateOf(ctx, admin)
	if err != nil || before != after {
		t.Errorf("before: %s\nafter:  %s, %v", before, after, err)
	}
	eventually(t, "what served the connections has ended", func() bool { return serving() <= served })
	t.Logf("in use %d KiB, before %d KiB", inUse()>>10, heap>>10)
	if n := inUse(); n > heap+16<<20 {
		t.Errorf("%d MiB are in use, %d before", n>>20, heap>>20)
	}
	if i := strings.Index(log.String(), "handler panicked"); i >= 0 {
		t.Errorf("a %.2000s", log.String()[i:])
	}
}

// inUse is the memory in use that is no garbage.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// serving counts the connections and calls that are served in the process.
func serving() (n int) {
	b := make([]byte, 8<<20)
	b = b[:runtime.Stack(b, true)]
	for _, what := range []string{"rpc.(*serverConn).loop(", "rpc.(*Call).run("} {
		n += bytes.Count(b, []byte(what))
	}
	return n
}

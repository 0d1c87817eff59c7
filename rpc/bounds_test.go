package rpc

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/steledb/stele/internal/wire"
)

// TestConfigBounds: each limit of a configuration is accepted at its bounds and rejected beyond
// them.
func TestConfigBounds(t *testing.T) {
	server := func(change func(c *ServerConfig)) error {
		c := ServerConfig{}.withDefaults()
		change(&c)
		return c.Validate()
	}
	conn := func(change func(c *ConnConfig)) error {
		c := ConnConfig{}.withDefaults()
		change(&c)
		return c.Validate()
	}
	for name, c := range map[string]struct {
		err  error
		good bool
	}{
		"server":                 {server(func(*ServerConfig) {}), true},
		"server 64 KiB":          {server(func(c *ServerConfig) { c.MessageBytesMax = 64 << 10 }), true},
		"server 64 KiB less 1":   {server(func(c *ServerConfig) { c.MessageBytesMax = 64<<10 - 1 }), false},
		"server 1 GiB":           {server(func(c *ServerConfig) { c.MessageBytesMax, c.MemoryBytesMax = 1<<30, 2<<30 }), true},
		"server 1 GiB and 1":     {server(func(c *ServerConfig) { c.MessageBytesMax, c.MemoryBytesMax = 1<<30+1, 2<<30 }), false},
		"memory as a message":    {server(func(c *ServerConfig) { c.MemoryBytesMax, c.ReservedMemory = int64(c.MessageBytesMax), 0 }), true},
		"memory below a message": {server(func(c *ServerConfig) { c.MemoryBytesMax, c.ReservedMemory = int64(c.MessageBytesMax)-1, 0 }), false},
		"limits of 1": {server(func(c *ServerConfig) {
			c.InFlightMax, c.UnsentBytesMax, c.ConnsMax, c.ReservedConns, c.Workers, c.WorkQueue, c.SpawnedMax, c.WaitingMax = 1, 1, 1, 0, 1, 1, 1, 1
		}), true},
		"in flight 0":            {server(func(c *ServerConfig) { c.InFlightMax = 0 }), false},
		"unsent 0":               {server(func(c *ServerConfig) { c.UnsentBytesMax = 0 }), false},
		"conns 0":                {server(func(c *ServerConfig) { c.ConnsMax = 0 }), false},
		"workers 0":              {server(func(c *ServerConfig) { c.Workers = 0 }), false},
		"work queue 0":           {server(func(c *ServerConfig) { c.WorkQueue = 0 }), false},
		"spawned 0":              {server(func(c *ServerConfig) { c.SpawnedMax = 0 }), false},
		"waiting 0":              {server(func(c *ServerConfig) { c.WaitingMax = 0 }), false},
		"all conns but 1 kept":   {server(func(c *ServerConfig) { c.ReservedConns = c.ConnsMax - 1 }), true},
		"all conns reserved":     {server(func(c *ServerConfig) { c.ReservedConns = c.ConnsMax }), false},
		"reserved conns below 0": {server(func(c *ServerConfig) { c.ReservedConns = -1 }), false},
		"all memory but 1 kept":  {server(func(c *ServerConfig) { c.ReservedMemory = c.MemoryBytesMax - 1 }), true},
		"all memory reserved":    {server(func(c *ServerConfig) { c.ReservedMemory = c.MemoryBytesMax }), false},
		"memory kept below 0":    {server(func(c *ServerConfig) { c.ReservedMemory = -1 }), false},
		"durations of 0": {server(func(c *ServerConfig) {
			c.AdmitWait, c.RetryAfter, c.MessageTimeout, c.FirstByteTimeout, c.WriteTimeout, c.PressureTimeout, c.AlivePeriod = 0, 0, 0, 0, 0, 0, 0
		}), true},
		"admit wait -1":             {server(func(c *ServerConfig) { c.AdmitWait = -1 }), false},
		"retry after -1":            {server(func(c *ServerConfig) { c.RetryAfter = -1 }), false},
		"message timeout -1":        {server(func(c *ServerConfig) { c.MessageTimeout = -1 }), false},
		"first byte timeout -1":     {server(func(c *ServerConfig) { c.FirstByteTimeout = -1 }), false},
		"write timeout -1":          {server(func(c *ServerConfig) { c.WriteTimeout = -1 }), false},
		"crowded timeout -1":        {server(func(c *ServerConfig) { c.PressureTimeout = -1 }), false},
		"alive period -1":           {server(func(c *ServerConfig) { c.AlivePeriod = -1 }), false},
		"client":                    {conn(func(*ConnConfig) {}), true},
		"client 64 KiB":             {conn(func(c *ConnConfig) { c.MessageBytesMax = 64 << 10 }), true},
		"client 64 KiB less 1":      {conn(func(c *ConnConfig) { c.MessageBytesMax = 64<<10 - 1 }), false},
		"client 1 GiB":              {conn(func(c *ConnConfig) { c.MessageBytesMax = 1 << 30 }), true},
		"client 1 GiB and 1":        {conn(func(c *ConnConfig) { c.MessageBytesMax = 1<<30 + 1 }), false},
		"client limits of 1":        {conn(func(c *ConnConfig) { c.InFlightMax, c.UnsentBytesMax = 1, 1 }), true},
		"client in flight 0":        {conn(func(c *ConnConfig) { c.InFlightMax = 0 }), false},
		"client unsent 0":           {conn(func(c *ConnConfig) { c.UnsentBytesMax = 0 }), false},
		"client durations of 0":     {conn(func(c *ConnConfig) { c.MessageTimeout, c.WriteTimeout, c.SilenceMax = 0, 0, 0 }), true},
		"client message timeout -1": {conn(func(c *ConnConfig) { c.MessageTimeout = -1 }), false},
		"client write timeout -1":   {conn(func(c *ConnConfig) { c.WriteTimeout = -1 }), false},
		"client silence -1":         {conn(func(c *ConnConfig) { c.SilenceMax = -1 }), false},
	} {
		if (c.err == nil) != c.good {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

// TestMethodNames: a method's name has up to 128 bytes and is registered once.
func TestMethodNames(t *testing.T) {
	s, err := NewServer(ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	panics := func(name string) (did bool) {
		defer func() { did = recover() != nil }()
		s.Handle(name, Inline, func(*Call) {})
		return false
	}
	for _, c := range []struct {
		name string
		want bool
	}{
		{"m", false}, {"m", true}, {"", true}, {strings.Repeat("m", 128), false}, {strings.Repeat("n", 129), true},
	} {
		if got := panics(c.name); got != c.want {
			t.Errorf("a name of %d bytes panics: %v", len(c.name), got)
		}
	}
}

// TestErrorDetailBound: 32 details of an error are read; further ones are skipped.
func TestErrorDetailBound(t *testing.T) {
	for _, n := range []int{1, 31, 32, 33, 100} {
		var enc wire.Encoder
		enc.Map(n + 1)
		for i := range n {
			enc.Str(fmt.Sprintf("k%d", i))
			enc.Int(int64(i))
		}
		enc.Str("message")
		enc.Str("m")
		d := wire.NewDecoder(enc.Bytes())
		e := DecodeError(&d)
		if d.Err() != nil || d.More() || len(e.Details) != min(n, 32) || e.Message != "m" {
			t.Errorf("of %d details %d are read, and the message %q: %v", n, len(e.Details), e.Message, d.Err())
		}
	}
}

// TestRecycledBuffers: a call retains a buffer of up to 16 KiB.
func TestRecycledBuffers(t *testing.T) {
	for n, want := range map[int]bool{16 << 10: true, 16<<10 + 1: false} {
		c := &Call{buf: make([]byte, 0, n)}
		buf := &c.buf
		c.recycle()
		if kept := cap(*buf) == n; kept != want {
			t.Errorf("a buffer of %d bytes is kept: %v", n, kept)
		}
	}
}

// TestGateWithoutWait: a taker with a wait of 0 gets nothing from the queue, even if there is
// enough.
func TestGateWithoutWait(t *testing.T) {
	g := newGate(10, 0)
	for range 100 {
		if g.acquire(5, false, 0, nil) {
			t.Fatal("taken without a wait")
		}
	}
	if used := g.used.Load(); used != 0 {
		t.Errorf("%d are taken", used)
	}
}

// TestReadBuffersAreBounded: over all connections, read buffers grow by at most a quarter of the
// memory. A connection whose buffer may not grow still serves requests.
func TestReadBuffersAreBounded(t *testing.T) {
	for _, framed := range []bool{true, false} {
		s := newTestServer(t, ServerConfig{MessageBytesMax: 256 << 10, MemoryBytesMax: 1 << 20})
		const grown = readBytesMax - readBytesMin
		for i := range 4 {
			c := s.raw(t)
			in := plain(0, 1, "echo", []any{make([]byte, 100<<10)})
			want := len(plain(1, 1, nil, []any{make([]byte, 100<<10)}))
			if framed {
				in, want = append(opening(), frame(in)...), preambleBytes+headerBytes+want
			}
			go func() { _, _ = c.Write(in) }()
			if _, err := io.ReadFull(c, make([]byte, want)); err != nil {
				t.Fatalf("framed %v: connection %d: %v", framed, i, err)
			}
			if n := s.Stats().BufferBytes; n > 256<<10 || framed && n < int64(min(i+1, 2)*grown) {
				t.Errorf("framed %v: the buffers of %d connections have grown by %d bytes", framed, i+1, n)
			}
		}
	}
}

// TestRequestBounds: a method name of 128 bytes and an id of 32 bits are valid; larger ones are
// malformed.
func TestRequestBounds(t *testing.T) {
	for _, c := range []struct {
		name int
		id   uint64
		good bool
	}{
		{128, 1, true}, {129, 1, false}, {0, 1, true}, {1, 1<<32 - 1, true}, {1, 1 << 32, false}, {1, 1 << 63, false},
	} {
		body := plain(0, c.id, strings.Repeat("m", c.name), []any{})
		q, err := parseRequest(body)
		if (err == nil) != c.good || c.good && (uint64(q.id) != c.id || len(q.method) != c.name) {
			t.Errorf("a name of %d bytes and id %d: %v", c.name, c.id, err)
		}
		if id, ok := peekID(body); ok != (c.id < 1<<32) || ok && uint64(id) != c.id {
			t.Errorf("the id %d is seen as %d, %v", c.id, id, ok)
		}
	}
	if _, ok := peekID(plain(1, 1, nil, nil)); ok {
		t.Error("a response is accepted as a request")
	}
}

// TestAnswersOfWrongForm: a client closes a connection on which it receives anything but a response
// of four elements or a notification of three.
func TestAnswersOfWrongForm(t *testing.T) {
	for name, body := range map[string][]byte{
		"a notification of four": plain(2, 1, "x", []any{}), "an answer of three": plain(1, 1, nil), "a request": plain(0, 1, "x", []any{}),
		"an answer of five": plain(1, 1, nil, nil, nil), "an id of 33 bits": plain(1, uint64(1)<<32, nil, nil),
	} {
		c, err := Dial(bg, fakeServer(t, append(opening(), frame(body)...)), ConnConfig{})
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, name, func() bool { return c.Err() != nil })
		if !errors.Is(c.Err(), errEnvelope) {
			t.Errorf("%s: %v", name, c.Err())
		}
		c.Close()
	}
	c, err := Dial(bg, fakeServer(t, append(opening(), frame(plain(2, "other", []any{}))...)), ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	waitFor(t, "the notification", func() bool { return c.bytesIn.Load() > preambleBytes+headerBytes })
	if err := c.Err(); err != nil {
		t.Errorf("unknown notification: %v", err)
	}
}

// TestLargestRequest: a client sends a request of the size limit, but not one that is a byte
// larger.
func TestLargestRequest(t *testing.T) {
	c := &Conn{cfg: ConnConfig{MessageBytesMax: 64 << 10}}
	for n, good := range map[int]bool{64<<10 - 13: true, 64<<10 - 12: false} { // 13: the envelope and the length
		enc := wire.GetEncoder()
		beginRequest(enc, 1, "m")
		err := c.seal(bg, enc, func(e *wire.Encoder) {
			e.Array(1)
			e.Bin(make([]byte, n))
		})
		if errors.Is(err, ErrRequestTooLarge) == good || good && enc.Len() != headerBytes+64<<10 {
			t.Errorf("%d bytes of params: %d bytes of request, %v", n, enc.Len()-headerBytes, err)
		}
	}
}

// TestPooledAnswers: a client retains the buffer of a response of up to 64 KiB.
func TestPooledAnswers(t *testing.T) {
	for n, want := range map[int]bool{64 << 10: true, 64<<10 + 1: false} {
		p := &pending{body: make([]byte, 0, n)}
		body := &p.body
		(&Conn{pendings: new(sync.Pool)}).release(p)
		if kept := cap(*body) == n; kept != want {
			t.Errorf("a buffer of %d bytes is kept: %v", n, kept)
		}
	}
}

// TestMalformedRequestIsAnswered: the response arrives even though the client sent more, because
// the server keeps reading for a while.
func TestMalformedRequestIsAnswered(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	bad := append(plain(0, 7, 7, []any{}), make([]byte, 100<<10)...)
	rs := responses(t, exchange(t, s, bad), false)
	if len(rs) != 1 || rs[0].id != 7 {
		t.Errorf("the answers are %+v", rs)
	}
}

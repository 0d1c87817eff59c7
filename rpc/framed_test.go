package rpc

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/wire/wiretest"
)

// header builds a frame with the given header fields and a correct checksum.
func header(length, timeout, flags uint32, msg []byte) []byte {
	b := make([]byte, headerBytes, headerBytes+len(msg))
	binary.LittleEndian.PutUint32(b, length)
	binary.LittleEndian.PutUint32(b[4:], timeout)
	binary.LittleEndian.PutUint32(b[8:], flags)
	binary.LittleEndian.PutUint32(b[12:], crc.Sum(b[:12], msg))
	return append(b, msg...)
}

// TestFramedBytes sends raw bytes after the preamble to a live server.
func TestFramedBytes(t *testing.T) {
	s := newTestServer(t, ServerConfig{MessageBytesMax: 64 << 10, MemoryBytesMax: 1 << 20})
	echo := plain(0, 1, "echo", []any{"x"})
	answer := []string{"94 01 01 c0 91 a178"}
	corrupt := func(i int) []byte {
		b := frame(echo)
		b[i] ^= 1
		return b
	}
	for _, c := range []struct {
		name      string
		in        []byte
		want      []string
		malformed uint64
		corrupt   uint64
	}{
		{"request", frame(echo), answer, 0, 0},
		{"two", append(frame(echo), frame(echo)...), append(answer, answer...), 0, 0},
		{"timeout far away", header(uint32(len(echo)), 1<<31, 0, echo), answer, 0, 0},
		{"flag that may be ignored", header(uint32(len(echo)), 0, 0x8001, echo), answer, 0, 0},
		{"unknown notification", append(frame(plain(2, "nop", []any{})), frame(echo)...), answer, 0, 0},
		{"unknown method", append(frame(plain(0, 7, "nop", []any{})), frame(echo)...), append([]string{"7:unknown_method"}, answer...), 0, 0},
		{"handler panics", append(frame(plain(0, 7, "panic", []any{})), frame(echo)...), append([]string{"7:internal"}, answer...), 0, 0},

		{"flag that must be known", header(uint32(len(echo)), 0, 1<<16, echo), nil, 1, 0},
		{"empty message", header(0, 0, 0, nil), nil, 1, 0},
		{"length over the limit", header(64<<10+1, 0, 0, echo), nil, 1, 0},
		{"length of 4 GiB", header(1<<32-1, 0, 0, echo), nil, 1, 0},
		{"bytes after the message", frame(append(bytes.Clone(echo), 0xc0)), []string{"1:bad_request"}, 1, 0},
		{"message truncated", frame(echo[:len(echo)-1]), []string{"1:bad_request"}, 1, 0},
		{"lying array", frame(wiretest.Unhex(t, "94 00 05 a4 6563686f ddffffffff")), []string{"5:too_large"}, 1, 0},
		{"params no array", frame(plain(0, 3, "echo", "x")), []string{"3:bad_request"}, 1, 0},
		{"not a request", frame(plain(1, 3, nil, nil)), nil, 1, 0},
		{"good, then malformed", append(frame(echo), frame([]byte{0xc1})...), answer, 1, 0},

		{"checksum wrong", corrupt(12), nil, 0, 1},
		{"timeout corrupt", corrupt(4), nil, 0, 1},
		{"flags corrupt", corrupt(8), nil, 0, 1},
		{"message corrupt", corrupt(headerBytes + 3), nil, 0, 1},
		{"length corrupt, shorter", corrupt(0), nil, 0, 1},
		{"cut short", frame(echo)[:20], nil, 0, 0},
		{"nothing", nil, nil, 0, 0},
	} {
		before := s.Stats()
		got := exchange(t, s, append(opening(), c.in...))
		all := responses(t, got, true)
		if len(all) != len(c.want) {
			t.Errorf("%s: %d answers, want %d: % x", c.name, len(all), len(c.want), got)
			continue
		}
		for i, w := range c.want {
			checkAnswer(t, c.name, all[i], w)
		}
		waitFor(t, "the connection to end", func() bool { return s.Stats().Conns == 0 })
		after := s.Stats()
		if m, k := after.Malformed-before.Malformed, after.Corrupt-before.Corrupt; m != c.malformed || k != c.corrupt {
			t.Errorf("%s: counted %d malformed, %d corrupt", c.name, m, k)
		}
	}
	if st := s.Stats(); st.MemoryBytes != 0 || st.InFlight != 0 {
		t.Errorf("stats: %+v", st)
	}
}

// P2: if any bit of a stream of frames flips, no wrong byte is delivered.
func TestFramedBitFlips(t *testing.T) {
	s := newTestServer(t, ServerConfig{MessageTimeout: 200 * time.Millisecond})
	one := frame(plain(0, 1, "echo", []any{"one"}))
	two := frame(plain(0, 2, "echo", []any{"two"}))
	stream := append(bytes.Clone(one), two...)
	want := map[uint32]string{1: "\x91\xa3one", 2: "\x91\xa3two"}
	for i := range len(stream) * 8 {
		b := bytes.Clone(stream)
		b[i/8] ^= 1 << (i % 8)
		for _, r := range responses(t, exchange(t, s, append(opening(), b...)), true) {
			if r.err != nil || string(r.result) != want[r.id] || r.id == 2 && i >= len(one)*8 || r.id == 1 && i < len(one)*8 {
				t.Fatalf("bit %d: answer %+v", i, r)
			}
		}
	}
}

func TestPreambleRefused(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	for _, in := range []string{"STELE\x00\x00\n", "STELE\x01\x00 ", "SSH-2.0-", "STE"} {
		if got := exchange(t, s, []byte(in)); len(got) != 0 {
			t.Errorf("%q: answered % x", in, got)
		}
	}
	// A later version is answered with version 1.
	if got := exchange(t, s, []byte("STELE\x09\xff\n")); !bytes.Equal(got, opening()) {
		t.Errorf("version 9: answered % x", got)
	}
	if st := s.Stats(); st.Refused != 4 || st.FramedConns != 1 {
		t.Errorf("stats: %+v", st)
	}
}

// Connections with a claimed first byte go to the listener of Claim.
func TestClaim(t *testing.T) {
	s := newBareServer(t, ServerConfig{})
	l := s.Claim('R')
	for _, taken := range []byte{'R', 'S', 0x94, 0xdc} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("claimed %#02x", taken)
				}
			}()
			s.Claim(taken)
		}()
	}
	tcp := listen(t, s)
	if l.Addr().String() != tcp {
		t.Errorf("address %v, want %s", l.Addr(), tcp)
	}
	c := s.raw(t)
	_, _ = c.Write([]byte("Rping"))
	got, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	b := make([]byte, 4)
	if _, err := io.ReadFull(got, b); err != nil || string(b) != "ping" {
		t.Errorf("%q, %v", b, err)
	}
	s.Close()
	if _, err := l.Accept(); err == nil {
		t.Error("accepted after close")
	}
	// The connection belongs to the listener's owner and outlives the server.
	if _, err := got.Write([]byte("pong")); err != nil {
		t.Error(err)
	}
}

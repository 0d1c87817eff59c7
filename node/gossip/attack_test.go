package gossip_test

import (
	"bytes"
	"compress/lzw"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/gossip"
)

// label is the label of the cluster of config, which is no secret.
const label = "\xf4\x02c1"

// crypt returns the header of an encrypted message of n bytes.
func crypt(bytes int) []byte { return binary.BigEndian.AppendUint32([]byte{10}, uint32(bytes)) }

// list returns the header of a list in the clear.
func list(nodes, notes int) []byte {
	var e wire.Encoder
	e.Map(3)
	e.Str("Nodes")
	e.Int(int64(nodes))
	e.Str("UserStateLen")
	e.Int(int64(notes))
	e.Str("Join")
	e.Bool(false)
	return append([]byte{6}, e.Bytes()...)
}

// state is a list's largest state of a node with an id of usual length. The node has left, which is
// ignored where it was never known.
func state(i int) []byte {
	var e wire.Encoder
	e.Map(7)
	e.Str("Name")
	e.Str(fmt.Sprintf("n%016x#%09d", i, i))
	e.Str("Addr")
	e.Bin(make([]byte, 16))
	e.Str("Port")
	e.Uint(7107)
	e.Str("Meta")
	e.Bin(make([]byte, gossip.MetaBytesMax))
	e.Str("Incarnation")
	e.Uint(1 << 31)
	e.Str("State")
	e.Uint(3)
	e.Str("Vsn")
	e.Bin([]byte{1, 5, 2, 0, 0, 0})
	return e.Bytes()
}

// largeBomb is one that memberlist would accept.
var largeBomb = sync.OnceValue(func() []byte { return bomb(39 << 20) })

// bomb is a message that decompresses to n bytes.
func bomb(bytesThen int) []byte {
	var small bytes.Buffer
	w := lzw.NewWriter(&small, lzw.LSB, 8)
	_, _ = w.Write(make([]byte, bytesThen))
	_ = w.Close()
	var e wire.Encoder
	e.Map(2)
	e.Str("Algo")
	e.Uint(0)
	e.Str("Buf")
	e.Bin(small.Bytes())
	return append([]byte{9}, e.Bytes()...)
}

// request asks a node to probe another one that does not exist, and to report a failure.
func request() []byte {
	var e wire.Encoder
	e.Map(4)
	e.Str("SeqNo")
	e.Uint(1)
	e.Str("Target")
	e.Bin([]byte{127, 9, 9, 9})
	e.Str("Port")
	e.Uint(9)
	e.Str("Nack")
	e.Bool(true)
	return append([]byte{1}, e.Bytes()...)
}

// many is a packet of several messages.
func many(messages ...[]byte) []byte {
	b := []byte{7, byte(len(messages))}
	for _, m := range messages {
		b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
	}
	return append(b, bytes.Join(messages, nil)...)
}

func labelled(parts ...[]byte) []byte { return append([]byte(label), bytes.Join(parts, nil)...) }

func garbage(rnd *rand.Rand, n int) []byte {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], rnd.Uint64())
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(seed).Read(b)
	return b
}

// host returns a loopback address that no member has.
func host(i int) net.IP { return net.IPv4(127, 9, byte(i>>8), byte(i)) }

// dialFrom connects from a host. The connection is nil if it was closed at once.
func dialFrom(t testing.TB, from net.IP, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 10 * time.Second}
	conn, err := d.Dial("tcp", to)
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ended waits until the other side closes the connection, and reports whether it did.
func ended(conn net.Conn, in time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(in))
	_, err := io.Copy(io.Discard, conn)
	timeout, ok := err.(net.Error)
	return !ok || !timeout.Timeout()
}

// shower sends packets from a host.
func shower(t testing.TB, from net.IP, to string, packets ...[]byte) {
	t.Helper()
	at, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: from}, at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, p := range packets {
		_, _ = conn.Write(p)
	}
}

// frames are the streams of unknown hosts. They end at once or never.
func frames(rnd *rand.Rand) [][]byte {
	other := []byte("\xf4\x02c2")
	half := garbage(rnd, 64<<10)
	large := bytes.Repeat(half, 60) // nearly 4 MiB
	return [][]byte{
		labelled(crypt(20<<20), large), labelled(crypt(gossip.StreamBytesMax), large[:gossip.StreamBytesMax-1000]), labelled([]byte{6}, large),
		{}, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), garbage(rnd, 1+rnd.IntN(3000)), other, append(other, crypt(20<<20)...),
		{0xf4}, {0xf4, 0}, {0xf4, 255, 'c'}, []byte(label), labelled(garbage(rnd, 1+rnd.IntN(3000))), labelled([]byte{byte(rnd.Uint32())}, garbage(rnd, 100)),
		labelled(crypt(20 << 20)), labelled(crypt(1<<32 - 1)), labelled(crypt(0)), labelled(crypt(1)), labelled(crypt(100), garbage(rnd, 100)),
		labelled(crypt(64<<10), half), labelled(crypt(64<<10), half[:50<<10]), labelled([]byte{10, 0, 0}),
		labelled(list(1<<20, 0)), labelled(list(1, 20<<20)), labelled(list(-1, -1)), labelled(list(2, 0), state(1), state(2)[:100]),
		labelled([]byte{6}, bytes.Repeat([]byte{0x91}, 100<<10)), labelled([]byte{6, 0x83}, garbage(rnd, 1000)),
		labelled([]byte{8}, []byte("\x81\xaaUserMsgLen\xce\x01\x00\x00\x00")), labelled([]byte{9}, garbage(rnd, 1000)), labelled(largeBomb()),
		labelled([]byte{0}, garbage(rnd, 300)), labelled([]byte{0}, []byte("\x81\xa4Node\xdb\x7f\xff\xff\xff"), []byte(strings.Repeat("x", 300<<10))),
	}
}

// packets are the packets of unknown hosts.
func packets(rnd *rand.Rand) [][]byte {
	one := largeBomb()
	return [][]byte{
		{}, {0xf4}, {0xf4, 255}, garbage(rnd, 1+rnd.IntN(1400)), garbage(rnd, 60000), []byte("\xf4\x02c2"), labelled(), labelled(garbage(rnd, 1+rnd.IntN(1400))),
		labelled([]byte{1, byte(rnd.Uint32())}, garbage(rnd, 12+rnd.IntN(1000))), labelled(one), labelled([]byte{12, 0, 0, 0, 0}, one), labelled(many(one)),
		labelled(many(garbage(rnd, 10), garbage(rnd, 100))), labelled([]byte{7, 255}), labelled([]byte{byte(rnd.IntN(14))}, garbage(rnd, 500)),
		append([]byte{0xf4, 20}, garbage(rnd, 20)...), // a label of any cluster
		labelled([]byte{0}, []byte("\x81\xa4Node\xdb\x7f\xff\xff\xff")), labelled([]byte{4}, bytes.Repeat([]byte{0x91}, 1400)),
	}
}

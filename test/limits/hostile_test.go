package limits

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/security/pki"
)

// idleConns and unreadPageConns are the numbers of connections per client of idle and unreadPages.
const idleConns, unreadPageConns = 64, 64

// unfinished sends the first 2 MiB of a message of 24 MiB, nearly the limit, and stops.
func (s *site) unfinished(ctx context.Context, i int, done func(int)) error {
	conn, err := s.dial(ctx, i)
	if err != nil {
		return err
	}
	defer conn.Close()
	sent, err := conn.Write(append([]byte{0x94, 0x00, 0x01, 0xc6, 0x01, 0x80, 0x00, 0x00}, make([]byte, 2<<20)...))
	pause(ctx, 300*time.Millisecond)
	if err == nil && sent > 2<<20 { // else the node has closed it
		done(1)
	}
	return nil
}

// oversized sends lengths above the limit of any message; the node closes the connection.
func (s *site) oversized(ctx context.Context, i int, done func(int)) error {
	conn, err := s.dial(ctx, i)
	if err != nil {
		return err
	}
	defer conn.Close()
	long := [][]byte{{0xdd, 255, 255, 255, 255}, {0xdf, 255, 255, 255, 255}, {0xc6, 255, 255, 255, 255}, {0xdb, 127, 255, 255, 255}}
	if _, err := conn.Write(append([]byte{0x94, 0, 1, 0xa4, 'r', 'e', 'a', 'd'}, long[i%len(long)]...)); err != nil {
		return nil
	}
	if _, err = io.Copy(io.Discard, conn); err == nil {
		done(1)
	}
	return nil
}

// unreadRows requests huge rows many times and reads no answer.
func (s *site) unreadRows(ctx context.Context, i int, done func(int)) error {
	conn, err := s.dial(ctx, i)
	if err != nil {
		return err
	}
	defer conn.Close()
	e := wire.GetEncoder()
	defer e.Release()
	for k := range 50 {
		e.Array(4)
		e.Int(0)
		e.Int(int64(k))
		e.Str("read")
		e.Array(2)
		e.Str("t")
		e.Bin([]byte(row("huge", (i+k)%hugeRows)))
	}
	if _, err := conn.Write(e.Bytes()); err != nil {
		return nil
	}
	pause(ctx, 500*time.Millisecond)
	if _, err := io.ReadFull(conn, make([]byte, 64<<10)); err == nil { // an answer has begun
		done(1)
	}
	return nil
}

// idle opens connections, makes one call on each, and stops.
func (s *site) idle(ctx context.Context, i int, done func(int)) error {
	ping := []byte{0x94, 0, 1, 0xa4, 'p', 'i', 'n', 'g', 0x90}
	for range idleConns {
		conn, err := s.dial(ctx, i)
		if err != nil { // too many connections
			break
		}
		defer conn.Close()
		_, err = conn.Write(ping)
		if err == nil {
			_, err = io.ReadFull(conn, make([]byte, 1))
		}
		if err == nil {
			done(1)
		}
	}
	pause(ctx, time.Second)
	return nil
}

// handshakes begins a handshake and does not finish it.
func (s *site) handshakes(ctx context.Context, i int, done func(int)) error {
	conn, err := dialTCP(ctx, s.nodes[i%len(s.nodes)].addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	hello := append([]byte{0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff, 3, 3}, make([]byte, 60<<10)...) // 64 KiB, in records of 16 KiB
	for at := 0x4005; at+5 < len(hello); at += 0x4005 {
		copy(hello[at:], []byte{0x16, 3, 1, 0x40, 0})
	}
	if _, err := conn.Write(hello); err != nil {
		return nil
	}
	pause(ctx, 300*time.Millisecond)
	done(1)
	return nil
}

// withoutCertificate presents no certificate and begins messages.
func (s *site) withoutCertificate(ctx context.Context, i int, done func(int)) error {
	conn, err := dialTCP(ctx, s.nodes[i%len(s.nodes)].addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	over, err := pki.NewEndpoint(pki.AnonymousCredential(s.cred.Trust()), pki.Options{}).Over(ctx, "", conn)
	if err != nil {
		return nil
	}
	defer over.Close()
	if _, err := over.Write(append([]byte{0x94, 0x00, 0x01, 0xc6, 0x01, 0x80, 0x00, 0x00}, make([]byte, 256<<10)...)); err == nil {
		done(1)
	}
	pause(ctx, 300*time.Millisecond)
	return nil
}

// gossipFlood floods the gossip port with packets without a valid key, but with valid first bytes.
func (s *site) gossipFlood(ctx context.Context, _ int, done func(int)) error {
	conn, err := dialTCP(ctx, s.gossip)
	if err != nil {
		return err
	}
	defer conn.Close()
	label := s.cred.Peer().Cluster
	b := append([]byte{244, byte(len(label))}, label...)
	b = append(b, 10, 0, 0x12, 0, 0) // encrypted, 1152 KiB
	if n, _ := conn.Write(append(b, make([]byte, 1<<20)...)); n > 0 {
		done(1)
	}
	pause(ctx, 300*time.Millisecond)
	return nil
}

// packets floods the gossip port over UDP.
func (s *site) packets(ctx context.Context, _ int, done func(int)) error {
	conn, err := net.Dial("udp", s.gossip)
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 100 {
		if _, err := conn.Write(make([]byte, 60_000)); err == nil {
			done(1)
		}
	}
	pause(ctx, 5*time.Millisecond)
	return nil
}

// fetchPages requests the metrics.
func (s *site) fetchPages(ctx context.Context, _ int, done func(int)) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := pages.Do(r)
	if err != nil { // too many connections
		pause(ctx, 10*time.Millisecond)
		return nil
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err == nil && n > 1000 {
		done(1)
	}
	return nil
}

// unreadPages requests the metrics many times on many connections and reads nothing.
func (s *site) unreadPages(ctx context.Context, _ int, done func(int)) error {
	for range unreadPageConns {
		conn, err := dialTCP(ctx, s.http)
		if err != nil {
			break
		}
		defer conn.Close()
		if _, err := conn.Write(bytes.Repeat([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), 100)); err == nil {
			done(1)
		}
	}
	pause(ctx, time.Second)
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

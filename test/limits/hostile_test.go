package limits

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// dial connects to the node. The connection ends with ctx.
func (p *process) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return conn, nil
}

// unfinished sends two MiB of a message that says that it has 24 MiB, which is almost what the largest may have, and
// leaves it at that.
func (p *process) unfinished(ctx context.Context, _ int, done func(int)) error {
	conn, err := p.dial(ctx)
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

// lies sends what says that it is longer than any message may be; the node closes the connection.
func (p *process) lies(ctx context.Context, i int, done func(int)) error {
	conn, err := p.dial(ctx)
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

// deaf asks for huge rows, many times, and reads no answer.
func (p *process) deaf(ctx context.Context, i int, done func(int)) error {
	conn, err := p.dial(ctx)
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
	if _, err := io.ReadFull(conn, make([]byte, 64<<10)); err == nil { // some answer is under way
		done(1)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

package blobfs

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/internal/crc"
)

// mutePeer accepts pieces and answers only when the test makes it.
type mutePeer struct {
	api.Peer
	mu      sync.Mutex
	bytes   int64
	answers []func(error)
}

func (p *mutePeer) Piece(_ context.Context, _ api.StreamID, _ int64, b []byte, done func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += int64(len(b))
	p.answers = append(p.answers, done)
}

// TestWindow (I13): a writer has no more unacknowledged bytes than the window, and continues with
// each answer.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 4 * pieceBytes
		s, p := &Store{ctx: t.Context(), cluster: Cluster{WindowBytes: window}.withDefaults()}, &mutePeer{}
		b := &branch{s: s, peer: p, nodes: []string{"n2"}, progress: make(chan struct{}, 1)}
		sent := make(chan error, 1)
		go func() {
			for i := range int64(6) {
				if err := b.send(make([]byte, pieceBytes), i*pieceBytes, nil); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		for answered := range 2 {
			synctest.Wait()
			p.mu.Lock()
			if want := int64(window + answered*pieceBytes); p.bytes != want {
				t.Errorf("after %d answers %d bytes are sent, want %d", answered, p.bytes, want)
			}
			done := p.answers[answered]
			p.mu.Unlock()
			done(nil)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
	for window, ok := range map[int64]bool{0: true, 2 * pieceBytes: true, windowBytes: true, pieceBytes: false, windowBytes + 1: false, -1: false} {
		if err := (Cluster{WindowBytes: window}).Validate(); (err == nil) != ok {
			t.Errorf("a window of %d: %v", window, err)
		}
	}
}

// rereadPeer has the bytes of a stream. A paused one answers nothing.
type rereadPeer struct {
	api.Peer
	paused bool
	bytes  []byte
}

func (p *rereadPeer) Reread(ctx context.Context, _ api.StreamID, b []byte, off int64) error {
	if p.paused {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	copy(b, p.bytes[off:])
	return nil
}

// TestReadBackBesidePausedNode (I14): a paused node does not keep a writer from reading back, from
// the other replica, the bytes for a new one.
func TestReadBackBesidePausedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{ctx: t.Context(), cluster: Cluster{}.withDefaults()}
		data := bytes.Repeat([]byte("stream"), sumBytes/6+1)[:sumBytes]
		x := &replicatedWrite{s: s, length: sumBytes, sums: []uint32{crc.Sum(data)}}
		for _, p := range []*rereadPeer{{paused: true}, {bytes: data}} {
			x.branches = append(x.branches, &branch{s: s, peer: p, nodes: []string{"n"}, progress: make(chan struct{}, 1)})
		}
		got := make([]byte, sumBytes)
		if err := x.readBack(got, 0); err != nil || !bytes.Equal(got, data) {
			t.Errorf("read back beside a paused node: %v", err)
		}
	})
}

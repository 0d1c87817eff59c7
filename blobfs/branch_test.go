package blobfs

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/blobfs/api"
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

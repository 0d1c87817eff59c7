package node_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/raftmeta/storage"
)

// fullLog is a store of Raft's log on a disk that fails soon after the store was opened.
type fullLog struct {
	storage.Backend
	opened time.Time
}

var errNoWrite = errors.New("input/output error")

// Set implements raft.StableStore.
func (f fullLog) Set(key, value []byte) error {
	if time.Since(f.opened) > 100*time.Millisecond {
		return errNoWrite
	}
	return f.Backend.Set(key, value)
}

// TestStartOfFailedNodeEnds starts two of three voters again. One of them, or both, fails in the
// election, while the starts wait for a leader of the lock service. The start must return the failure,
// so that the process ends and is started again. Otherwise the cluster waits for ever, although its
// disks may be well by then.
func TestStartOfFailedNodeEnds(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 3)
	for i := range f.cfgs {
		f.cfgs[i].Join, f.cfgs[i].Expect = f.addrs, 3
	}
	f.startAll()
	f.await(0, "three voters", func(s *client.RaftStatus) bool { return len(s.Servers) == 3 && votersAlive(3)(s) })
	for i := range f.nodes {
		f.stop(i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	ends := make(chan error, 2)
	for i := range f.nodes[:2] {
		f.cfgs[i].OpenRaftLog = func(file string) (storage.Backend, error) {
			b, err := storage.OpenBolt(file)
			return fullLog{b, time.Now()}, err
		}
		go func() { _, err := f.open(ctx, i); ends <- err }()
	}
	first := <-ends
	if first == nil || ctx.Err() != nil || !strings.Contains(first.Error(), errNoWrite.Error()) {
		t.Errorf("the first start ended with %v (%v), want the error of the disk", first, ctx.Err())
	}
	cancel() // the other one waits for a leader, which cannot be
	<-ends
}

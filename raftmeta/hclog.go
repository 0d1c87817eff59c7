package raftmeta

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// logBridge passes what raft logs to slog. Raft's own information is for those
// who debug raft; what an operator should know of a group (it is ready, it has
// lost its leader) the Group logs itself.
type logBridge struct {
	to *slog.Logger
	// raft is what logs, once it runs.
	raft atomic.Pointer[raft.Raft]
	// told is when each warning was last passed on.
	told struct {
		sync.Mutex
		at map[string]time.Time
	}
}

const (
	// repeatPause is how long a warning that comes again is only debugging output:
	// raft tells of each message to a server that is not there.
	repeatPause = 30 * time.Second
	// toldMax bounds the warnings remembered.
	toldMax = 1000
)

// repeated tells whether the same was said of the same server a short while ago.
func (b *logBridge) repeated(msg string, args []any) bool {
	key := msg
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "peer", "target", "server-id":
			key += fmt.Sprint(args[i+1])
		}
	}
	b.told.Lock()
	defer b.told.Unlock()
	now := time.Now()
	if at, ok := b.told.at[key]; ok && now.Sub(at) < repeatPause {
		return true
	}
	if b.told.at == nil || len(b.told.at) >= toldMax {
		b.told.at = map[string]time.Time{}
	}
	b.told.at[key] = now
	return false
}

// alone tells whether the group has one voter. Raft then warns of what is
// neither rare nor wrong: that a server which starts hears from no leader, and
// calls an election.
func (b *logBridge) alone() bool {
	r := b.raft.Load()
	return r != nil && voters(r.GetConfiguration().Configuration().Servers) == 1
}

// newLogger returns a logger for raft that writes to b.
func (b *logBridge) newLogger() hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{
		Name:   "raft",
		Level:  hclog.Off, // of the logger's own output; the sink sees all
		Output: io.Discard,
	})
	l.RegisterSink(b)
	return l
}

// Accept implements hclog.SinkAdapter.
func (b *logBridge) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	// What raft calls an error is another server that does not answer. When this one
	// fails the log store tells.
	if (level >= hclog.Error || level == hclog.Warn && !b.alone()) && !b.repeated(msg, args) {
		to = slog.LevelWarn
	}
	ctx := context.Background()
	if !b.to.Enabled(ctx, to) {
		return
	}
	// hclog renders such pairs of format and arguments itself.
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	b.to.Log(ctx, to, "raft: "+msg, args...)
}

package raftmeta

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

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
	switch {
	case level >= hclog.Error:
		to = slog.LevelError
	case level == hclog.Warn && !b.alone():
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

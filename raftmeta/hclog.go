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

// logBridge forwards raft's log to slog. Raft's informational messages are for debugging raft. What
// the operator needs to know about a group, such as that it is ready, the Group logs itself.
type logBridge struct {
	to *slog.Logger
	// raft is the instance that logs, once it runs.
	raft atomic.Pointer[raft.Raft]
	// logged has the time at which each warning was last logged.
	logged struct {
		sync.Mutex
		at map[string]time.Time
	}
}

const (
	// repeatPause is the time for which a repeated warning is logged at debug level only: raft logs
	// every message to an unreachable server.
	repeatPause = 30 * time.Second
	// loggedMax bounds the remembered warnings.
	loggedMax = 1000
)

// repeated reports whether the same warning about the same server was logged within repeatPause.
func (b *logBridge) repeated(msg string, args []any) bool {
	key := msg
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "peer", "target", "server-id":
			key += fmt.Sprint(args[i+1])
		}
	}
	b.logged.Lock()
	defer b.logged.Unlock()
	now := time.Now()
	if at, ok := b.logged.at[key]; ok && now.Sub(at) < repeatPause {
		return true
	}
	if b.logged.at == nil || len(b.logged.at) >= loggedMax {
		b.logged.at = map[string]time.Time{}
	}
	b.logged.at[key] = now
	return false
}

// singleVoter reports whether the group has one voter. Raft's warnings are then routine: at each start it
// finds no leader and calls an election.
func (b *logBridge) singleVoter() bool {
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
	// Raft's errors mean that another server does not answer. The log store reports failures of
	// this server.
	if (level >= hclog.Error || level == hclog.Warn && !b.singleVoter()) && !b.repeated(msg, args) {
		to = slog.LevelWarn
	}
	ctx := context.Background()
	if !b.to.Enabled(ctx, to) {
		return
	}
	// hclog expects the sink to render these pairs of format and arguments.
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	b.to.Log(ctx, to, "raft: "+msg, args...)
}

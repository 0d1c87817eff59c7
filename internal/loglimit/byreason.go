package loglimit

import (
	"log/slog"
	"sync"
	"time"
)

const (
	reasonPeriod = time.Minute
	reasonsMax   = 1000
)

// ByReason logs each text of an error at most once a minute, and all of them at most as often as a Warner does. The zero value is ready
// for use. It is safe for concurrent use.
type ByReason struct {
	warner Warner
	mu     sync.Mutex
	last   map[string]time.Time // by the error's text
}

// WarnError logs msg with err as its "err", unless that text was logged during the last minute.
func (r *ByReason) WarnError(log *slog.Logger, msg string, err error, args ...any) {
	if r.due(err.Error()) {
		r.warner.Warn(log, msg, append(args, "err", err)...)
	}
}

func (r *ByReason) due(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.last[text]) < reasonPeriod {
		return false
	}
	if r.last == nil || len(r.last) > reasonsMax {
		r.last = map[string]time.Time{}
	}
	r.last[text] = time.Now()
	return true
}

package server

import (
	"context"
	"sync"
)

// Admit implements bigtable.SessionMemory. Sessions are charged as calls. They may take a quarter of the
// limit, so that idle ones leave memory for other calls.
func (m *memory) Admit() (release func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if int64(m.mu.sessions+1)*callBytes > max(m.limit/4, callBytes) {
		return nil, false
	}
	m.mu.sessions++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.mu.sessions--
	}), true
}

// Settle implements bigtable.SessionMemory.
func (m *memory) Settle(ctx context.Context) {
	k, _ := ctx.Value(callKey{}).(*call)
	if k == nil || k.bytes == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(k.bytes, k.conn.charged)
	k.bytes = 0
	k.conn.charged -= n
	m.releaseLocked(k.conn.owner, n)
}

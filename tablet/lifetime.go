package tablet

import (
	"context"
	"sync"
	"time"
)

// lifetime is the time for which a server's goroutines and operations run.
type lifetime struct {
	ctx       context.Context // of compactions; ends with the server
	cancel    context.CancelFunc
	closing   chan struct{} // closed when the server closes
	closeOnce sync.Once

	background sync.WaitGroup // goroutines that the server waits for when it closes
}

func newLifetime() *lifetime {
	l := &lifetime{closing: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// end notifies all running work that the server is closing.
func (l *lifetime) end() {
	l.closeOnce.Do(func() { close(l.closing) })
	l.cancel()
}

// sleep waits for d or until the server closes.
func (l *lifetime) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.closing:
	case <-timer.C:
	}
}

// metaTimeout bounds a metadata change. 30 s: several elections of the lock service.
const metaTimeout = 30 * time.Second

// metaClosing is how long a metadata change may continue once the server closes. The next server of
// the tablet determines its outcome, as after a crash.
const metaClosing = 2 * time.Second

// metaContext returns a context that bounds a metadata change.
func (l *lifetime) metaContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), metaTimeout)
	stop := context.AfterFunc(l.ctx, func() { time.AfterFunc(metaClosing, cancel) })
	return ctx, func() { stop(); cancel() }
}

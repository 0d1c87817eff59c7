package replog

import "github.com/steledb/stele/blobfs/local"

// watch runs the periodic checks until the writer ends.
func (w *Writer) watch() {
	for {
		changed := w.logs.deps.Peers.Changed()
		fired, stop := w.logs.deps.Clock.Timer(w.logs.cfg.DeadlineMin / 4)
		select {
		case <-fired:
		case <-changed:
		case <-w.ctx.Done():
			stop()
			w.event(func() { w.stop(local.ErrClosed) })
			return
		}
		stop()
		w.eventAsync(w.tick) // must not block on a stalled disk
	}
}

// tick runs the periodic checks. Called with mu held.
func (w *Writer) tick() {
	now := w.now()
	if now-w.retried >= w.logs.cfg.Retry {
		w.retried = now
		w.m.Retry()
	}
	w.updateWeak(now)
	w.checker.tick(now)
	w.switcher.widen(now)
	w.switcher.renew(now)
	w.switcher.checkOpening(now)
	w.switcher.checkAppends(now)
}

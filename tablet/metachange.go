package tablet

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/internal/timing"
)

// metaChanges makes changes of METADATA rows whose outcome must be known before the server goes on.
type metaChanges struct {
	cfg  *Config
	life *lifetime
}

// metaTimeout bounds a metadata change. 30 s: several elections of the lock service.
const metaTimeout = 30 * time.Second

// metaClosing is how long a metadata change may continue once the server closes. The next server of
// the tablet determines its outcome, as after a crash.
const metaClosing = 2 * time.Second

// context returns a context that bounds a metadata change.
func (c *metaChanges) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), metaTimeout)
	stop := context.AfterFunc(c.life.ctx, func() { time.AfterFunc(metaClosing, cancel) })
	return ctx, func() { stop(); cancel() }
}

// split creates the row of low, which is split off up. The error means that it did not happen,
// except ErrClosed, after which the outcome is unknown.
func (c *metaChanges) split(low, up *Meta) error {
	return c.settle(func(ctx context.Context, again bool) error {
		err := c.cfg.Metadata.Split(ctx, low, up)
		if !again || !errors.Is(err, ErrMetaChanged) {
			return err
		}
		saved, loadErr := c.cfg.Metadata.Load(ctx, low.Table, low.End)
		if loadErr != nil {
			if errors.Is(loadErr, ErrNoMeta) {
				return err
			}
			return loadErr
		}
		if saved.ID == low.ID { // an earlier attempt succeeded
			return nil
		}
		return err
	})
}

// remove deletes the row of old, a tablet that was merged. The error means that it did not happen,
// except ErrClosed, after which the outcome is unknown.
func (c *metaChanges) remove(old *Meta) error {
	return c.settle(func(ctx context.Context, again bool) error {
		err := c.cfg.Metadata.Remove(ctx, old)
		if !again || !errors.Is(err, ErrMetaChanged) {
			return err
		}
		_, loadErr := c.cfg.Metadata.Load(ctx, old.Table, old.End)
		if errors.Is(loadErr, ErrNoMeta) { // an earlier attempt succeeded
			return nil
		}
		if loadErr != nil {
			return loadErr
		}
		return err
	})
}

// settle repeats try until its outcome is known, since otherwise it would be unknown what to serve.
// The error is one of Metadata's that mean that the change did not happen, or ErrClosed of this
// server or of Metadata.
func (c *metaChanges) settle(try func(ctx context.Context, again bool) error) error {
	pauses := timing.Backoff{Min: settlePauseMin, Max: settlePauseMax}
	for n := 0; ; n++ {
		ctx, cancel := c.context()
		err := try(ctx, n > 0)
		cancel()
		if errors.Is(err, ErrClosed) {
			return ErrClosed
		}
		if err == nil || errors.Is(err, ErrMetaChanged) || errors.Is(err, ErrMetaLost) || errors.Is(err, ErrMetaTooLarge) {
			return err
		}
		pause := pauses.Next()
		c.cfg.Logger.Warn("metadata change outcome unknown", "err", err, "retry_in", pause)
		c.life.sleep(pause)
		select {
		case <-c.life.closing:
			return ErrClosed
		default:
		}
	}
}

// Pauses between attempts of a metadata change with an unknown outcome.
const (
	settlePauseMin = 5 * time.Millisecond
	settlePauseMax = time.Second
)

package pki

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// rotateEvery is how often the rotator looks at the clock: often enough that a
	// clock that was set, or a host that slept, is noticed in good time.
	rotateEvery = time.Hour
	// rotateOwnEvery is how often one does that signs by its own clock.
	rotateOwnEvery = time.Minute
	// clockRest is how long one that signs by its own clock leaves that alone when it was set, or is at odds with
	// the certificate at the start: what was set wrong, such as at the start of a host, is mostly put right soon.
	clockRest = 10 * time.Minute
	// retryMin is the pause after a renewal that failed; it doubles up to rotateEvery.
	retryMin = time.Minute
	// rotateBefore is how much of a certificate's life is left when it is renewed.
	rotateBefore = NodeLife / 3
	// renewTimeout bounds one attempt.
	renewTimeout = time.Minute
	// alarmBefore is the time left at which a renewal that fails is an error and no
	// longer a warning.
	alarmBefore = 5 * 24 * time.Hour
)

// RotatorConfig says how a node's certificate is renewed.
type RotatorConfig struct {
	// Endpoint gets the new credentials. Its own is that of the node.
	Endpoint *Endpoint
	// File is where the credential is kept.
	File string
	// Renew has a certificate made of a request. It returns the authorities, too,
	// since they may be others by now.
	Renew func(ctx context.Context, request []byte) (*x509.Certificate, *Trust, error)
	// OwnClock tells whether Renew goes by this host's clock: the node signs for itself. Nil: it does not.
	OwnClock func() bool
	// Logger gets what was renewed and what failed. Nil discards.
	Logger *slog.Logger
}

// Rotator renews a node's certificate before it expires.
type Rotator struct {
	cfg RotatorConfig
	// mu guards the fields below, and is held while the credential is replaced: Run, Renew and Retrust may be called by
	// different goroutines.
	mu sync.Mutex
	// made is when the credential in use was made or read, on the monotonic clock: a
	// wall clock that was set back must not keep a node from renewing in time.
	made time.Time
	// madeWall is what the wall clock said then.
	madeWall time.Time
	pause    time.Duration
	// ahead is by how much the wall clock has gone faster than the monotonic one since began, at the last look, and
	// jumped when that was last seen to be quite another, on the monotonic clock.
	ahead         time.Duration
	began, jumped time.Time
	beganWall     time.Time
}

// NewRotator returns a rotator that does nothing before Run.
func NewRotator(cfg RotatorConfig) *Rotator {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.OwnClock == nil {
		cfg.OwnClock = func() bool { return false }
	}
	now, wall := time.Now(), cfg.Endpoint.opts.Now()
	r := &Rotator{cfg: cfg, made: now, madeWall: wall, began: now, beganWall: wall}
	if wall.Before(cfg.Endpoint.Credential().Begins()) {
		r.jumped = now
	}
	return r
}

// Run renews the certificate whenever it is time, until ctx ends.
func (r *Rotator) Run(ctx context.Context) {
	for {
		timer := time.NewTimer(r.look(ctx))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// every is how long it is until the next look.
func (r *Rotator) every() time.Duration {
	if r.cfg.OwnClock() {
		return rotateOwnEvery
	}
	return rotateEvery
}

// look renews the certificate if it is time, and returns when to look again.
func (r *Rotator) look(ctx context.Context) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.due() {
		return r.every()
	}
	err := r.renewLocked(ctx)
	if err == nil {
		r.pause = 0
		return r.every()
	}
	if ctx.Err() != nil {
		return rotateEvery
	}
	r.pause = min(max(retryMin, 2*r.pause), rotateEvery)
	ends := r.cfg.Endpoint.Credential().Ends()
	level := slog.LevelWarn
	if ends.Sub(r.cfg.Endpoint.opts.Now()) < alarmBefore {
		level = slog.LevelError
	}
	r.cfg.Logger.Log(ctx, level, "certificate cannot be renewed", "error", err, "expires", ends, "again_in", r.pause)
	return r.pause - rand.N(r.pause/4) // so that nodes that failed together do not ask together
}

// due tells whether the certificate is to be renewed: when two thirds of its life are
// over by the wall clock, or by the monotonic one since this process has it. One who signs by his own clock
// believes in it when it has not jumped lately, and renews what begins later, too: it was made while the clock
// was ahead, and nobody takes it.
func (r *Rotator) due() bool {
	c, now := r.cfg.Endpoint.Credential(), r.cfg.Endpoint.opts.Now()
	r.followClock(now)
	over := c.Ends().Sub(now) <= rotateBefore || time.Since(r.made) >= NodeLife-rotateBefore
	if !r.cfg.OwnClock() {
		return over
	}
	later := now.Before(c.Begins()) && !r.jumped.Before(r.made) // else signing again is of no use
	return (over || later) && (r.jumped.IsZero() || time.Since(r.jumped) >= clockRest)
}

// followClock notes whether the wall clock was set.
func (r *Rotator) followClock(now time.Time) {
	ahead := now.Round(0).Sub(r.beganWall.Round(0)) - time.Since(r.began)
	if (ahead - r.ahead).Abs() > Backdate/2 {
		r.jumped = time.Now()
	}
	r.ahead = ahead
}

// Renew renews the certificate now, with a new key. When it returns nil the new
// credential is in the file, durably, and in use.
func (r *Rotator) Renew(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.renewLocked(ctx)
}

// Retrust has the credential trust other authorities, one of which must have signed its certificate. When it returns nil
// the new credential is in the file, durably, and in use.
func (r *Rotator) Retrust(trust *Trust) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.cfg.Endpoint.Credential()
	c, err := NewCredential(old.key, old.leaf, trust)
	if err != nil {
		return err
	}
	if err := WriteCredential(r.cfg.File, c); err != nil {
		return fmt.Errorf("keep the authorities: %w", err)
	}
	return r.cfg.Endpoint.Swap(c)
}

func (r *Rotator) renewLocked(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	key, err := NewKey()
	if err != nil {
		return err
	}
	request, err := NewRequest(key)
	if err != nil {
		return err
	}
	leaf, trust, err := r.cfg.Renew(ctx, request)
	if err != nil {
		return err
	}
	c, err := NewCredential(key, leaf, trust)
	if err != nil {
		return fmt.Errorf("renewed certificate: %w", err)
	}
	if err := r.check(c); err != nil {
		return err
	}
	if err := WriteCredential(r.cfg.File, c); err != nil {
		return fmt.Errorf("keep the renewed certificate: %w", err)
	}
	if err := r.cfg.Endpoint.Swap(c); err != nil {
		return err
	}
	r.made, r.madeWall = time.Now(), r.cfg.Endpoint.opts.Now()
	r.cfg.Logger.Info("certificate renewed", "expires", c.Ends(), "serial", c.peer.Serial)
	return nil
}

// check refuses a credential that is worse than the one in use.
func (r *Rotator) check(c *Credential) error {
	old, now := r.cfg.Endpoint.Credential(), r.cfg.Endpoint.opts.Now()
	if c.peer.Kind != old.peer.Kind || c.peer.Name != old.peer.Name || c.trust.cluster != old.trust.cluster {
		return fmt.Errorf("renewed certificate is that of %s of cluster %s", c.peer, c.trust.cluster)
	}
	for _, as := range []side{asServer, asClient} {
		_, err := c.trust.verify([]*x509.Certificate{c.leaf}, as, now)
		_, oldErr := old.trust.verify([]*x509.Certificate{old.leaf}, as, now)
		clock := errors.Is(err, ErrExpired) || errors.Is(err, ErrNotYetValid)
		if err != nil && !(clock && (oldErr != nil || r.setBack())) {
			return fmt.Errorf("renewed certificate is no good here: %w", err)
		}
	}
	return nil
}

// setBack tells whether the wall clock was set back since the credential in use was
// made. Then it is this clock that is wrong about a certificate, and not the signer's.
func (r *Rotator) setBack() bool {
	wall := r.cfg.Endpoint.opts.Now().Round(0).Sub(r.madeWall.Round(0))
	return time.Since(r.made)-wall > Backdate/2
}

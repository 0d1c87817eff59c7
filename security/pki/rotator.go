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

	"github.com/steledb/stele/internal/vfs"
)

const (
	// rotateEvery is the interval of checks: short enough to notice in time that the clock was set
	// or the host was suspended.
	rotateEvery = time.Hour
	// rotateOwnEvery is the interval of checks on a node that signs by its own clock.
	rotateOwnEvery = time.Minute
	// clockSettleTime is how long a node that signs by its own clock waits after the clock was set,
	// or disagreed with the certificate at the start. A clock set wrong, for example while a host
	// boots, is usually corrected soon.
	clockSettleTime = 10 * time.Minute
	// retryMin is the first pause after a failed renewal. The pause doubles up to rotateEvery.
	retryMin = time.Minute
	// rotateBefore is the validity left when a certificate is renewed.
	rotateBefore = NodeLife / 3
	// renewTimeout bounds one renewal attempt.
	renewTimeout = time.Minute
	// alarmBefore is the validity left below which a failed renewal is logged as an error instead
	// of a warning.
	alarmBefore = 5 * 24 * time.Hour
)

// RotatorConfig configures a Rotator.
type RotatorConfig struct {
	// Endpoint gets the new credentials. Its current one is that of the node.
	Endpoint *Endpoint
	// File is the path of the credential in Files. Zero Files are those of the operating system.
	File  string
	Files Files
	// Renew gets a request signed. It also returns the authorities, which may have changed.
	Renew func(ctx context.Context, request []byte) (*x509.Certificate, *Trust, error)
	// OwnClock reports whether Renew uses this host's clock, because the node signs for itself. Nil
	// means false.
	OwnClock func() bool
	// Logger gets renewals and failures. Nil discards.
	Logger *slog.Logger
}

// Rotator renews a node's certificate before it expires.
type Rotator struct {
	cfg RotatorConfig
	// mu guards the fields below and is held while the credential is replaced, because Run, Renew
	// and Retrust may be called concurrently.
	mu sync.Mutex
	// made is when the current credential was created or read, by the monotonic clock: a wall clock
	// set back must not delay a renewal.
	made time.Time
	// madeWall is the same time by the wall clock.
	madeWall time.Time
	pause    time.Duration
	// ahead is how far the wall clock has run ahead of the monotonic clock since began, at the last
	// check. jumped is when it last changed substantially, by the monotonic clock.
	ahead         time.Duration
	began, jumped time.Time
	beganWall     time.Time
}

// NewRotator returns a rotator. It does nothing until Run.
func NewRotator(cfg RotatorConfig) *Rotator {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.OwnClock == nil {
		cfg.OwnClock = func() bool { return false }
	}
	if cfg.Files == (Files{}) {
		cfg.Files = On(vfs.OS())
	}
	now, wall := time.Now(), cfg.Endpoint.opts.Now()
	r := &Rotator{cfg: cfg, made: now, madeWall: wall, began: now, beganWall: wall}
	if wall.Before(cfg.Endpoint.Credential().Begins()) {
		r.jumped = now
	}
	return r
}

// Run renews the certificate when it is due, until ctx ends.
func (r *Rotator) Run(ctx context.Context) {
	for {
		timer := time.NewTimer(r.tick(ctx))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// interval returns the interval of checks.
func (r *Rotator) interval() time.Duration {
	if r.cfg.OwnClock() {
		return rotateOwnEvery
	}
	return rotateEvery
}

// tick renews the certificate if it is due, and returns the time until the next check.
func (r *Rotator) tick(ctx context.Context) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.due() {
		return r.interval()
	}
	err := r.renewLocked(ctx)
	if err == nil {
		r.pause = 0
		return r.interval()
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
	r.cfg.Logger.Log(ctx, level, "certificate renewal failed", "err", err, "expires", ends, "again_in", r.pause)
	return r.pause - rand.N(r.pause/4) // so that nodes that failed together do not retry together
}

// due reports whether to renew: after two thirds of the validity by the wall clock, or of NodeLife
// by the monotonic clock since the credential was created or read. A node that signs by its own
// clock waits until the clock has been stable for clockSettleTime. It also renews a certificate
// that is not valid yet: it was created while the clock was ahead, and peers reject it.
func (r *Rotator) due() bool {
	c, now := r.cfg.Endpoint.Credential(), r.cfg.Endpoint.opts.Now()
	r.followClock(now)
	over := c.Ends().Sub(now) <= rotateBefore || time.Since(r.made) >= NodeLife-rotateBefore
	if !r.cfg.OwnClock() {
		return over
	}
	later := now.Before(c.Begins()) && !r.jumped.Before(r.made) // if the clock did not change since, signing again does not help
	return (over || later) && (r.jumped.IsZero() || time.Since(r.jumped) >= clockSettleTime)
}

// followClock records whether the wall clock was set.
func (r *Rotator) followClock(now time.Time) {
	ahead := now.Round(0).Sub(r.beganWall.Round(0)) - time.Since(r.began)
	if (ahead - r.ahead).Abs() > Backdate/2 {
		r.jumped = time.Now()
	}
	r.ahead = ahead
}

// Renew renews the certificate now, with a new key. When it returns nil, the new credential is
// durable and in use.
func (r *Rotator) Renew(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.renewLocked(ctx)
}

// Retrust replaces the trusted authorities, one of which must have signed the current certificate.
// When it returns nil, the new credential is durable and in use.
func (r *Rotator) Retrust(trust *Trust) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.cfg.Endpoint.Credential()
	c, err := NewCredential(old.key, old.leaf, trust)
	if err != nil {
		return err
	}
	if err := r.cfg.Files.WriteCredential(r.cfg.File, c); err != nil {
		return fmt.Errorf("store the authorities: %w", err)
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
	if err := r.cfg.Files.WriteCredential(r.cfg.File, c); err != nil {
		return fmt.Errorf("store the renewed certificate: %w", err)
	}
	if err := r.cfg.Endpoint.Swap(c); err != nil {
		return err
	}
	r.made, r.madeWall = time.Now(), r.cfg.Endpoint.opts.Now()
	r.cfg.Logger.Info("certificate renewed", "expires", c.Ends(), "serial", c.peer.Serial)
	return nil
}

// check rejects a credential that is worse than the current one.
func (r *Rotator) check(c *Credential) error {
	old, now := r.cfg.Endpoint.Credential(), r.cfg.Endpoint.opts.Now()
	if c.peer.Kind != old.peer.Kind || c.peer.Name != old.peer.Name || c.trust.cluster != old.trust.cluster {
		return fmt.Errorf("renewed certificate is for %s of cluster %s", c.peer, c.trust.cluster)
	}
	for _, as := range []side{asServer, asClient} {
		_, err := c.trust.verify([]*x509.Certificate{c.leaf}, as, now)
		_, oldErr := old.trust.verify([]*x509.Certificate{old.leaf}, as, now)
		clock := errors.Is(err, ErrExpired) || errors.Is(err, ErrNotYetValid)
		if err != nil && !(clock && (oldErr != nil || r.setBack())) {
			return fmt.Errorf("renewed certificate does not verify on this host: %w", err)
		}
	}
	return nil
}

// setBack reports whether the wall clock was set back since the current credential was created or
// read. In that case this clock is wrong about a certificate, not the signer's.
func (r *Rotator) setBack() bool {
	wall := r.cfg.Endpoint.opts.Now().Round(0).Sub(r.madeWall.Round(0))
	return time.Since(r.made)-wall > Backdate/2
}

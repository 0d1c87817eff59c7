package pki

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// rotation is a node whose certificate an authority renews, in virtual time.
type rotation struct {
	a        *Authority
	endpoint *Endpoint
	rotator  *Rotator
	file     string
	skew     atomic.Int64 // how far the node's wall clock is ahead
	fail     atomic.Pointer[error]
	asked    atomic.Int64
	log      lines
	sign     func(request []byte) (*x509.Certificate, *Trust, error)
}

// lines is a log that can be read concurrently with writes.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	r := &rotation{file: filepath.Join(t.TempDir(), "node.pem")}
	var err error
	if r.a, err = NewAuthority("c1", time.Now()); err != nil {
		t.Fatal(err)
	}
	c := nodeCredential(t, r.a, "n1", time.Now())
	if err := WriteCredential(r.file, c); err != nil {
		t.Fatal(err)
	}
	r.endpoint = NewEndpoint(c, Options{Now: func() time.Time { return time.Now().Add(time.Duration(r.skew.Load())) }})
	trust := trustIn(t, r.a)
	r.sign = func(request []byte) (*x509.Certificate, *Trust, error) {
		leaf, err := r.a.SignNode(request, "n1", nil, time.Now())
		return leaf, trust, err
	}
	r.rotator = NewRotator(RotatorConfig{Endpoint: r.endpoint, File: r.file, Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
		Renew: func(_ context.Context, request []byte) (*x509.Certificate, *Trust, error) {
			r.asked.Add(1)
			if err := r.fail.Load(); err != nil {
				return nil, nil, *err
			}
			return r.sign(request)
		}})
	return r
}

func (r *rotation) failWith(err error) {
	if err == nil {
		r.fail.Store(nil)
		return
	}
	r.fail.Store(&err)
}

// run runs the test concurrently with the rotator.
func (r *rotation) run(t *testing.T, test func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.rotator.Run(ctx)
	}()
	test()
	cancel()
	<-done
	kept, err := ReadCredential(r.file)
	if err != nil || kept.Peer() != r.endpoint.Credential().Peer() {
		t.Errorf("the file holds %v, %v, and in use is %v", kept, err, r.endpoint.Credential().Peer().Serial)
	}
}

const day = 24 * time.Hour

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestRotator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRotation(t)
		r.run(t, func() {
			pass(20*day - 2*time.Hour)
			if n := r.asked.Load(); n != 0 {
				t.Errorf("%d requests in the first two thirds of a life", n)
			}
			last := r.endpoint.Credential()
			for i := range int64(5) {
				pass(20 * day)
				c := r.endpoint.Credential()
				if n := r.asked.Load(); n != i+1 || c.Peer().Serial == last.Peer().Serial || c.key == last.key {
					t.Errorf("after %d more lives: %d requests, and in use is %s after %s", i+1, n, c.Peer().Serial, last.Peer().Serial)
				}
				if left := time.Until(c.Ends()); left < NodeLife/3 {
					t.Errorf("only %v are left", left)
				}
				last = c
			}
		})
	})
}

// TestRotatorWhenClockIsSet: the certificate does not expire when the wall clock is set.
func TestRotatorWhenClockIsSet(t *testing.T) {
	for name, test := range map[string]struct {
		skew time.Duration
		want time.Duration // until it is renewed
	}{
		"set back": {-15 * day, 20 * day},
		"ahead":    {12 * day, 8 * day},
		"far":      {100 * day, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRotation(t)
				r.run(t, func() {
					pass(time.Minute)
					r.skew.Store(int64(test.skew))
					pass(max(0, test.want-2*time.Hour))
					if n := r.asked.Load(); n != 0 {
						t.Errorf("%d requests, too early", n)
					}
					pass(4 * time.Hour)
					if n := r.asked.Load(); n == 0 {
						t.Error("no request was sent")
					}
					if time.Since(r.endpoint.Credential().Begins()) > Backdate+4*time.Hour {
						t.Error("the new certificate is not in use")
					}
				})
				if n := r.asked.Load(); n > 6 {
					t.Errorf("%d requests in hours", n)
				}
			})
		})
	}
}

// TestRotatorOfIssuer: a node that signs by its own clock does not renew while the clock is briefly
// ahead. It replaces what it signed by a clock that was corrected later.
func TestRotatorOfIssuer(t *testing.T) {
	issuer := func(t *testing.T) *rotation {
		r := newRotation(t)
		trust := trustIn(t, r.a)
		r.sign = func(q []byte) (*x509.Certificate, *Trust, error) {
			leaf, err := r.a.SignNode(q, "n1", nil, r.endpoint.opts.Now())
			return leaf, trust, err
		}
		cfg := r.rotator.cfg
		cfg.OwnClock = func() bool { return true }
		r.rotator = NewRotator(cfg)
		return r
	}
	good := func(t *testing.T, r *rotation) {
		t.Helper()
		if c := r.endpoint.Credential(); time.Now().Before(c.Begins()) || time.Until(c.Ends()) < NodeLife/3-time.Hour {
			t.Errorf("it is %v, and the certificate is good from %v until %v", time.Now(), c.Begins(), c.Ends())
		}
	}
	for name, test := range map[string]struct{ skew, lasts, heals time.Duration }{
		"ahead for a moment": {25 * day, 5 * time.Minute, 0},
		"ahead for long":     {25 * day, day, 15 * time.Minute},
		"far for long":       {400 * day, 50 * day, 15 * time.Minute},
		"back for a moment":  {-25 * day, 5 * time.Minute, 0},
		"back for long":      {-400 * day, day, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := issuer(t)
				r.run(t, func() {
					pass(time.Hour)
					r.skew.Store(int64(test.skew))
					pass(test.lasts)
					if n := r.asked.Load(); test.skew > 0 && test.lasts >= day && n == 0 {
						t.Error("has not signed by a clock that stays ahead")
					}
					r.skew.Store(0)
					pass(test.heals)
					good(t, r)
					if n := r.asked.Load(); test.heals == 0 && n != 0 {
						t.Errorf("has signed %d times", n)
					}
					pass(100 * day)
					good(t, r)
				})
				if n := r.asked.Load(); n > 10 {
					t.Errorf("has signed %d times", n)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // it has restarted since
		r := issuer(t)
		if err := r.endpoint.Swap(nodeCredential(t, r.a, "n1", time.Now().Add(25*day))); err != nil {
			t.Fatal(err)
		}
		r.rotator = NewRotator(r.rotator.cfg)
		r.run(t, func() {
			pass(15 * time.Minute)
			good(t, r)
		})
	})
}

func TestRotatorRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRotation(t)
		r.run(t, func() {
			r.failWith(errors.New("no master"))
			first := r.endpoint.Credential()
			pass(20*day + 2*time.Hour)
			if n := r.asked.Load(); n < 3 || n > 9 {
				t.Errorf("%d requests in two hours", n)
			}
			if strings.Contains(r.log.String(), "ERROR") || !strings.Contains(r.log.String(), "WARN") {
				t.Errorf("ten days are left, and the log is: %s", r.log.String())
			}
			pass(5 * day)
			if n := r.asked.Load(); n < 100 || n > 200 {
				t.Errorf("%d requests in five days", n)
			}
			if !strings.Contains(r.log.String(), "level=ERROR") {
				t.Error("four days are left, and the log has no error")
			}
			if r.endpoint.Credential() != first {
				t.Error("another credential is in use")
			}
			r.failWith(nil)
			pass(time.Hour)
			if r.endpoint.Credential() == first {
				t.Error("the certificate was not renewed once it could be")
			}
		})
	})
}

// TestRotatorRejectsWorse: K4, and an invalid credential is never put in use.
func TestRotatorRejectsWorse(t *testing.T) {
	r := newRotation(t)
	first := r.endpoint.Credential()
	trust, other := trustIn(t, r.a), newAuthorityT(t, "c2")
	for what, sign := range map[string]func([]byte) (*x509.Certificate, *Trust, error){
		"another node's": func(q []byte) (*x509.Certificate, *Trust, error) {
			c, err := r.a.SignNode(q, "n2", nil, time.Now())
			return c, trust, err
		},
		"a principal's": func(q []byte) (*x509.Certificate, *Trust, error) {
			c, err := r.a.SignPrincipal(q, "n1", 0, 0, time.Now())
			return c, trust, err
		},
		"another cluster's": func(q []byte) (*x509.Certificate, *Trust, error) {
			c, err := other.SignNode(q, "n1", nil, time.Now())
			return c, trustIn(t, other), err
		},
		"one that is over": func(q []byte) (*x509.Certificate, *Trust, error) {
			c, err := r.a.SignNode(q, "n1", nil, time.Now().Add(-2*NodeLife))
			return c, trust, err
		},
		"one for later": func(q []byte) (*x509.Certificate, *Trust, error) {
			c, err := r.a.SignNode(q, "n1", nil, time.Now().Add(2*Backdate))
			return c, trust, err
		},
		"another key's": func([]byte) (*x509.Certificate, *Trust, error) {
			_, q := newRequest(t)
			c, err := r.a.SignNode(q, "n1", nil, time.Now())
			return c, trust, err
		},
	} {
		r.sign = sign
		if err := r.rotator.Renew(context.Background()); err == nil {
			t.Errorf("%s certificate was accepted", what)
		}
		if kept, err := ReadCredential(r.file); err != nil || r.endpoint.Credential() != first || kept.Peer() != first.Peer() {
			t.Errorf("%s certificate is in use, or in the file: %v", what, err)
		}
	}

	// A disk that takes no file.
	r.sign = func(q []byte) (*x509.Certificate, *Trust, error) {
		c, err := r.a.SignNode(q, "n1", nil, time.Now())
		return c, trust, err
	}
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.rotator.cfg.File = filepath.Join(blocked, "node.pem")
	if err := r.rotator.Renew(context.Background()); err == nil || r.endpoint.Credential() != first {
		t.Errorf("a credential that was not kept is in use: %v", err)
	}
}

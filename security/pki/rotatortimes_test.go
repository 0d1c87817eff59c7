package pki

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestRenewalPauses: after a failed renewal the pause is a minute and then doubles up to an hour,
// each less up to a quarter. A success resets it.
func TestRenewalPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRotation(t)
		if got := r.rotator.tick(t.Context()); got != time.Hour || r.asked.Load() != 0 {
			t.Errorf("before it is due: %v, %d requests", got, r.asked.Load())
		}
		time.Sleep(NodeLife - rotateBefore)
		r.failWith(errors.New("no master"))
		pauses := func() {
			t.Helper()
			for i, minutes := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
				most := minutes * time.Minute
				if got := r.rotator.tick(t.Context()); got > most || got <= most-most/4 {
					t.Errorf("after %d failures the pause is %v, want %v less up to a quarter", i+1, got, most)
				}
			}
		}
		pauses()
		r.failWith(nil)
		if got := r.rotator.tick(t.Context()); got != time.Hour {
			t.Errorf("after a renewal: %v", got)
		}
		time.Sleep(NodeLife - rotateBefore)
		r.failWith(errors.New("no master"))
		pauses()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if got := r.rotator.tick(ended); got != time.Hour {
			t.Errorf("when it ends: %v", got)
		}
		cfg := r.rotator.cfg
		cfg.OwnClock = func() bool { return true }
		r.failWith(nil)
		if got := NewRotator(cfg).tick(t.Context()); got != time.Minute {
			t.Errorf("one that signs by its own clock looks again after %v", got)
		}
	})
}

// TestRenewalIsDue: a certificate is renewed with ten days left by the wall clock, or after twenty
// days by the monotonic clock, and not before.
func TestRenewalIsDue(t *testing.T) {
	for name, c := range map[string]struct {
		skew time.Duration
		pass time.Duration
		want bool
	}{
		"by the wall clock, just before":      {19 * day, day - 1, false},
		"by the wall clock":                   {19 * day, day, true},
		"by the monotonic clock, just before": {-10 * day, 20*day - 1, false},
		"by the monotonic clock":              {-10 * day, 20 * day, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRotation(t)
			r.skew.Store(int64(c.skew))
			time.Sleep(c.pass)
			if got := r.rotator.due(); got != c.want {
				t.Errorf("%s: due is %v", name, got)
			}
		})
	}
}

// TestClockThatWasSet: a node that signs by its own clock waits ten minutes after the clock was set
// by more than half a day, and not at all after less.
func TestClockThatWasSet(t *testing.T) {
	for name, c := range map[string]struct {
		set, pass time.Duration
		want      bool
	}{
		"by half a day":                   {Backdate / 2, 0, true},
		"by more":                         {Backdate/2 + 1, 0, false},
		"back by half a day":              {-Backdate / 2, 0, true},
		"back by more":                    {-Backdate/2 - 1, 0, false},
		"by more, just before 10 minutes": {Backdate/2 + 1, clockSettleTime - 1, false},
		"by more, ten minutes ago":        {Backdate/2 + 1, clockSettleTime, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRotation(t)
			cfg := r.rotator.cfg
			cfg.OwnClock = func() bool { return true }
			r.rotator = NewRotator(cfg)
			time.Sleep(25 * day)
			if !r.rotator.due() {
				t.Errorf("%s: not due before", name)
			}
			r.skew.Store(int64(c.set))
			r.rotator.due()
			time.Sleep(c.pass)
			if got := r.rotator.due(); got != c.want {
				t.Errorf("%s: due is %v", name, got)
			}
		})
	}
}

// TestCertificateAfterClockWasSet: a certificate that is not valid by this host's clock is accepted
// only if the clock was set back by more than half a day since the current one was created, or if
// the current one is not valid either.
func TestCertificateAfterClockWasSet(t *testing.T) {
	for name, c := range map[string]struct {
		set    time.Duration // the host's clock
		signed time.Duration // by the signer's clock, since the start
		want   bool
	}{
		"a good clock":                                 {0, 0, true},
		"one that was set back by little":              {-Backdate / 2, 2 * Backdate, false},
		"one that was set back":                        {-Backdate/2 - 1, 2 * Backdate, true},
		"one that is ahead, and the present one ended": {2 * NodeLife, 0, true},
		"one that is ahead, and the present one good":  {NodeLife - time.Hour, -day, false},
		"a signer whose clock is ahead":                {0, 2 * Backdate, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRotation(t)
			begun, trust := time.Now(), trustIn(t, r.a)
			r.sign = func(q []byte) (*x509.Certificate, *Trust, error) {
				leaf, err := r.a.SignNode(q, "n1", nil, begun.Add(c.signed))
				return leaf, trust, err
			}
			r.skew.Store(int64(c.set))
			if err := r.rotator.Renew(t.Context()); (err == nil) != c.want {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestRetrust: new authorities are trusted at once and in the file, if one of them signed the
// certificate.
func TestRetrust(t *testing.T) {
	r := newRotation(t)
	next := newAuthorityT(t, "c1")
	if err := r.rotator.Retrust(trustIn(t, next)); err == nil {
		t.Error("an authority that has not signed the certificate is the only one trusted")
	}
	if err := r.rotator.Retrust(trustIn(t, r.a, next)); err != nil {
		t.Fatal(err)
	}
	kept, err := ReadCredential(r.file)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]*Credential{"in use": r.endpoint.Credential(), "in the file": kept} {
		if got := fmt.Sprint(c.Peer().Serial, len(c.Trust().Authorities())); got != fmt.Sprint(r.endpoint.Credential().Peer().Serial, 2) {
			t.Errorf("%s is the credential %s", what, got)
		}
	}
}

package authority

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/timing"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

const (
	// followPeriod is the interval at which a node reads the record, from the session's cache, while there is one. Without a record the
	// node watches for one, and reads again after followIdle in any case.
	followPeriod = 500 * time.Millisecond
	followIdle   = 10 * time.Minute
	// stepTimeout bounds one step. The longest is to have a certificate signed.
	stepTimeout = time.Minute
)

// Follow performs the stages of replacements on this node, and as master starts them, until the node closes.
func (s *Service) Follow() {
	if s.Transport() == nil {
		return
	}
	logged, period := "", cmp.Or(s.Period, followPeriod)
	for s.Ctx.Err() == nil {
		err := s.step()
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != "" && text != logged && s.Ctx.Err() == nil {
			s.Log.Warn("authority replacement waiting", "err", err)
		}
		logged = text
		if err == nil && s.record.Load() == nil {
			s.awaitRecord()
		}
		timing.Sleep(s.Ctx, period)
	}
}

// awaitRecord waits until there may be a record.
func (s *Service) awaitRecord() {
	ctx, cancel := context.WithTimeout(s.Ctx, followIdle)
	defer cancel()
	current := s.Meta.Current()
	if current == nil {
		return
	}
	w, err := current.Watch(ctx, recordFile, metaapi.ContentsChanged)
	if err != nil {
		return
	}
	defer w.Close()
	if _, err := current.Get(ctx, recordFile); errors.Is(err, metaapi.ErrNotFound) { // only after the watch was set
		_, _ = w.Next(ctx)
	}
}

// step performs the record's current stage.
func (s *Service) step() error {
	ctx, cancel := context.WithTimeout(s.Ctx, stepTimeout)
	defer cancel()
	s.rolling.Lock()
	defer s.rolling.Unlock()
	rec, gen, err := s.read(ctx)
	if err != nil {
		return nil // no leader; logged elsewhere
	}
	s.record.Store(rec)
	if rec == nil {
		return s.end(ctx)
	}
	if err := s.followStage(ctx, rec); err != nil {
		return err
	}
	if err := s.progress.Report(ctx, rec); err != nil || !s.IsMaster() {
		return err
	}
	waiting, err := s.waitingFor(ctx, rec)
	next := rec.Next()
	if err != nil || len(waiting) > 0 || next == rec.Stage {
		return err
	}
	if next == 0 {
		s.Log.Info("authority replaced", "new", pki.FingerprintOf(rec.New).String())
		return s.Changes.DeleteAsMaster(ctx, recordFile)
	}
	s.Log.Info("authority replacement advanced", "stage", next.String())
	_, err = s.Changes.SetAsMaster(ctx, recordFile, rec.At(next).Encode(), gen)
	return err
}

// followStage performs a stage on this node.
func (s *Service) followStage(ctx context.Context, rec *rollover.Record) error {
	both, err := pki.NewTrust(rec.Old, rec.New)
	if err != nil {
		return err
	}
	if rec.Stage < rollover.Forget {
		if err := s.trust(both); err != nil {
			return err
		}
	}
	if s.votes() {
		if err := s.takeNext(ctx, rec); err != nil {
			return err
		}
	}
	if rec.Stage >= rollover.Renew && !s.hasCertificateOf(rec) {
		if err := s.Transport().RenewNow(ctx); err != nil {
			return fmt.Errorf("renew the node's certificate: %w", err)
		}
		if !s.hasCertificateOf(rec) {
			return errors.New("renew the node's certificate: the old authority signed it")
		}
	}
	if rec.Stage == rollover.Forget {
		return s.forget(rec)
	}
	return nil
}

// hasCertificateOf reports whether the new authority signed the node's certificate.
func (s *Service) hasCertificateOf(rec *rollover.Record) bool {
	return s.Transport().Credential().Leaf().CheckSignatureFrom(rec.New) == nil
}

// trust makes the node trust these authorities.
func (s *Service) trust(t *pki.Trust) error {
	now := s.Transport().Credential().Trust()
	if !bytes.Equal(now.PEM(), t.PEM()) {
		if err := s.Transport().Retrust(t); err != nil {
			return err
		}
		s.Log.Info("trusted authorities changed", "count", len(t.Authorities()))
	}
	return s.keys().SetTrust(t)
}

// takeNext fetches the key of the new authority for a voter.
func (s *Service) takeNext(ctx context.Context, rec *rollover.Record) error {
	want := pki.FingerprintOf(rec.New)
	for _, a := range []*pki.Authority{s.issuer.Load(), s.next.Load()} {
		if a != nil && a.Fingerprint() == want {
			return nil
		}
	}
	var errs []error
	for _, id := range s.Issuers() {
		key, err := s.askKey(ctx, id, &want)
		if err != nil || key == nil {
			errs = append(errs, err)
			continue
		}
		a, err := pki.ParseAuthority(key)
		if err == nil && a.Fingerprint() != want {
			err = fmt.Errorf("node %s sent the key of another authority", id)
		}
		if err == nil {
			err = s.keys().SetNext(a)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.next.Store(a)
		return nil
	}
	return fmt.Errorf("no other voter sends the new authority's key: %w", errors.Join(errs...))
}

// forget removes the old authority. After a crash the next start continues: the old key is removed once the new one has
// replaced it, and trust in the old authority after that.
func (s *Service) forget(rec *rollover.Record) error {
	if next := s.next.Load(); next != nil && s.Holds() && next.Fingerprint() == pki.FingerprintOf(rec.New) {
		if err := s.keys().SetAuthority(next); err != nil {
			return err
		}
		s.issuer.Store(next)
	}
	if a := s.issuer.Load(); a != nil && a.Fingerprint() != pki.FingerprintOf(rec.New) {
		return errors.New("the node has the key of the old authority, but not that of the new one")
	}
	if err := s.dropNext(); err != nil {
		return err
	}
	after, err := pki.NewTrust(rec.New)
	if err != nil {
		return err
	}
	before := s.Transport().Credential().Trust()
	if err := s.trust(after); err != nil {
		return err
	}
	if !bytes.Equal(before.PEM(), after.PEM()) {
		s.Transport().Disconnect()
	}
	return nil
}

func (s *Service) dropNext() error {
	if s.next.Load() == nil {
		return nil
	}
	if err := s.keys().DropNext(); err != nil {
		return err
	}
	s.next.Store(nil)
	return nil
}

// end removes what a finished or abandoned replacement has left.
func (s *Service) end(ctx context.Context) error {
	if err := s.dropNext(); err != nil {
		return err
	}
	return s.progress.Forget(ctx)
}

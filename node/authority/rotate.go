package authority

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/stages"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

// recordFile is the file with the record of the replacement. It exists while the authority is being replaced.
const recordFile = namespace.SecurityDir + "/rollover"

// rotate serves api.MethodRotateAuthority.
func (s *Service) rotate(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.RotateAuthorityRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	change := authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodRotateAuthority, Name: ""}
	err := s.Changes.Do(c.Context(), change, func(ctx context.Context) error { return s.rotateNow(ctx, &r) })
	var status *api.AuthorityStatus
	if err == nil {
		status, err = s.statusNow(c.Context())
	}
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(status.Append)
}

// status serves api.MethodAuthorityStatus.
func (s *Service) status(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	status, err := s.statusNow(ctx)
	if err != nil {
		return nil, err
	}
	return status.Append, nil
}

// read returns the record, or nil if the authority is not being replaced, and the generation of its file.
func (s *Service) read(ctx context.Context) (*rollover.Record, uint64, error) {
	return stages.Read(ctx, s.Meta, recordFile, rollover.Decode)
}

// rotateNow starts a replacement, restarts it, or finishes the stage in which users get new certificates.
func (s *Service) rotateNow(ctx context.Context, r *api.RotateAuthorityRequest) error {
	if r.GossipKey {
		if r.Finish || r.Restart {
			return reply.BadRequest(errors.New("gossip_key excludes finish and restart"))
		}
		return s.RotateGossipKey(ctx)
	}
	rec, gen, err := s.read(ctx)
	switch {
	case err != nil:
		return err
	case r.Finish && r.Restart:
		return reply.BadRequest(errors.New("finish excludes restart"))
	case r.Finish && (rec == nil || rec.Stage < rollover.Sign):
		return fmt.Errorf("%w: stage %s, in which users get new certificates, has not begun", api.ErrRollover, rollover.Sign)
	case r.Finish && rec.Stage == rollover.Sign:
		_, err := s.Changes.SetAsMaster(ctx, recordFile, rec.At(rollover.Renew).Encode(), gen)
		return err
	case r.Restart && (rec == nil || rec.Stage > rollover.Trust):
		return fmt.Errorf("%w: only stage %s can be restarted", api.ErrRollover, rollover.Trust)
	case rec != nil && !r.Restart:
		return nil
	}
	return s.begin(ctx, gen)
}

// begin creates another authority and starts a replacement by it.
func (s *Service) begin(ctx context.Context, gen uint64) error {
	s.rolling.Lock()
	defer s.rolling.Unlock()
	old := s.issuer.Load()
	if old == nil {
		return fmt.Errorf("%w: it does not have the authority's key", api.ErrNoIssuer)
	}
	next, err := pki.NewAuthority(s.Transport().Cluster(), time.Now())
	if err != nil {
		return err
	}
	if err := s.keys().SetNext(next); err != nil { // before other nodes learn of it
		return fmt.Errorf("write the new authority's key: %w", err)
	}
	s.next.Store(next)
	rec := &rollover.Record{Stage: rollover.Trust, Old: old.Certificate(), New: next.Certificate(), Started: time.Now()}
	if _, err := s.Changes.SetAsMaster(ctx, recordFile, rec.Encode(), gen); err != nil {
		return err
	}
	s.Log.Info("authority replacement started", "old", old.Fingerprint().String(), "new", next.Fingerprint().String())
	return nil
}

// statusNow returns the state of the replacement.
func (s *Service) statusNow(ctx context.Context) (*api.AuthorityStatus, error) {
	rec, _, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return &api.AuthorityStatus{Stage: rollover.Stage(0).String(), Old: s.Transport().Fingerprint().String()}, nil
	}
	waiting, err := s.waitingFor(ctx, rec)
	if err != nil {
		return nil, err
	}
	return &api.AuthorityStatus{Stage: rec.Stage.String(), Old: pki.FingerprintOf(rec.Old).String(), New: pki.FingerprintOf(rec.New).String(),
		Waiting: waiting, StartedMS: rec.Started.UnixMilli()}, nil
}

// waitingFor returns the nodes that have not completed the stage.
func (s *Service) waitingFor(ctx context.Context, rec *rollover.Record) ([]string, error) {
	ids, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	progress, err := s.progress.Of(ctx, ids)
	if err != nil {
		return nil, err
	}
	return rollover.Waiting(rec, ids, progress), nil
}

// signs returns the authority that signs: the new one from stage from on. It is nil if this node does not have its key.
func (s *Service) signs(from rollover.Stage) *pki.Authority {
	rec, issuer, next := s.record.Load(), s.issuer.Load(), s.next.Load()
	if rec == nil || rec.Stage < from || issuer == nil {
		return issuer
	}
	for _, a := range []*pki.Authority{issuer, next} {
		if a != nil && a.Fingerprint() == pki.FingerprintOf(rec.New) {
			return a
		}
	}
	return nil
}

// NodeSigner returns the authority that signs nodes' certificates; nil if this node does not have its key.
func (s *Service) NodeSigner() *pki.Authority { return s.signs(rollover.Renew) }

// UserSigner returns the authority that signs users' certificates. The error is api.ErrNoIssuer if this node does not have its key.
func (s *Service) UserSigner(ctx context.Context) (*pki.Authority, error) {
	rec, _, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	s.record.Store(rec)
	if a := s.signs(rollover.Sign); a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("%w: it does not have the authority's key", api.ErrNoIssuer)
}

package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

// The replacement of the authority is planned by package rollover. Each node follows the record, and the master begins the
// next stage when all nodes have done what the one before asks.
const (
	rolloverFile = securityDir + "/rollover"
	// progressDir has a file for each node, which the node writes.
	progressDir = "/rollover"
	// rolloverPeriod is how often a node looks at the record while there is one: it is in the session's cache. Without one the
	// node watches for it, and looks after rolloverIdle in any case.
	rolloverPeriod = 500 * time.Millisecond
	rolloverIdle   = 10 * time.Minute
)

// handleRollover registers the methods about the authority's replacement.
func (n *Node) handleRollover() {
	n.handleSecurity(api.MethodRotateAuthority, rpc.Spawned, func(c *rpc.Call) {
		c.Keep() // the change may outlive the call
		var r api.RotateAuthorityRequest
		if err := r.Decode(&c.Params, c.NumParams); err != nil {
			fail(c, err)
			return
		}
		if !begin(c, &r.Options) {
			return
		}
		err := n.change(c.Context(), asked{subjectOf(c), api.MethodRotateAuthority, ""}, func(ctx context.Context) error { return n.rotateAuthority(ctx, &r) })
		var s *api.AuthorityStatus
		if err == nil {
			s, err = n.rolloverStatus(c.Context())
		}
		if err != nil {
			fail(c, err)
			return
		}
		c.Reply(s.Append)
	})
	n.answerNames(n.handleSecurity, api.MethodAuthorityStatus, 0, func(ctx context.Context, _ *api.NamesRequest) (answer, error) {
		s, err := n.rolloverStatus(ctx)
		if err != nil {
			return nil, err
		}
		return s.Append, nil
	})
}

// readRollover returns the record, nil if the authority is not being replaced.
func (n *Node) readRollover(ctx context.Context) (*rollover.Record, uint64, error) {
	s := n.meta.current()
	if s == nil {
		return nil, 0, fmt.Errorf("%w: the node has no session with the lock service", api.ErrUnavailable)
	}
	f, err := s.Get(ctx, rolloverFile)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	r, err := rollover.Decode(f.Data)
	return r, f.Generation, err
}

// rotateAuthority begins a rollover, begins it again, or ends the stage at which users get new certificates.
func (n *Node) rotateAuthority(ctx context.Context, r *api.RotateAuthorityRequest) error {
	if r.GossipKey {
		if r.Finish || r.Restart {
			return badRequest(errors.New("gossip_key beside finish or restart: give one"))
		}
		return n.rotateGossipKey(ctx)
	}
	rec, gen, err := n.readRollover(ctx)
	switch {
	case err != nil:
		return err
	case r.Finish && r.Restart:
		return badRequest(errors.New("finish and restart: give one"))
	case r.Finish && (rec == nil || rec.Stage < rollover.Sign):
		return fmt.Errorf("%w: users get new certificates at the stage %s, which comes before", api.ErrRollover, rollover.Sign)
	case r.Finish && rec.Stage == rollover.Sign:
		_, err := n.setAsMaster(ctx, rolloverFile, rec.At(rollover.Renew).Encode(), gen)
		return err
	case r.Restart && (rec == nil || rec.Stage > rollover.Trust):
		return fmt.Errorf("%w: only the stage %s can begin again", api.ErrRollover, rollover.Trust)
	case rec != nil && !r.Restart:
		return nil
	}
	s := n.security
	s.rolling.Lock()
	defer s.rolling.Unlock()
	old := s.issuer.Load()
	if old == nil {
		return fmt.Errorf("%w: it has not the authority's key", api.ErrNoIssuer)
	}
	next, err := pki.NewAuthority(s.cluster, time.Now())
	if err != nil {
		return err
	}
	if err := n.keys().SetNext(next); err != nil { // before others hear of it
		return fmt.Errorf("keep the new authority's key: %w", err)
	}
	s.next.Store(next)
	rec = &rollover.Record{Stage: rollover.Trust, Old: old.Certificate(), New: next.Certificate(), Started: time.Now()}
	if _, err := n.setAsMaster(ctx, rolloverFile, rec.Encode(), gen); err != nil {
		return err
	}
	n.log.Info("the authority is being replaced", "old", old.Fingerprint().String(), "new", next.Fingerprint().String())
	return nil
}

// rolloverStatus reports how far the rollover has come.
func (n *Node) rolloverStatus(ctx context.Context) (*api.AuthorityStatus, error) {
	rec, _, err := n.readRollover(ctx)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return &api.AuthorityStatus{Stage: rollover.Stage(0).String(), Old: n.security.fingerprint().String()}, nil
	}
	waiting, err := n.waitingFor(ctx, rec)
	if err != nil {
		return nil, err
	}
	return &api.AuthorityStatus{Stage: rec.Stage.String(), Old: pki.FingerprintOf(rec.Old).String(), New: pki.FingerprintOf(rec.New).String(),
		Waiting: waiting, StartedMS: rec.Started.UnixMilli()}, nil
}

// waitingFor returns the nodes of the cluster that have yet to do what the stage asks.
func (n *Node) waitingFor(ctx context.Context, rec *rollover.Record) ([]string, error) {
	all, err := n.fleet(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, x := range all {
		ids = append(ids, x.id)
	}
	progress, err := n.progressOf(ctx, progressDir, ids)
	if err != nil {
		return nil, err
	}
	return rollover.Waiting(rec, ids, progress), nil
}

// progressOf reads how far nodes are, of those that have written it below dir.
func (n *Node) progressOf(ctx context.Context, dir string, ids []string) (map[string][]byte, error) {
	progress := map[string][]byte{}
	for _, id := range ids {
		f, err := n.meta.current().Get(ctx, path.Join(dir, id))
		if err == nil {
			progress[id] = f.Data
		} else if !errors.Is(err, metaapi.ErrNotFound) {
			return nil, err
		}
	}
	return progress, nil
}

// followRollover does what rollovers ask of this node, and as master begins their stages, until the node closes.
func (n *Node) followRollover() {
	if n.security == nil {
		return
	}
	logged, period := "", cmp.Or(n.cfg.rolloverPeriod, rolloverPeriod)
	for n.ctx.Err() == nil {
		err := n.stepRollover()
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != "" && text != logged && n.ctx.Err() == nil {
			n.log.Warn("the replacement of the authority waits", "err", err)
		}
		logged = text
		if err == nil && n.security.rollover.Load() == nil {
			n.awaitRollover()
		}
		pause(n.ctx, period)
	}
}

// awaitRollover returns when there may be a record.
func (n *Node) awaitRollover() {
	ctx, cancel := context.WithTimeout(n.ctx, rolloverIdle)
	defer cancel()
	n.awaitFile(ctx, rolloverFile)
}

// awaitFile returns when a file that was not there may be, or ctx ends.
func (n *Node) awaitFile(ctx context.Context, file string) {
	s := n.meta.current()
	if s == nil {
		return
	}
	w, err := s.Watch(ctx, file, metaapi.ContentsChanged)
	if err != nil {
		return
	}
	defer w.Close()
	if _, err := s.Get(ctx, file); errors.Is(err, metaapi.ErrNotFound) { // not before the watch was set
		_, _ = w.Next(ctx)
	}
}

// stepRollover does what the record asks now.
func (n *Node) stepRollover() error {
	ctx, cancel := context.WithTimeout(n.ctx, renewalTimeout)
	defer cancel()
	n.security.rolling.Lock()
	defer n.security.rolling.Unlock()
	rec, gen, err := n.readRollover(ctx)
	if err != nil {
		return nil // there is no leader; a start is told of that elsewhere
	}
	n.security.rollover.Store(rec)
	if rec == nil {
		return n.endRollover(ctx)
	}
	if err := n.followStage(ctx, rec); err != nil {
		return err
	}
	if err := n.reportProgress(ctx, rec); err != nil || !n.isMaster() {
		return err
	}
	waiting, err := n.waitingFor(ctx, rec)
	next := rec.Next()
	if err != nil || len(waiting) > 0 || next == rec.Stage {
		return err
	}
	if next == 0 {
		n.log.Info("the authority was replaced", "new", pki.FingerprintOf(rec.New).String())
		return n.deleteAsMaster(ctx, rolloverFile)
	}
	n.log.Info("the replacement of the authority has another stage", "stage", next.String())
	_, err = n.setAsMaster(ctx, rolloverFile, rec.At(next).Encode(), gen)
	return err
}

// renewalTimeout bounds one step, of which the longest is to have a certificate signed.
const renewalTimeout = time.Minute

// followStage does what a stage asks of this node.
func (n *Node) followStage(ctx context.Context, rec *rollover.Record) error {
	s := n.security
	both, err := pki.NewTrust(rec.Old, rec.New)
	if err != nil {
		return err
	}
	if rec.Stage < rollover.Forget {
		if err := n.trustNow(both); err != nil {
			return err
		}
	}
	if group, _ := n.voter.group(); group != nil {
		if err := n.takeNext(ctx, rec); err != nil {
			return err
		}
	}
	if rec.Stage >= rollover.Renew && s.endpoint.Credential().Leaf().CheckSignatureFrom(rec.New) != nil {
		if err := s.rotator.Renew(ctx); err != nil {
			return fmt.Errorf("renew the node's certificate: %w", err)
		}
		if s.endpoint.Credential().Leaf().CheckSignatureFrom(rec.New) != nil {
			return errors.New("renew the node's certificate: it was signed by the old authority once more")
		}
	}
	if rec.Stage == rollover.Forget {
		return n.forgetAuthority(rec)
	}
	return nil
}

// trustNow has the node trust these authorities.
func (n *Node) trustNow(t *pki.Trust) error {
	s := n.security
	now := s.endpoint.Credential().Trust()
	if !bytes.Equal(now.PEM(), t.PEM()) {
		if err := s.rotator.Retrust(t); err != nil {
			return err
		}
		n.log.Info("the node trusts other authorities", "count", len(t.Authorities()))
	}
	return n.keys().SetTrust(t)
}

// takeNext has a voter hold the key of the new authority.
func (n *Node) takeNext(ctx context.Context, rec *rollover.Record) error {
	want := pki.FingerprintOf(rec.New)
	for _, a := range []*pki.Authority{n.security.issuer.Load(), n.security.next.Load()} {
		if a != nil && a.Fingerprint() == want {
			return nil
		}
	}
	var errs []error
	for _, id := range n.issuers() {
		var key []byte
		err := n.peers.call(ctx, id, methodAuthority, func(e *wire.Encoder) {
			e.Array(1)
			e.Bin(want[:])
		}, func(d *wire.Decoder) error {
			if !d.IsNil() {
				key = bytes.Clone(d.Bytes())
			}
			return d.Err()
		})
		if err != nil || key == nil {
			errs = append(errs, err)
			continue
		}
		a, err := pki.ParseAuthority(key)
		if err == nil && a.Fingerprint() != want {
			err = fmt.Errorf("node %s gave the key of another authority", id)
		}
		if err == nil {
			err = n.keys().SetNext(a)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		n.security.next.Store(a)
		return nil
	}
	return fmt.Errorf("no other voter gives the new authority's key: %w", errors.Join(errs...))
}

// forgetAuthority has the node know the new authority alone. A crash leaves what the next start goes on with: the old key goes
// when the new one is in its place, and trust in the old authority after that.
func (n *Node) forgetAuthority(rec *rollover.Record) error {
	s, keys := n.security, n.keys()
	if next := s.next.Load(); next != nil && s.issuer.Load() != nil && next.Fingerprint() == pki.FingerprintOf(rec.New) {
		if err := keys.SetAuthority(next); err != nil {
			return err
		}
		s.issuer.Store(next)
	}
	if a := s.issuer.Load(); a != nil && a.Fingerprint() != pki.FingerprintOf(rec.New) {
		return errors.New("the node has the key of the old authority, and not that of the new one")
	}
	if err := n.dropNext(); err != nil {
		return err
	}
	alone, err := pki.NewTrust(rec.New)
	if err != nil {
		return err
	}
	before := s.endpoint.Credential().Trust()
	if err := n.trustNow(alone); err != nil {
		return err
	}
	if !bytes.Equal(before.PEM(), alone.PEM()) { // whose certificate is good connects again
		s.endpoint.Sever(func(pki.Peer) bool { return true })
	}
	return nil
}

func (n *Node) dropNext() error {
	if n.security.next.Load() == nil {
		return nil
	}
	if err := n.keys().DropNext(); err != nil {
		return err
	}
	n.security.next.Store(nil)
	return nil
}

// endRollover takes away what a rollover has left that is over, or was never begun.
func (n *Node) endRollover(ctx context.Context) error {
	if err := n.dropNext(); err != nil {
		return err
	}
	err := n.catalog.remove(ctx, path.Join(progressDir, n.id()), metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil
	}
	return err
}

// reportProgress writes that this node has done what the stage asks.
func (n *Node) reportProgress(ctx context.Context, rec *rollover.Record) error {
	return n.report(ctx, path.Join(progressDir, n.id()), rec)
}

// report writes to this node's file that it has done what the stage asks, unless it says so already.
func (n *Node) report(ctx context.Context, file string, rec interface {
	IsDone(progress []byte) bool
	Done() []byte
}) error {
	f, err := n.meta.current().Get(ctx, file)
	if err == nil && rec.IsDone(f.Data) {
		return nil
	}
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return err
	}
	_, err = n.catalog.set(ctx, file, rec.Done(), metaapi.AnyGeneration)
	return err
}

// signs returns the authority that signs what is of the new one from a stage on; nil if this node has not its key.
func (s *security) signs(from rollover.Stage) *pki.Authority {
	rec, issuer, next := s.rollover.Load(), s.issuer.Load(), s.next.Load()
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

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
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

// Package rollover plans the replacement of the authority. Each node follows the record, and the master starts the next stage when all
// nodes have completed the current one.
const (
	rolloverFile = namespace.SecurityDir + "/rollover"
	// progressDir has a file for each node, written by that node.
	progressDir = "/rollover"
	// rolloverPeriod is the interval at which a node reads the record, from the session's cache, while there is one. Without a record the
	// node watches for one, and reads again after rolloverIdle in any case.
	rolloverPeriod = 500 * time.Millisecond
	rolloverIdle   = 10 * time.Minute
)

// handleRollover registers the methods for replacing the authority.
func (n *Node) handleRollover() {
	n.handleSecurity(api.MethodRotateAuthority, rpc.Spawned, func(c *rpc.Call) {
		c.Keep() // the change may outlive the call
		var r api.RotateAuthorityRequest
		if err := r.Decode(&c.Params, c.NumParams); err != nil {
			reply.Fail(c, err)
			return
		}
		if !reply.Begin(c, &r.Options) {
			return
		}
		err := n.changes.Do(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodRotateAuthority, Name: ""}, func(ctx context.Context) error { return n.rotateAuthority(ctx, &r) })
		var s *api.AuthorityStatus
		if err == nil {
			s, err = n.rolloverStatus(c.Context())
		}
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(s.Append)
	})
	n.answerNames(n.handleSecurity, api.MethodAuthorityStatus, 0, func(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
		s, err := n.rolloverStatus(ctx)
		if err != nil {
			return nil, err
		}
		return s.Append, nil
	})
}

// readRollover returns the record, or nil if the authority is not being replaced.
func (n *Node) readRollover(ctx context.Context) (*rollover.Record, uint64, error) {
	s := n.meta.Current()
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

// rotateAuthority starts a replacement, restarts it, or finishes the stage in which users get new certificates.
func (n *Node) rotateAuthority(ctx context.Context, r *api.RotateAuthorityRequest) error {
	if r.GossipKey {
		if r.Finish || r.Restart {
			return reply.BadRequest(errors.New("gossip_key excludes finish and restart"))
		}
		return n.rotateGossipKey(ctx)
	}
	rec, gen, err := n.readRollover(ctx)
	switch {
	case err != nil:
		return err
	case r.Finish && r.Restart:
		return reply.BadRequest(errors.New("finish excludes restart"))
	case r.Finish && (rec == nil || rec.Stage < rollover.Sign):
		return fmt.Errorf("%w: stage %s, in which users get new certificates, has not begun", api.ErrRollover, rollover.Sign)
	case r.Finish && rec.Stage == rollover.Sign:
		_, err := n.changes.SetAsMaster(ctx, rolloverFile, rec.At(rollover.Renew).Encode(), gen)
		return err
	case r.Restart && (rec == nil || rec.Stage > rollover.Trust):
		return fmt.Errorf("%w: only stage %s can be restarted", api.ErrRollover, rollover.Trust)
	case rec != nil && !r.Restart:
		return nil
	}
	s := n.security
	s.rolling.Lock()
	defer s.rolling.Unlock()
	old := s.issuer.Load()
	if old == nil {
		return fmt.Errorf("%w: it does not have the authority's key", api.ErrNoIssuer)
	}
	next, err := pki.NewAuthority(s.cluster, time.Now())
	if err != nil {
		return err
	}
	if err := n.keys().SetNext(next); err != nil { // before other nodes learn of it
		return fmt.Errorf("write the new authority's key: %w", err)
	}
	s.next.Store(next)
	rec = &rollover.Record{Stage: rollover.Trust, Old: old.Certificate(), New: next.Certificate(), Started: time.Now()}
	if _, err := n.changes.SetAsMaster(ctx, rolloverFile, rec.Encode(), gen); err != nil {
		return err
	}
	n.log.Info("authority replacement started", "old", old.Fingerprint().String(), "new", next.Fingerprint().String())
	return nil
}

// rolloverStatus returns the state of the replacement.
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

// waitingFor returns the nodes that have not completed the stage.
func (n *Node) waitingFor(ctx context.Context, rec *rollover.Record) ([]string, error) {
	all, err := n.members.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, x := range all {
		ids = append(ids, x.ID)
	}
	progress, err := n.progressOf(ctx, progressDir, ids)
	if err != nil {
		return nil, err
	}
	return rollover.Waiting(rec, ids, progress), nil
}

// progressOf reads the progress of the nodes that have written it below dir.
func (n *Node) progressOf(ctx context.Context, dir string, ids []string) (map[string][]byte, error) {
	progress := map[string][]byte{}
	for _, id := range ids {
		f, err := n.meta.Current().Get(ctx, path.Join(dir, id))
		if err == nil {
			progress[id] = f.Data
		} else if !errors.Is(err, metaapi.ErrNotFound) {
			return nil, err
		}
	}
	return progress, nil
}

// followRollover performs the stages of replacements on this node, and as master starts them, until the node closes.
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
			n.log.Warn("authority replacement waiting", "err", err)
		}
		logged = text
		if err == nil && n.security.rollover.Load() == nil {
			n.awaitRollover()
		}
		timing.Sleep(n.ctx, period)
	}
}

// awaitRollover waits until there may be a record.
func (n *Node) awaitRollover() {
	ctx, cancel := context.WithTimeout(n.ctx, rolloverIdle)
	defer cancel()
	n.awaitFile(ctx, rolloverFile)
}

// awaitFile waits until a file that did not exist may exist, or ctx ends.
func (n *Node) awaitFile(ctx context.Context, file string) {
	s := n.meta.Current()
	if s == nil {
		return
	}
	w, err := s.Watch(ctx, file, metaapi.ContentsChanged)
	if err != nil {
		return
	}
	defer w.Close()
	if _, err := s.Get(ctx, file); errors.Is(err, metaapi.ErrNotFound) { // only after the watch was set
		_, _ = w.Next(ctx)
	}
}

// stepRollover performs the record's current stage.
func (n *Node) stepRollover() error {
	ctx, cancel := context.WithTimeout(n.ctx, renewalTimeout)
	defer cancel()
	n.security.rolling.Lock()
	defer n.security.rolling.Unlock()
	rec, gen, err := n.readRollover(ctx)
	if err != nil {
		return nil // no leader; logged elsewhere
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
		n.log.Info("authority replaced", "new", pki.FingerprintOf(rec.New).String())
		return n.changes.DeleteAsMaster(ctx, rolloverFile)
	}
	n.log.Info("authority replacement advanced", "stage", next.String())
	_, err = n.changes.SetAsMaster(ctx, rolloverFile, rec.At(next).Encode(), gen)
	return err
}

// renewalTimeout bounds one step. The longest is to have a certificate signed.
const renewalTimeout = time.Minute

// followStage performs a stage on this node.
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
			return errors.New("renew the node's certificate: the old authority signed it")
		}
	}
	if rec.Stage == rollover.Forget {
		return n.forgetAuthority(rec)
	}
	return nil
}

// trustNow makes the node trust these authorities.
func (n *Node) trustNow(t *pki.Trust) error {
	s := n.security
	now := s.endpoint.Credential().Trust()
	if !bytes.Equal(now.PEM(), t.PEM()) {
		if err := s.rotator.Retrust(t); err != nil {
			return err
		}
		n.log.Info("trusted authorities changed", "count", len(t.Authorities()))
	}
	return n.keys().SetTrust(t)
}

// takeNext fetches the key of the new authority for a voter.
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
		err := n.peers.Call(ctx, id, methodAuthority, func(e *wire.Encoder) {
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
			err = fmt.Errorf("node %s sent the key of another authority", id)
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
	return fmt.Errorf("no other voter sends the new authority's key: %w", errors.Join(errs...))
}

// forgetAuthority removes the old authority. After a crash the next start continues: the old key is removed once the new one has
// replaced it, and trust in the old authority after that.
func (n *Node) forgetAuthority(rec *rollover.Record) error {
	s, keys := n.security, n.keys()
	if next := s.next.Load(); next != nil && s.issuer.Load() != nil && next.Fingerprint() == pki.FingerprintOf(rec.New) {
		if err := keys.SetAuthority(next); err != nil {
			return err
		}
		s.issuer.Store(next)
	}
	if a := s.issuer.Load(); a != nil && a.Fingerprint() != pki.FingerprintOf(rec.New) {
		return errors.New("the node has the key of the old authority, but not that of the new one")
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
	if !bytes.Equal(before.PEM(), alone.PEM()) { // peers with valid certificates reconnect
		s.endpoint.Disconnect(func(pki.Peer) bool { return true })
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

// endRollover removes what a finished or abandoned replacement has left.
func (n *Node) endRollover(ctx context.Context) error {
	if err := n.dropNext(); err != nil {
		return err
	}
	err := n.catalog.Remove(ctx, path.Join(progressDir, n.id()), metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil
	}
	return err
}

// reportProgress records that this node has completed the stage.
func (n *Node) reportProgress(ctx context.Context, rec *rollover.Record) error {
	return n.report(ctx, path.Join(progressDir, n.id()), rec)
}

// report records in this node's file that it has completed the stage, unless it says so already.
func (n *Node) report(ctx context.Context, file string, rec interface {
	IsDone(progress []byte) bool
	Done() []byte
}) error {
	f, err := n.meta.Current().Get(ctx, file)
	if err == nil && rec.IsDone(f.Data) {
		return nil
	}
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return err
	}
	_, err = n.catalog.Set(ctx, file, rec.Done(), metaapi.AnyGeneration)
	return err
}

// signs returns the authority that signs: the new one from stage from on. It is nil if this node does not have its key.
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

// signer returns the authority that signs users' certificates. The error is api.ErrNoIssuer if this node does not have its key.
func (n *Node) signer(ctx context.Context) (*pki.Authority, error) {
	rec, _, err := n.readRollover(ctx)
	if err != nil {
		return nil, err
	}
	n.security.rollover.Store(rec)
	if a := n.security.signs(rollover.Sign); a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("%w: it does not have the authority's key", api.ErrNoIssuer)
}

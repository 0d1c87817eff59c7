package node

import (
	"bytes"
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

// The gossip key is replaced after a node was removed, as planned by package rollover: each node follows the record in the lock service,
// and the master starts the next stage when the nodes that gossip sees have completed the current one.
const (
	keyRecordFile = namespace.SecurityDir + "/gossip"
	// keyProgressDir has a file for each node, written by that node.
	keyProgressDir = progressDir + "/gossip"
	// methodGossipKey returns the gossip key with an id: bytes, or nil if the node does not have it.
	methodGossipKey = "security.gossip_key"
	// keyAskTimeout bounds one such call: any other node may have the key.
	keyAskTimeout = 2 * time.Second
)

// handleGossipKey registers the method by which nodes fetch missing keys.
func (n *Node) handleGossipKey() {
	n.handleSecurity(methodGossipKey, rpc.Spawned, func(c *rpc.Call) {
		c.SetTimeout(joinTimeout)
		var id rollover.KeyID
		if b := c.Params.Bytes(); c.Params.Err() != nil || copy(id[:], b) != len(id) || len(b) != len(id) {
			c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s: want the id of a key, of %d bytes", methodGossipKey, len(id)))
			return
		}
		key, err := n.giveGossipKey(c.Context(), authz.SubjectOf(c).Peer, id)
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(func(e *wire.Encoder) {
			if key == nil {
				e.Nil()
				return
			}
			e.Bin(key)
		})
	})
}

// giveGossipKey returns the key with that id for a node that was not removed; nil if this node does not have it.
func (n *Node) giveGossipKey(ctx context.Context, to pki.Peer, id rollover.KeyID) ([]byte, error) {
	if err := n.removed.Check(ctx, to.Name); errors.Is(err, removal.ErrRemoved) {
		return nil, &rpc.Error{Code: rpc.CodePermissionDenied, Message: err.Error()}
	} else if err != nil {
		return nil, err
	}
	key := keyOf(n.gossipKeys(), id)
	if key != nil {
		n.log.Info("gossip key sent", "node", to.Name)
	}
	return key, nil
}

// keyOf returns the key with that id, or nil.
func keyOf(keys [][]byte, id rollover.KeyID) []byte {
	for _, k := range keys {
		if rollover.IDOfKey(k) == id {
			return k
		}
	}
	return nil
}

// followGossipKey performs rotations of the gossip key on this node, and as master starts them and their stages, until the node closes.
func (n *Node) followGossipKey() {
	if n.security == nil || n.cfg.keysByHand {
		return
	}
	logged, period := "", cmp.Or(n.cfg.rolloverPeriod, rolloverPeriod)
	for n.ctx.Err() == nil {
		err := n.stepGossipKey()
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != "" && text != logged && n.ctx.Err() == nil {
			level := slog.LevelWarn
			if waits := (*keyWaitError)(nil); errors.As(err, &waits) { // usually brief
				level = slog.LevelInfo
			}
			n.log.Log(n.ctx, level, "gossip key rotation waiting", "err", err)
		}
		logged = text
		timing.Sleep(n.ctx, period)
	}
}

// keyRecord returns the record of the current key and its rotation; nil before the first master has written it.
func (n *Node) keyRecord(ctx context.Context) (*rollover.KeyRecord, uint64, error) {
	s := n.meta.Current()
	if s == nil {
		return nil, 0, fmt.Errorf("%w: the node has no session with the lock service", api.ErrUnavailable)
	}
	f, err := s.Get(ctx, keyRecordFile)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	r, err := rollover.DecodeKeyRecord(f.Data)
	return r, f.Generation, err
}

// stepGossipKey performs the record's current stage. The record is in the session's cache.
func (n *Node) stepGossipKey() error {
	ctx, cancel := context.WithTimeout(n.ctx, renewalTimeout)
	defer cancel()
	n.security.keying.Lock()
	defer n.security.keying.Unlock()
	rec, gen, err := n.keyRecord(ctx)
	switch {
	case err != nil && gen == 0:
		return nil // the lock service has no leader; that is logged elsewhere
	case err != nil:
		return err
	case rec == nil:
		return n.recordGossipKey(ctx)
	}
	if err := n.followKeyStage(ctx, rec); err != nil {
		if lost := (*keyLostError)(nil); errors.As(err, &lost) && lost.forGood(rec.Stage) && n.isMaster() {
			n.log.Warn("gossip key rotation restarted: no node has the new key", "err", err)
			return n.makeGossipKey(ctx, gen)
		}
		return err
	}
	if rec.Stage == rollover.Retire {
		return n.beginKeyRotation(ctx, rec, gen)
	}
	if err := n.reportKeyProgress(ctx, rec); err != nil || !n.isMaster() {
		return err
	}
	waiting, err := n.waitingForKey(ctx, rec)
	if err != nil {
		return err
	}
	if len(waiting) > 0 {
		return &keyWaitError{rec.Stage, waiting}
	}
	next := rec.At(rec.Next())
	n.log.Info("gossip key rotation advanced", "stage", next.Stage.String())
	_, err = n.changes.SetAsMaster(ctx, keyRecordFile, next.Encode(), gen)
	return err
}

// keyWaitError means that nodes have not completed a stage.
type keyWaitError struct {
	stage rollover.KeyStage
	nodes []string
}

func (e *keyWaitError) Error() string {
	return fmt.Sprintf("stage %s is not completed by nodes %s", e.stage, strings.Join(e.nodes, ", "))
}

// rotateGossipKey starts a rotation requested by an operator, as master, unless one is running.
func (n *Node) rotateGossipKey(ctx context.Context) error {
	n.security.keying.Lock()
	defer n.security.keying.Unlock()
	rec, gen, err := n.keyRecord(ctx)
	if err != nil || rec != nil && rec.Stage != rollover.Retire {
		return err
	}
	if rec != nil { // so that other nodes have the key that now becomes the old one
		if err := n.followKeyStage(ctx, rec); err != nil {
			return err
		}
	}
	return n.makeGossipKey(ctx, gen)
}

// recordGossipKey records, as master, the current key, so that a node with another one fetches it. If nodes were removed before there
// was a record, or the lock service was recovered from a voter without one, the key is replaced.
func (n *Node) recordGossipKey(ctx context.Context) error {
	if !n.isMaster() {
		return nil
	}
	removed, err := n.removed.Marked(ctx)
	if err != nil {
		return err
	}
	if len(removed) > 0 || n.raftEpoch() > 0 {
		return n.makeGossipKey(ctx, 0)
	}
	id := rollover.IDOfKey(n.gossipKeys()[0])
	rec := &rollover.KeyRecord{Stage: rollover.Retire, Old: id, New: id, Removed: rollover.RemovedDigest(removed, n.raftEpoch()), Started: time.Now()}
	_, err = n.changes.SetAsMaster(ctx, keyRecordFile, rec.Encode(), 0)
	return err
}

// beginKeyRotation starts a rotation, as master, if a node was removed or the lock service was recovered after the current key was made.
// A recovery may restore the record of an older key.
func (n *Node) beginKeyRotation(ctx context.Context, rec *rollover.KeyRecord, gen uint64) error {
	if !n.isMaster() || rec.Removed == rollover.RemovedDigest(n.removed.All(), n.raftEpoch()) {
		return nil
	}
	removed, err := n.removed.Marked(ctx) // the list in memory may be outdated
	if err != nil || rec.Removed == rollover.RemovedDigest(removed, n.raftEpoch()) {
		return err
	}
	return n.makeGossipKey(ctx, gen)
}

// makeGossipKey generates a key and starts a rotation to it, as master. The key is on this node's disk before other nodes learn of it.
// Removed nodes are listed before the key is generated: none of them can get it. A master that was itself removed generates none.
func (n *Node) makeGossipKey(ctx context.Context, gen uint64) error {
	removed, err := n.removed.Marked(ctx)
	if err != nil {
		return err
	}
	if removed[n.id()] {
		return removal.ErrorOf(n.id())
	}
	old, key := n.gossipKeys()[0], make([]byte, len(n.gossipKeys()[0]))
	_, _ = cryptorand.Read(key) // never fails
	if err := n.setGossipKeys([][]byte{old, key}); err != nil {
		return err
	}
	rec := &rollover.KeyRecord{Stage: rollover.Install, Old: rollover.IDOfKey(old), New: rollover.IDOfKey(key),
		Removed: rollover.RemovedDigest(removed, n.raftEpoch()), Started: time.Now()}
	if _, err := n.changes.SetAsMaster(ctx, keyRecordFile, rec.Encode(), gen); err != nil {
		return err
	}
	n.log.Info("gossip key rotation started", "removed_nodes", len(removed))
	return nil
}

// followKeyStage makes this node use the keys of the stage, and fetches missing ones. A node that returns does not need the old key once
// the others encrypt with the new one.
func (n *Node) followKeyStage(ctx context.Context, rec *rollover.KeyRecord) error {
	have := n.gossipKeys()
	var keys [][]byte
	for i, id := range rec.Keys() {
		key := keyOf(have, id)
		if key == nil && (i == 0 || rec.Stage == rollover.Install) {
			var err error
			if key, err = n.fetchGossipKey(ctx, id); err != nil {
				if i > 0 { // keep the old key, which is in use: the rotation may restart with it
					err = errors.Join(err, n.setGossipKeys(keys))
				}
				return err
			}
		}
		if key != nil {
			keys = append(keys, key)
		}
	}
	return n.setGossipKeys(keys)
}

// keyLostError means that no called node has a gossip key.
type keyLostError struct {
	// unreachable nodes did not answer.
	unreachable []string
}

func (e *keyLostError) Error() string {
	if len(e.unreachable) == 0 {
		return "no other node has the gossip key"
	}
	return fmt.Sprintf("no node that answers has the gossip key; no answer from %s: start them, or remove nodes that are lost for good",
		strings.Join(e.unreachable, ", "))
}

// forGood reports whether the rotation must restart. A key that is being installed is not in use. Later, nodes that do not answer may be
// using it.
func (e *keyLostError) forGood(stage rollover.KeyStage) bool {
	return stage == rollover.Install || len(e.unreachable) == 0
}

// fetchGossipKey fetches a key from another node of the cluster, within half of the time of a step. Errors: *keyLostError, those of the
// lock service.
func (n *Node) fetchGossipKey(ctx context.Context, id rollover.KeyID) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, renewalTimeout/2)
	defer cancel()
	all, err := n.members.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	ids := n.issuers() // the master, which has it first
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, x := range all {
		if x.ID != n.id() && !slices.Contains(ids, x.ID) {
			ids = append(ids, x.ID)
		}
	}
	lost := &keyLostError{}
	for _, from := range ids {
		key, err := n.askGossipKey(ctx, from, id)
		if err != nil {
			lost.unreachable = append(lost.unreachable, from)
			n.log.Debug("gossip key not received", "node", from, "err", err)
		}
		if key != nil {
			return key, nil
		}
	}
	slices.Sort(lost.unreachable) // the error is logged when it changes
	return nil, lost
}

// askGossipKey calls one node for a key. It returns nil if the node does not have it.
func (n *Node) askGossipKey(ctx context.Context, from string, id rollover.KeyID) (key []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, keyAskTimeout)
	defer cancel()
	err = n.peers.Call(ctx, from, methodGossipKey, func(e *wire.Encoder) {
		e.Array(1)
		e.Bin(id[:])
	}, func(d *wire.Decoder) error {
		if !d.IsNil() {
			key = bytes.Clone(d.Bytes())
		}
		return d.Err()
	})
	if err == nil && key != nil && rollover.IDOfKey(key) != id {
		return nil, errors.New("the node sent another key")
	}
	return key, err
}

// setGossipKeys makes the node use these gossip keys; the first encrypts. They are written to the disk first.
func (n *Node) setGossipKeys(keys [][]byte) error {
	if slices.EqualFunc(n.gossipKeys(), keys, bytes.Equal) {
		return nil
	}
	if err := n.keys().SetGossipKeys(keys); err != nil {
		return fmt.Errorf("write the gossip keys: %w", err)
	}
	n.security.gossipKeys.Store(&keys)
	if n.members.Ring() == nil {
		return nil
	}
	return n.members.Ring().SetKeys(keys)
}

// reportKeyProgress records that this node has completed the stage.
func (n *Node) reportKeyProgress(ctx context.Context, rec *rollover.KeyRecord) error {
	return n.report(ctx, path.Join(keyProgressDir, n.id()), rec)
}

// waitingForKey returns the nodes that gossip sees and that have not completed the stage. Others fetch the keys when they return.
func (n *Node) waitingForKey(ctx context.Context, rec *rollover.KeyRecord) ([]string, error) {
	all, err := n.members.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, x := range all {
		if x.State == gossip.Alive {
			ids = append(ids, x.ID)
		}
	}
	progress, err := n.progressOf(ctx, keyProgressDir, ids)
	if err != nil {
		return nil, err
	}
	return rollover.Waiting(rec, ids, progress), nil
}

package gossipkey

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

// MethodKey returns the gossip key with an id: bytes, or nil if the node does not have it.
const MethodKey = "security.gossip_key"

const (
	// askTimeout bounds one call of MethodKey: any other node may have the key. giveTimeout bounds the serving of it.
	askTimeout  = 2 * time.Second
	giveTimeout = 10 * time.Second
)

// give serves MethodKey.
func (s *Service) give(c *rpc.Call) {
	c.SetTimeout(giveTimeout)
	var id rollover.KeyID
	if b := c.Params.Bytes(); c.Params.Err() != nil || copy(id[:], b) != len(id) || len(b) != len(id) {
		c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s: want the id of a key, of %d bytes", MethodKey, len(id)))
		return
	}
	key, err := s.KeyFor(c.Context(), authz.SubjectOf(c).Peer, id)
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
}

// KeyFor returns the key with that id for a node that was not removed; nil if this node does not have it.
func (s *Service) KeyFor(ctx context.Context, to pki.Peer, id rollover.KeyID) ([]byte, error) {
	if err := s.Removed.Check(ctx, to.Name); errors.Is(err, removal.ErrRemoved) {
		return nil, &rpc.Error{Code: rpc.CodePermissionDenied, Message: err.Error()}
	} else if err != nil {
		return nil, err
	}
	key := keyOf(s.Keys(), id)
	if key != nil {
		s.Log.Info("gossip key sent", "node", to.Name)
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

// lostError means that no called node has a gossip key.
type lostError struct {
	// unreachable nodes did not answer.
	unreachable []string
}

func (e *lostError) Error() string {
	if len(e.unreachable) == 0 {
		return "no other node has the gossip key"
	}
	return fmt.Sprintf("no node that answers has the gossip key; no answer from %s: start them, or remove nodes that are lost for good",
		strings.Join(e.unreachable, ", "))
}

// forGood reports whether the rotation must restart. A key that is being installed is not in use. Later, nodes that do not answer may be
// using it.
func (e *lostError) forGood(stage rollover.KeyStage) bool {
	return stage == rollover.Install || len(e.unreachable) == 0
}

// fetch fetches a key from another node of the cluster, within half of the time of a step. Errors: *lostError, those of the
// lock service.
func (s *Service) fetch(ctx context.Context, id rollover.KeyID) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout/2)
	defer cancel()
	all, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	ids := s.Issuers() // the master, which has it first
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, x := range all {
		if x.ID != s.ID() && !slices.Contains(ids, x.ID) {
			ids = append(ids, x.ID)
		}
	}
	lost := &lostError{}
	for _, from := range ids {
		key, err := s.ask(ctx, from, id)
		if err != nil {
			lost.unreachable = append(lost.unreachable, from)
			s.Log.Debug("gossip key not received", "node", from, "err", err)
		}
		if key != nil {
			return key, nil
		}
	}
	slices.Sort(lost.unreachable) // the error is logged when it changes
	return nil, lost
}

// ask calls one node for a key. It returns nil if the node does not have it.
func (s *Service) ask(ctx context.Context, from string, id rollover.KeyID) (key []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err = s.Peers.Call(ctx, from, MethodKey, func(e *wire.Encoder) {
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

package authority

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
)

// ErrNoKey means that the nodes that were called do not have the authority's key.
var ErrNoKey = errors.New("no other voter has the authority's key: no host can join and no certificate can be renewed until ca.key is restored from a copy")

const (
	keepPause = 30 * time.Second
	keepRetry = 2 * time.Second
	// keepTimeout bounds one check: the master answers at once.
	keepTimeout = 5 * time.Second
)

func (s *Service) keys() keydir.Dir { return s.Transport().Keys }

// TakeFrom is Take for a new voter, from the master's node. A voter without the key is better than no voter.
func (s *Service) TakeFrom(ctx context.Context, masterID string) error {
	err := s.Take(ctx, []string{masterID})
	if errors.Is(err, ErrNoKey) {
		return nil
	}
	return err
}

// Take fetches the authority's key for this node, which votes or is about to. The caller holds the voter's lock. Errors: ErrNoKey, those of
// the called nodes, and of the disk.
func (s *Service) Take(ctx context.Context, from []string) error {
	if s.Transport() == nil || s.Holds() {
		return nil
	}
	var key []byte
	var errs []error
	none := false
	for _, id := range from {
		got, err := s.askKey(ctx, id, nil)
		if err != nil {
			errs = append(errs, fmt.Errorf("get the authority's key from node %s: %w", id, err))
			continue
		}
		if key = got; key != nil {
			break
		}
		none = true
	}
	switch {
	case key == nil && none:
		return ErrNoKey
	case key == nil:
		return errors.Join(errs...)
	}
	a, err := pki.ParseAuthority(key)
	if err != nil {
		return fmt.Errorf("read the authority's key: %w", err)
	}
	if err := s.keys().SetAuthority(a); err != nil {
		return fmt.Errorf("write the authority's key: %w", err)
	}
	s.issuer.Store(a)
	s.Log.Info("authority key received: node signs certificates")
	return nil
}

// Keep fetches the authority's key while the node votes, and deletes it while it does not, until the node closes.
func (s *Service) Keep() {
	if s.Transport() == nil {
		return
	}
	logged := ""
	for {
		_, changed := s.Voter().Votes()
		wait := keepPause
		if err := s.settle(); err != nil && s.Ctx.Err() == nil {
			wait = keepRetry
			if text := err.Error(); text != logged {
				s.Log.Warn("authority key not settled; retrying", "err", err)
				logged = text
			}
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-s.Ctx.Done():
			return
		}
	}
}

// settle takes or drops the key, if the node votes without it, or has it without a vote.
func (s *Service) settle() error {
	ctx, cancel := context.WithTimeout(s.Ctx, keepTimeout)
	defer cancel()
	votes := s.votes()
	from := s.Issuers()
	if len(from) == 0 || votes == s.Holds() {
		return nil
	}
	if !votes {
		return s.drop(ctx, from[0])
	}
	voter := s.Voter()
	voter.Lock()
	defer voter.Unlock()
	if !s.votes() {
		return nil
	}
	return s.Take(ctx, from)
}

// drop deletes the authority's key on this node, which does not vote, once it is certain that another node, usually the
// master, has it: the key cannot be recreated.
func (s *Service) drop(ctx context.Context, other string) error {
	var theirs []byte
	err := s.Peers.Call(ctx, other, MethodIssuer, func(e *wire.Encoder) { e.Array(0) }, func(d *wire.Decoder) error {
		if !d.IsNil() {
			theirs = bytes.Clone(d.Bytes())
		}
		return d.Err()
	})
	if err != nil {
		return err
	}
	own := s.issuer.Load().Fingerprint()
	if !bytes.Equal(theirs, own[:]) {
		return fmt.Errorf("node %s does not have the authority's key, so this node keeps it although it does not vote", other)
	}
	voter := s.Voter()
	voter.Lock()
	defer voter.Unlock()
	if s.votes() {
		return nil // it votes again
	}
	if err := s.keys().DropAuthority(); err != nil {
		return err
	}
	s.issuer.Store(nil)
	s.next.Store(nil)
	s.Log.Info("authority key deleted: node does not vote")
	return nil
}

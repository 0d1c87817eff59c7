package bigtable

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/errcode"
)

const (
	// profilesFresh is how long a read of the app profiles is used before a request reads them again. Others use the former read meanwhile.
	profilesFresh = 5 * time.Second
	// profilesMax is how old a read may be. Requests then wait for another one.
	profilesMax = 30 * time.Second
	// profilesMissed is the time after a read for which a profile that it does not have does not exist: a client can ask for such a profile all the time.
	profilesMissed = 200 * time.Millisecond
	// profilesTimeout bounds a read that requests wait for, and profilesWait one for which the former read is still good.
	profilesTimeout, profilesWait = 5 * time.Second, 500 * time.Millisecond
)

// profile is an app profile in use. It is never changed.
type profile struct {
	client.AppProfile
	counts *counts // those of the former profile with the id, if there was one
}

// profiles are the app profiles as of the last read.
type profiles struct {
	read func(context.Context) ([]client.AppProfile, error) // nil: there is only the default one
	turn chan struct{}                                      // has a place for the request that reads
	last atomic.Pointer[profileSet]
	// changes counts those that this node has made.
	changes atomic.Int64
	// nowhere counts requests that name no profile that exists.
	nowhere *counts
}

// profileSet is the result of a read. It is replaced, never changed.
type profileSet struct {
	began  time.Time // of the read; zero: another one is due
	tried  time.Time // when the last read since failed
	failed error     // of that read; nil if there is none
	byID   map[string]*profile
}

func (p *profiles) init(read func(context.Context) ([]client.AppProfile, error)) {
	p.read, p.turn, p.nowhere = read, make(chan struct{}, 1), newCounts()
	only := api.NewDefaultAppProfile()
	p.last.Store(&profileSet{byID: map[string]*profile{only.ID: {only, newCounts()}}})
}

// of returns the profile with an id, "" for the default one. It reads the profiles only if the last read is too old. Errors are statuses.
func (p *profiles) of(ctx context.Context, id string) (*profile, error) {
	if id == "" {
		id = api.DefaultAppProfile
	}
	now, set := time.Now(), p.last.Load()
	found, fresh := set.byID[id], profilesMissed
	if found != nil {
		fresh = profilesFresh
	}
	age := now.Sub(set.began)
	switch {
	case p.read == nil || age < fresh:
		return found.orMissing(id)
	case found != nil && age < profilesMax:
		p.tryRenew(ctx)
	default:
		if err := p.awaitRenewed(ctx, set.began, now); err != nil {
			return nil, errcode.Convert(err, errcode.Repeatable)
		}
	}
	return p.last.Load().byID[id].orMissing(id)
}

// tryRenew reads the profiles unless another request does, or one has failed to a moment ago. The last read is still good.
func (p *profiles) tryRenew(ctx context.Context) {
	select {
	case p.turn <- struct{}{}:
	default:
		return
	}
	defer func() { <-p.turn }()
	if set := p.last.Load(); time.Since(set.began) >= profilesFresh && time.Since(set.tried) >= profilesWait {
		_ = p.renew(ctx, set, profilesWait)
	}
}

// awaitRenewed waits for a read that began after another one. A read that fails after the request has come is not repeated for it.
func (p *profiles) awaitRenewed(ctx context.Context, after, came time.Time) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
	set := p.last.Load()
	if set.began.After(after) {
		return nil
	}
	err := set.failed
	if !set.tried.After(came) {
		err = p.renew(ctx, set, profilesTimeout)
	}
	if err != nil {
		return fmt.Errorf("%w: app profiles are not known: %s", client.ErrUnavailable, err.Error())
	}
	return nil
}

func (f *profile) orMissing(id string) (*profile, error) {
	if f == nil {
		return nil, status.Errorf(codes.NotFound, "App profile %.80q not found.", id)
	}
	return f, nil
}

// renew reads the profiles. Its caller has the turn, and old is the last read.
func (p *profiles) renew(parent context.Context, old *profileSet, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(parent, timeout)
	defer cancel()
	set, changes := &profileSet{began: time.Now(), byID: map[string]*profile{}}, p.changes.Load()
	all, err := p.read(ctx)
	if err != nil {
		if parent.Err() == nil {
			p.last.CompareAndSwap(old, &profileSet{old.began, time.Now(), err, old.byID})
		}
		return err
	}
	for i := range all {
		one := &profile{AppProfile: all[i], counts: newCounts()}
		if was := old.byID[one.ID]; was != nil {
			one.counts = was.counts
		}
		set.byID[one.ID] = one
	}
	p.last.Store(set)
	if p.changes.Load() != changes { // one was made meanwhile
		p.last.Store(&profileSet{byID: set.byID})
	}
	return nil
}

// ProfilesChanged makes the next request read the app profiles: this node has changed one.
func (s *Service) ProfilesChanged() {
	p := &s.profiles
	p.changes.Add(1)
	for {
		set := p.last.Load()
		if p.last.CompareAndSwap(set, &profileSet{byID: set.byID}) {
			return
		}
	}
}

// use is what a request does with its app profile.
type use uint8

const (
	useAny       use = iota
	useTransact      // CheckAndMutateRow and ReadModifyWriteRow
	useOfChanges     // the change stream
)

var (
	errNotTransactional = status.Error(codes.FailedPrecondition,
		"The app profile does not allow single-row transactions: allow_transactional_writes of its single_cluster_routing must be set, or another app profile used.")
	errNotSingle = status.Error(codes.FailedPrecondition, "Change streams need an app profile with single_cluster_routing.")
)

// profile returns the app profile of a request, "" for the default one, and counts the request for it. Errors are statuses.
func (s *Service) profile(ctx context.Context, id string, use use) error {
	p, err := s.profiles.of(ctx, id)
	if err != nil {
		return err
	}
	if h, ok := ctx.Value(headedKey{}).(*headed); ok {
		h.counts = p.counts
	}
	switch {
	case use == useTransact && !p.Transactional:
		return errNotTransactional
	case use == useOfChanges && p.Routing != api.RoutingSingle:
		return errNotSingle
	}
	return nil
}

package acl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/steledb/stele/table"
)

// Paths of rights in the namespace of the lock service.
const (
	// EpochFile is written last by each change below /acl. Its generation is the epoch.
	EpochFile = "/acl/epoch"
	// ClusterFile holds the grants on the cluster.
	ClusterFile = "/acl/cluster"
)

// TableFile returns the path of the grants on a table.
func TableFile(id uint64) string { return "/acl/tables/" + strconv.FormatUint(id, 10) }

// PolicyFile returns the path of the grants on a table, or on the cluster if the id is Cluster.
func PolicyFile(id uint64) string {
	if id == Cluster {
		return ClusterFile
	}
	return TableFile(id)
}

// PrincipalFile returns the path of a principal's record.
func PrincipalFile(name string) string { return "/acl/principals/" + name }

// Files is the part of the node's lock service session that a Cache needs.
type Files interface {
	// Epoch returns the epoch. The session caches the epoch file from then on. Errors: those of a
	// read, such as the lack of a leader.
	Epoch(ctx context.Context) (uint64, error)
	// Holds reports, without a request, whether the session's lease is certain and the epoch file
	// is cached at that generation. The epoch is then unchanged.
	Holds(epoch uint64) bool
	// Get returns the content of a file at some point between call and return, or nil if it does
	// not exist. Errors: those of a read.
	Get(ctx context.Context, path string) ([]byte, error)
}

const (
	// viewsMax bounds the views, principals and policies in a Cache: a few hundred bytes each for
	// tables with few families and grants.
	viewsMax = 20_000
	// grantsPerView is the number of grants that take about as much memory as a view.
	grantsPerView = 4
	// attemptsMax is the number of attempts to read rights that change while they are read.
	attemptsMax = 5
)

// Cache caches the current rights of principals. It is safe for concurrent use.
type Cache struct {
	files Files

	// mu guards the fields in it and is never held across a read of files.
	mu struct {
		sync.RWMutex
		epoch      uint64 // of all cached entries
		views      map[viewKey]*View
		principals map[string]*Principal // nil for a name without a principal
		// policies are the grants on the cluster and on the tables that were read.
		policies map[uint64]*Policy
		// weight is the total size of all entries, in units of a view.
		weight int
	}
}

type viewKey struct {
	principal string
	table     uint64
}

// NewCache returns an empty cache.
func NewCache(f Files) *Cache {
	c := &Cache{files: f}
	c.resetLocked(0)
	return c
}

func (c *Cache) resetLocked(epoch uint64) {
	c.mu.epoch = epoch
	c.mu.views, c.mu.principals, c.mu.policies = map[viewKey]*View{}, map[string]*Principal{}, map[uint64]*Policy{}
	c.mu.weight = 0
}

// Ticket identifies the epoch at which rights were checked. A server checks rights when a request
// arrives, and checks that the ticket still holds before it answers.
type Ticket struct{ epoch uint64 }

// Holds reports whether no right has changed since the ticket was issued. It makes no request. It
// returns false if that is not certain.
func (c *Cache) Holds(t Ticket) bool { return c.files.Holds(t.epoch) }

// View returns a principal's view of a table, if generation, that of its certificate or token, is
// valid. Errors: ErrUnknownPrincipal, ErrDisabled, ErrRevoked, ErrUncertain, *RecordError, those of
// Files.
func (c *Cache) View(ctx context.Context, principal string, generation uint64, s *table.Schema) (*View, Ticket, error) {
	if v, t, err := c.ViewNow(principal, generation, s); v != nil || err != nil {
		return v, t, err
	}
	key := viewKey{principal, s.ID}
	var v *View
	t, err := c.readConsistent(ctx, func(epoch uint64) error {
		if err := c.check(ctx, principal, generation, epoch); err != nil {
			return err
		}
		cluster, err := c.grants(ctx, Cluster, epoch)
		if err != nil {
			return err
		}
		grants, err := c.grants(ctx, s.ID, epoch)
		if err != nil {
			return err
		}
		v = NewView(principal, cluster, grants, s)
		c.insert(epoch, 1, func() { c.mu.views[key] = v })
		return nil
	})
	if err != nil {
		return nil, t, err
	}
	return v, t, nil
}

// ViewNow is View from the cache only. It returns nil and no error if the lock service would have
// to be read.
func (c *Cache) ViewNow(principal string, generation uint64, s *table.Schema) (*View, Ticket, error) {
	c.mu.RLock()
	epoch, v, p := c.mu.epoch, c.mu.views[viewKey{principal, s.ID}], c.mu.principals[principal]
	c.mu.RUnlock()
	if v == nil || v.schema != s || p == nil || !c.files.Holds(epoch) {
		return nil, Ticket{}, nil
	}
	if err := p.Check(generation); err != nil {
		return nil, Ticket{epoch}, err
	}
	return v, Ticket{epoch}, nil
}

// Sees reports whether a principal has any right on a table or on one of its families. It does not
// use the table's schema, so grants on dropped families count until they are removed. Errors: those
// of View.
func (c *Cache) Sees(ctx context.Context, principal string, generation, table uint64) (sees bool, t Ticket, err error) {
	t, err = c.readConsistent(ctx, func(epoch uint64) error {
		if err := c.check(ctx, principal, generation, epoch); err != nil {
			return err
		}
		cluster, err := c.grants(ctx, Cluster, epoch)
		if err != nil {
			return err
		}
		if sees = cluster.Rights(principal)&^Monitor != 0; sees {
			return nil
		}
		grants, err := c.grants(ctx, table, epoch)
		if err == nil {
			grants.visit(principal, func(Grant) { sees = true })
		}
		return err
	})
	return sees, t, err
}

// Check returns nil if the principal is enabled and the generation of its certificate or token is
// valid. Errors: those of View.
func (c *Cache) Check(ctx context.Context, principal string, generation uint64) (Ticket, error) {
	return c.readConsistent(ctx, func(epoch uint64) error { return c.check(ctx, principal, generation, epoch) })
}

// CertificateRevoked reports whether the principal's certificate with that serial number was
// revoked individually, as of a ticket issued to the principal. known is false if the cache has
// moved to another epoch since, or does not hold the principal.
func (c *Cache) CertificateRevoked(t Ticket, principal, serial string) (revoked, known bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p, cached := c.mu.principals[principal]
	if c.mu.epoch != t.epoch || !cached {
		return false, false
	}
	return p != nil && p.Revoked(serial), true
}

// CertificateRevokedNow is CertificateRevoked as of the current epoch. known is also false if that
// epoch is not certain.
func (c *Cache) CertificateRevokedNow(principal, serial string) (revoked, known bool) {
	c.mu.RLock()
	t := Ticket{c.mu.epoch}
	c.mu.RUnlock()
	if !c.Holds(t) {
		return false, false
	}
	return c.CertificateRevoked(t, principal, serial)
}

func (c *Cache) check(ctx context.Context, principal string, generation, epoch uint64) error {
	p, err := c.principal(ctx, principal, epoch)
	if err != nil {
		return err
	}
	return p.Check(generation)
}

// CheckCluster returns nil if the principal has the right on the cluster. Errors: those of View,
// and *DeniedError.
func (c *Cache) CheckCluster(ctx context.Context, principal string, generation uint64, right Rights) (Ticket, error) {
	return c.readConsistent(ctx, func(epoch uint64) error {
		if err := c.check(ctx, principal, generation, epoch); err != nil {
			return err
		}
		cluster, err := c.grants(ctx, Cluster, epoch)
		if err != nil {
			return err
		}
		return cluster.Check(principal, right)
	})
}

// CheckNow is Check from the cache only. known is false if the lock service would have to be read.
func (c *Cache) CheckNow(principal string, generation uint64) (err error, known bool) {
	c.mu.RLock()
	epoch := c.mu.epoch
	p, cached := c.mu.principals[principal]
	c.mu.RUnlock()
	switch {
	case !cached || !c.files.Holds(epoch):
		return nil, false
	case p == nil:
		return ErrUnknownPrincipal, true
	}
	return p.Check(generation), true
}

// CheckClusterNow is CheckCluster from the cache only. known is false if the lock service would
// have to be read.
func (c *Cache) CheckClusterNow(principal string, generation uint64, right Rights) (err error, known bool) {
	if err, known := c.CheckNow(principal, generation); err != nil || !known { // CheckCluster fails the same way before it reads the grants
		return err, known
	}
	c.mu.RLock()
	epoch, cluster := c.mu.epoch, c.mu.policies[Cluster]
	c.mu.RUnlock()
	if cluster == nil || !c.files.Holds(epoch) {
		return nil, false
	}
	return cluster.Check(principal, right), true
}

// readConsistent calls read until the epoch did not change during the call. The result of that
// call, including an error about rights, is then valid at that epoch. Errors: ErrUncertain after
// attemptsMax attempts.
func (c *Cache) readConsistent(ctx context.Context, read func(epoch uint64) error) (Ticket, error) {
	for range attemptsMax {
		epoch, err := c.files.Epoch(ctx)
		if err != nil {
			return Ticket{}, fmt.Errorf("read the epoch of rights: %w", err)
		}
		err = read(epoch)
		if ctx.Err() != nil {
			return Ticket{}, ctx.Err()
		}
		if c.files.Holds(epoch) {
			return Ticket{epoch}, err
		}
	}
	return Ticket{}, ErrUncertain
}

// insert calls store under the lock unless epoch is older than the cached one. A later epoch, or an
// excess of weight, empties the cache first. weight is the size of the new entry in units of a
// view.
func (c *Cache) insert(epoch uint64, weight int, store func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch < c.mu.epoch {
		return
	}
	if epoch > c.mu.epoch || c.mu.weight+weight > viewsMax {
		c.resetLocked(epoch)
	}
	c.mu.weight += weight
	store()
}

// principal returns the record of a principal. The absence of a record is cached too, because a
// removed principal may keep sending requests.
func (c *Cache) principal(ctx context.Context, name string, epoch uint64) (*Principal, error) {
	c.mu.RLock()
	p, known := c.mu.principals[name]
	known = known && c.mu.epoch == epoch
	c.mu.RUnlock()
	if !known {
		b, err := c.files.Get(ctx, PrincipalFile(name))
		if err != nil {
			return nil, fmt.Errorf("read the record of principal %s: %w", name, err)
		}
		if p, err = decodeNamed(name, b); err != nil {
			return nil, err
		}
		c.insert(epoch, 1, func() { c.mu.principals[name] = p })
	}
	if p == nil {
		return nil, ErrUnknownPrincipal
	}
	return p, nil
}

// decodeNamed decodes the record of the named principal. It returns nil for nil bytes.
func decodeNamed(name string, b []byte) (*Principal, error) {
	if b == nil {
		return nil, nil
	}
	p, err := DecodePrincipal(b)
	if err != nil {
		return nil, err
	}
	if p.Name != name {
		return nil, &RecordError{"principal", fmt.Errorf("record of principal %s has the name %s", name, p.Name)}
	}
	return p, nil
}

// grants returns the grants on a table or on the cluster.
func (c *Cache) grants(ctx context.Context, table, epoch uint64) (*Policy, error) {
	c.mu.RLock()
	p, current := c.mu.policies[table], c.mu.epoch == epoch
	c.mu.RUnlock()
	if p != nil && current {
		return p, nil
	}
	path := ClusterFile
	if table != Cluster {
		path = TableFile(table)
	}
	p, err := c.policy(ctx, path, table)
	if err != nil {
		return nil, err
	}
	c.insert(epoch, 1+len(p.Grants)/grantsPerView, func() { c.mu.policies[table] = p })
	return p, nil
}

// policy reads a file of grants. A missing file grants nothing.
func (c *Cache) policy(ctx context.Context, path string, table uint64) (*Policy, error) {
	b, err := c.files.Get(ctx, path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read grants %s: %w", path, err)
	case b == nil:
		return &Policy{Table: table}, nil
	}
	p, err := DecodePolicy(b)
	if err == nil && p.Table != table {
		err = &RecordError{"grants", errors.New("it is of another table")}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

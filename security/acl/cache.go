package acl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/steledb/stele/table"
)

// Where rights are kept in the namespace of the lock service.
const (
	// EpochFile is written last by each change of what is below /acl. Its generation is
	// the epoch.
	EpochFile = "/acl/epoch"
	// ClusterFile has the grants on the cluster.
	ClusterFile = "/acl/cluster"
)

// TableFile returns where the grants on a table are.
func TableFile(id uint64) string { return "/acl/tables/" + strconv.FormatUint(id, 10) }

// PrincipalFile returns where a principal's record is.
func PrincipalFile(name string) string { return "/acl/principals/" + name }

// Files is what a Cache needs of the node's session with the lock service.
type Files interface {
	// Epoch returns the epoch, and has the file cached from then on. Errors: those of a
	// read, such as when there is no leader.
	Epoch(ctx context.Context) (uint64, error)
	// Holds tells, asking nobody, whether the session's lease is sure and the epoch file
	// is cached at that generation: it has not changed then.
	Holds(epoch uint64) bool
	// Get returns what a file holds, at some moment between call and return; nil if
	// there is none. Errors: those of a read.
	Get(ctx context.Context, path string) ([]byte, error)
}

const (
	// viewsMax bounds the views, principals and policies that a Cache keeps, some hundred
	// bytes each for tables with few families and grants.
	viewsMax = 20_000
	// grantsPerView is how many grants take about as much as a view.
	grantsPerView = 4
	// triesMax is how often rights are read anew when they change while they are read.
	triesMax = 5
)

// Cache knows the rights of principals as of now. It is safe for concurrent use.
type Cache struct {
	files Files

	// mu guards the fields in it. Never held across a read.
	mu struct {
		sync.RWMutex
		epoch uint64 // of what is kept
		views map[viewKey]*View
		known map[string]*Principal // nil: there is none of that name
		// policies are the grants on tables that were read, and on the cluster.
		policies map[uint64]*Policy
		// weight is of all that, in views.
		weight int
	}
}

type viewKey struct {
	principal string
	table     uint64
}

// NewCache returns a cache that is empty.
func NewCache(f Files) *Cache {
	c := &Cache{files: f}
	c.resetLocked(0)
	return c
}

func (c *Cache) resetLocked(epoch uint64) {
	c.mu.epoch = epoch
	c.mu.views, c.mu.known, c.mu.policies = map[viewKey]*View{}, map[string]*Principal{}, map[uint64]*Policy{}
	c.mu.weight = 0
}

// Ticket is when rights were seen to hold. They are looked at when a request comes, and
// the ticket again before its answer goes out.
type Ticket struct{ epoch uint64 }

// Holds tells whether no right has changed since the ticket was given out. It asks
// nobody. False also when that is not sure.
func (c *Cache) Holds(t Ticket) bool { return c.files.Holds(t.epoch) }

// View returns the view of a table by a principal with a certificate or token of that
// generation. Errors: ErrUnknownPrincipal, ErrDisabled, ErrRevoked, ErrUncertain,
// *RecordError, those of Files.
func (c *Cache) View(ctx context.Context, principal string, generation uint64, s *table.Schema) (*View, Ticket, error) {
	if v, t, err := c.ViewNow(principal, generation, s); v != nil || err != nil {
		return v, t, err
	}
	key := viewKey{principal, s.ID}
	var v *View
	t, err := c.steady(ctx, func(epoch uint64) error {
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
		c.keep(epoch, 1, func() { c.mu.views[key] = v })
		return nil
	})
	if err != nil {
		return nil, t, err
	}
	return v, t, nil
}

// ViewNow is View for who cannot wait: it returns nil and no error if somebody would have
// to be asked.
func (c *Cache) ViewNow(principal string, generation uint64, s *table.Schema) (*View, Ticket, error) {
	c.mu.RLock()
	epoch, v, p := c.mu.epoch, c.mu.views[viewKey{principal, s.ID}], c.mu.known[principal]
	c.mu.RUnlock()
	if v == nil || v.schema != s || p == nil || !c.files.Holds(epoch) {
		return nil, Ticket{}, nil
	}
	if err := p.Check(generation); err != nil {
		return nil, Ticket{epoch}, err
	}
	return v, Ticket{epoch}, nil
}

// Sees tells whether a principal has any right on a table or a family of it, without the
// table's schema: also on a family that was dropped, if its grants were not. Errors: those
// of View.
func (c *Cache) Sees(ctx context.Context, principal string, generation, table uint64) (sees bool, t Ticket, err error) {
	t, err = c.steady(ctx, func(epoch uint64) error {
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
			grants.of(principal, func(Grant) { sees = true })
		}
		return err
	})
	return sees, t, err
}

// Check returns nil if a certificate or token of that generation lets the principal in.
// Errors: those of View.
func (c *Cache) Check(ctx context.Context, principal string, generation uint64) (Ticket, error) {
	return c.steady(ctx, func(epoch uint64) error { return c.check(ctx, principal, generation, epoch) })
}

// CertificateRevoked reports whether a principal's certificate with that serial number was revoked by itself, as of a ticket
// that the principal got. It is not known if other rights were read since.
func (c *Cache) CertificateRevoked(t Ticket, principal, serial string) (revoked, known bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p, looked := c.mu.known[principal]
	if c.mu.epoch != t.epoch || !looked {
		return false, false
	}
	return p != nil && p.Revoked(serial), true
}

// CertificateRevokedNow is CertificateRevoked as of now.
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

// CheckCluster returns nil if the principal has the right on the cluster. Errors: those of
// View, and *DeniedError.
func (c *Cache) CheckCluster(ctx context.Context, principal string, generation uint64, right Rights) (Ticket, error) {
	return c.steady(ctx, func(epoch uint64) error {
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

// CheckNow is Check for who cannot wait: known is false if somebody would have to be asked.
func (c *Cache) CheckNow(principal string, generation uint64) (err error, known bool) {
	c.mu.RLock()
	epoch := c.mu.epoch
	p, looked := c.mu.known[principal]
	c.mu.RUnlock()
	switch {
	case !looked || !c.files.Holds(epoch):
		return nil, false
	case p == nil:
		return ErrUnknownPrincipal, true
	}
	return p.Check(generation), true
}

// CheckClusterNow is CheckCluster for who cannot wait: known is false if somebody would have
// to be asked.
func (c *Cache) CheckClusterNow(principal string, generation uint64, right Rights) (err error, known bool) {
	if err, known := c.CheckNow(principal, generation); err != nil || !known { // the grants were not read for him
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

// steady calls read until nothing has changed meanwhile: what it has found then, an
// error about rights as well, holds at that moment.
func (c *Cache) steady(ctx context.Context, read func(epoch uint64) error) (Ticket, error) {
	for range triesMax {
		epoch, err := c.files.Epoch(ctx)
		if err != nil {
			return Ticket{}, fmt.Errorf("find the epoch of rights: %w", err)
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

// keep runs store under the lock if what it stores is of the epoch that is kept, or of a
// later one. Weight is how many views that is in memory.
func (c *Cache) keep(epoch uint64, weight int, store func()) {
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

// principal returns the record of a principal. That there is none is kept, too: who was
// removed may go on asking.
func (c *Cache) principal(ctx context.Context, name string, epoch uint64) (*Principal, error) {
	c.mu.RLock()
	p, known := c.mu.known[name]
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
		c.keep(epoch, 1, func() { c.mu.known[name] = p })
	}
	if p == nil {
		return nil, ErrUnknownPrincipal
	}
	return p, nil
}

// decodeNamed reads the record of the principal of that name; nil if there are no bytes.
func decodeNamed(name string, b []byte) (*Principal, error) {
	if b == nil {
		return nil, nil
	}
	p, err := DecodePrincipal(b)
	if err != nil {
		return nil, err
	}
	if p.Name != name {
		return nil, &RecordError{"principal", fmt.Errorf("record of %s is that of %s", name, p.Name)}
	}
	return p, nil
}

// grants returns the grants on a table, or on the cluster.
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
	c.keep(epoch, 1+len(p.Grants)/grantsPerView, func() { c.mu.policies[table] = p })
	return p, nil
}

// policy reads the grants of a file. One that is not there grants nothing.
func (c *Cache) policy(ctx context.Context, path string, table uint64) (*Policy, error) {
	b, err := c.files.Get(ctx, path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the grants %s: %w", path, err)
	case b == nil:
		return &Policy{Table: table}, nil
	}
	p, err := DecodePolicy(b)
	if err == nil && p.Table != table {
		err = &RecordError{"grants", errors.New("they are of another table")}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

package quotas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/peers"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// quotas has this node's view of the quotas (package quota), read from the lock service when their epoch changes, and the shares assigned
// by the master.
type quotas struct {
	began time.Time // start of the meters' clock
	// meters has the current meters; nil without quotas, which is all that a request checks then.
	meters atomic.Pointer[meterSet]
	// over has the tables that may not grow, by name; nil if there are none.
	over atomic.Pointer[map[string]*api.QuotaError]

	// Used while this node is the master.
	master quota.Allocator
	ledger quota.Ledger

	// changed passes channels of callers that wait for a change to take effect: Follow closes them.
	changed chan chan struct{}

	// Used by Follow only.
	reporter quota.Reporter
	epoch    uint64 // last read
	// files are those of the tables with a quota, by id, when the quotas were read. The quotas are read again when one has changed.
	files  map[uint64]tableFile
	gone   time.Time
	unread loglimit.OnChange
}

// Service manages quotas and the ownership of tables, and charges requests. On the master it divides rates among
// servers.
type Service struct {
	Config
	records records
	state   quotas
}

// Config has what the service needs of the node.
type Config struct {
	Ctx     context.Context // ends when the node closes
	Began   time.Time       // of the meters' clock
	Log     *slog.Logger
	Catalog *namespace.Catalog
	Meta    *namespace.Access
	Authz   *authz.Authorizer
	Changes *changes.Changes
	Peers   *peers.Set
	Epochs  *command.Gate
	// ID returns the node's id, MasterEpoch the epoch of its mastership, 0 if it is not the master.
	ID          func() string
	MasterEpoch func() uint64
	// CheckUser returns api.ErrNoUser for an unknown user.
	CheckUser func(ctx context.Context, name string) error
	Members   func() []blobfs.Member
	// Usage returns the usage of all tables, from all nodes.
	Usage func(ctx context.Context, tableID uint64) (*api.Usage, error)
	// Server returns the current tablet server.
	Server func() Server
}

// Server is the node as a tablet server: of users' tables, and of METADATA.
type Server struct {
	Name              string
	Tablets, Metadata *tablet.Server
}

func New(cfg Config) *Service {
	qs := &Service{Config: cfg, records: records{log: cfg.Log, catalog: cfg.Catalog, meta: cfg.Meta}}
	qs.state.began, qs.state.changed = cfg.Began, make(chan chan struct{})
	return qs
}

// Register registers the methods of the service.
func (qs *Service) Register(r method.Registrar) {
	qs.handleQuotas(r)
	qs.handleOwners(r)
	qs.handleQuotaReports(r)
}

// meterSet is the quotas of an epoch. It is immutable.
type meterSet struct {
	of            map[string]*quota.Meter // by key
	tables, users map[string]*quota.Meter // by name
	bounds        []quota.Bound           // byte quotas
}

// tableFile is the name and the generation of a table's file: of a dropped table that is kept, see table.IsDropped. Generation 0 means that the
// table got another file while it was looked up.
type tableFile struct {
	name       string
	generation uint64
}

// Now returns the time of the meters' monotonic clock.
func (q *quotas) Now() int64 { return int64(time.Since(q.began)) }

// quotaOfUser and quotaOfTable return the keys of quotas between servers.
func quotaOfUser(name string) string { return "u" + name }
func quotaOfTable(id uint64) string  { return "t" + strconv.FormatUint(id, 10) }

const (
	// quotaPeriod is the interval at which a node reports its demand, and checks whether quotas have changed. Without quotas it reports nothing.
	quotaPeriod = 500 * time.Millisecond
	// quotaTimeout bounds the reading of quotas, and reportTimeout a report.
	quotaTimeout = 5 * time.Second
	// changedWait bounds how long the answer to a change waits until the change is in force on this node.
	changedWait   = time.Second
	reportTimeout = 2 * time.Second
)

// Follow keeps this node's meters current, until the node closes.
func (qs *Service) Follow() {
	last := time.Now()
	for qs.Ctx.Err() == nil {
		var changed chan struct{}
		select {
		case <-qs.Ctx.Done():
			return
		case <-time.After(quotaPeriod):
		case changed = <-qs.state.changed:
		}
		led := qs.Authz.Serving() == nil && qs.Authz.CheckLeader() == nil
		if led {
			qs.applyQuotas()
		}
		if changed != nil {
			close(changed)
		}
		if led {
			last = qs.reportQuotas(last)
		}
	}
}

// applyQuotas applies the current quotas on this node.
func (qs *Service) applyQuotas() {
	q := &qs.state
	ctx, cancel := context.WithTimeout(qs.Ctx, quotaTimeout)
	err := qs.readQuotas(ctx)
	cancel()
	if reply.LockServiceAway(err) || errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("the lock service does not answer") // logged once, not in each form
	}
	if qs.Ctx.Err() == nil {
		q.unread.WarnError(qs.Log, "read the quotas; those that were known stay", err)
	}
	set := q.meters.Load()
	if set == nil { // results for old quotas do not apply to later ones
		q.over.Store(nil)
		q.ledger.Reset()
	} else if over := q.over.Load(); over != nil {
		q.mayNotGrow(set, *over)
	}
}

// reportQuotas reports to the master this node's demand since last, and returns the time of the report.
func (qs *Service) reportQuotas(last time.Time) time.Time {
	now := time.Now()
	if set := qs.state.meters.Load(); set != nil {
		qs.reportUse(set, now.Sub(last))
		qs.forgetServers(set)
	}
	return now
}

// quotasChanged waits until changed quotas are in force on this node, or changedWait has passed. On other nodes they are in force within the
// same time.
func (qs *Service) quotasChanged(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, changedWait)
	defer cancel()
	done := make(chan struct{})
	select {
	case qs.state.changed <- done:
	case <-ctx.Done():
		return
	case <-qs.Ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-qs.Ctx.Done():
	}
}

// Await waits until the quota of a table that has another name now, or was restored, is in force on this node, or changedWait has passed.
func (qs *Service) Await(ctx context.Context, tableID uint64) {
	if r, _, err := qs.records.get(ctx, quota.TableFile(tableID)); err != nil || r != nil {
		qs.quotasChanged(ctx)
	}
}

// readQuotas rereads the quotas if they have changed, or a table with a quota was changed, dropped, restored or renamed.
func (qs *Service) readQuotas(ctx context.Context) error {
	q, s := &qs.state, qs.Meta.Current()
	epoch, cached := s.Cached(quota.EpochFile)
	if !cached {
		f, err := s.Get(ctx, quota.EpochFile)
		if errors.Is(err, metaapi.ErrNotFound) { // only existing files are cached
			_, err = qs.records.nextEpoch(ctx)
			return err
		}
		if err != nil {
			return err
		}
		epoch = f.Generation
	}
	old := q.meters.Load()
	if epoch == q.epoch && !qs.tablesChanged() {
		return nil
	}
	set, files, err := qs.loadQuotas(ctx, old)
	if err != nil {
		return err
	}
	q.epoch, q.files = epoch, files
	if len(set.of) == 0 {
		set = nil
	}
	q.meters.Store(set)
	return nil
}

// tablesChanged reports whether the file of a table with a quota may have changed.
func (qs *Service) tablesChanged() bool {
	s := qs.Meta.Current()
	for _, f := range qs.state.files {
		if now, ok := s.Cached(namespace.TablePath(f.name)); !ok || now != f.generation {
			return true
		}
	}
	return false
}

// loadQuotas reads all quotas, and returns the files of the tables with one. Existing meters are kept.
func (qs *Service) loadQuotas(ctx context.Context, old *meterSet) (*meterSet, map[uint64]tableFile, error) {
	set := &meterSet{of: map[string]*quota.Meter{}, tables: map[string]*quota.Meter{}, users: map[string]*quota.Meter{}}
	files, err := qs.loadOfTables(ctx, set, old)
	if err != nil {
		return nil, nil, err
	}
	return set, files, qs.loadOfUsers(ctx, set, old)
}

// loadOfTables adds the quotas of tables to set. Those of dropped tables are not in force.
func (qs *Service) loadOfTables(ctx context.Context, set, old *meterSet) (map[uint64]tableFile, error) {
	var names map[uint64]string // read on demand
	files := map[uint64]tableFile{}
	err := qs.records.each(ctx, quota.TablesDir, func(record string, r *quota.Record) error {
		id, err := strconv.ParseUint(record, 10, 64)
		if err != nil {
			return nil // not of a table
		}
		f, err := qs.records.findTable(ctx, id, cmp.Or(qs.state.files[id].name, r.Name), &names)
		if err != nil || f.name == "" {
			return err
		}
		files[id] = f
		if f.generation > 0 && !table.IsDropped(f.name) {
			set.tables[f.name] = qs.meterOf(set, old, quotaOfTable(id), fmt.Sprintf("table %q", f.name), r)
			set.bound(set.tables[f.name], id)
		}
		return nil
	})
	return files, err
}

// loadOfUsers adds the quotas of users to set.
func (qs *Service) loadOfUsers(ctx context.Context, set, old *meterSet) error {
	var owners map[uint64]string // read on demand
	return qs.records.each(ctx, quota.PrincipalsDir, func(name string, r *quota.Record) (err error) {
		set.users[name] = qs.meterOf(set, old, quotaOfUser(name), fmt.Sprintf("user %q", name), r)
		if r.BytesMax == 0 {
			return nil
		}
		if owners == nil {
			if owners, err = qs.records.owners(ctx); err != nil {
				return err
			}
		}
		set.bound(set.users[name], ownedBy(owners, name)...)
		return nil
	})
}

func ownedBy(owners map[uint64]string, name string) (tables []uint64) {
	for id, owner := range owners {
		if owner == name {
			tables = append(tables, id)
		}
	}
	return tables
}

// mayNotGrow sets the tables to which nothing may be added. Results for a quota that has since been raised or removed are ignored.
func (q *quotas) mayNotGrow(set *meterSet, over map[string]*api.QuotaError) {
	held := map[string]*api.QuotaError{}
	for name, o := range over {
		if slices.ContainsFunc(set.bounds, func(b quota.Bound) bool { return b.Quota == o.Quota && b.Limit <= o.Limit }) {
			held[name] = o
		}
	}
	if len(held) == 0 {
		q.over.Store(nil)
		return
	}
	q.over.Store(&held)
}

// bound records the tables that count for a byte quota.
func (set *meterSet) bound(m *quota.Meter, tables ...uint64) {
	if limit := m.Record().BytesMax; limit > 0 {
		set.bounds = append(set.bounds, quota.Bound{Key: m.Key(), Quota: m.Name() + " " + api.QuotaBytes, Limit: limit, Tables: tables})
	}
}

func (qs *Service) meterOf(set, old *meterSet, key, what string, r *quota.Record) *quota.Meter {
	now := qs.state.Now()
	if old != nil && old.of[key] != nil && old.of[key].Name() == what { // else its table was renamed
		set.of[key] = old.of[key]
		set.of[key].SetRecord(now, r)
		return set.of[key]
	}
	set.of[key] = quota.NewMeter(key, what, r, now, 1/float64(qs.aliveServers()))
	return set.of[key]
}

// aliveServers returns the number of servers that are believed to be alive, at least 1.
func (qs *Service) aliveServers() int {
	servers := 0
	for _, m := range qs.Members() {
		if m.Alive {
			servers++
		}
	}
	return max(servers, 1)
}

// Has reports whether a quota of a table is in force on this node.
func (qs *Service) Has(table string) bool {
	set := qs.state.meters.Load()
	return set != nil && set.tables[table] != nil
}

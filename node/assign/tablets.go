package assign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/roots"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/sortedrun"
)

// Config is what the package needs.
type Config struct {
	Ctx        context.Context // of the node
	Background *sync.WaitGroup
	Log        *slog.Logger
	Catalog    *namespace.Catalog
	Meta       *namespace.Access
	Metadata   *metarows.Table
	Commands   *command.Service
	Store      func() *blobfs.Store
	Members    func() []blobfs.Member
	AddressOf  func(node string) (addr string, ok bool)
	Sequencer  func() metaapi.Sequencer // of this node's mastership
}

// Tablets gives the master access to METADATA and to the tablet servers. It implements master.Tablets.
type Tablets struct {
	Config
	// done caches which recoveries are complete: that does not change.
	done map[string]bool
	// allCreated caches which tables have no split points left.
	allCreated map[uint64]bool
	// alive has the servers found by Servers: the tablets of others cannot be read.
	alive map[string]bool
	// damaged has the rows that no server acts on.
	damaged metarows.Damaged
	// reconcileFailed and unread log failures when they change.
	reconcileFailed, unread loglimit.OnChange
}

// New creates access for one candidate for master.
func New(cfg Config) *Tablets { return &Tablets{Config: cfg, allCreated: map[uint64]bool{}} }

// Begin implements master.Tablets.
func (c *Tablets) Begin(ctx context.Context) error {
	_, err := c.Metadata.Root(ctx)
	if !errors.Is(err, metarows.ErrNoRow) {
		return err
	}
	m := tablet.Meta{ID: metadata.RootTabletID, Table: metadata.TableID, End: metadata.RootEnd(), LastMajor: time.Now()}
	data := metadata.EncodeRoot(&metadata.Row{Meta: tablet.EncodeMeta(&m)})
	if _, err = c.Metadata.SetRoot(ctx, data, 0); errors.Is(err, metarows.ErrChanged) {
		return nil // another master has done it
	}
	return err
}

// Logs implements master.Tablets.
func (c *Tablets) Logs(ctx context.Context) (servers []string, recovered map[string]bool, err error) {
	if servers, err = c.Catalog.List(ctx, namespace.LogsDir); err != nil {
		return nil, nil, err
	}
	names, err := c.Catalog.List(ctx, namespace.RecoveryDir)
	if err != nil {
		return nil, nil, err
	}
	recovered = map[string]bool{}
	for _, name := range names {
		if !c.done[name] {
			r, _, err := c.Recovery(ctx, name)
			if err != nil {
				return nil, nil, err
			}
			if r == nil || !r.Done() {
				continue
			}
		}
		recovered[name] = true
	}
	c.done = recovered
	return servers, recovered, nil
}

// heldTimeout bounds the request for a server's tablets.
const heldTimeout = 2 * time.Second

// Servers implements master.Tablets.
func (c *Tablets) Servers(ctx context.Context) ([]master.TabletServer, error) {
	servers, err := c.lockHolders(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, heldTimeout)
	defer cancel()
	var group sync.WaitGroup
	for i := range servers {
		group.Go(func() { c.askHeld(ctx, &servers[i]) })
	}
	group.Wait()
	var all []master.TabletServer
	for i := range servers {
		all = append(all, both(servers[i])...)
	}
	c.alive = map[string]bool{}
	for i := range all {
		c.alive[all[i].Name] = true
	}
	return all, nil
}

// lockHolders returns the nodes that hold the lock of a tablet server.
func (c *Tablets) lockHolders(ctx context.Context) (servers []master.TabletServer, err error) {
	files, err := c.Catalog.Meta.List(ctx, namespace.ServersDir)
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return nil, err
	}
	draining := map[string]bool{}
	for _, m := range c.Members() {
		draining[m.ID] = m.Draining
	}
	for _, f := range files {
		if f.Lock != metaapi.Exclusive {
			continue
		}
		id := path.Base(f.Path)
		addr, _ := c.AddressOf(id)
		servers = append(servers, master.TabletServer{Name: namespace.ServerName(id, f.LockGeneration), Node: id, Addr: addr, Draining: draining[id]})
	}
	return servers, nil
}

// askHeld sets the tablets that a server has, or that it does not answer.
func (c *Tablets) askHeld(ctx context.Context, v *master.TabletServer) {
	var held []master.Held
	err := c.Commands.ToTabletServer(ctx, v, command.MethodHeld, c.Sequencer(), command.Request{}, func(d *wire.Decoder) error {
		held = command.DecodeHeld(d)
		return d.Err()
	})
	if err != nil {
		c.Log.Debug("tablets of server not received", "server", v.Name, "err", err)
		v.Silent = true
		return
	}
	v.Has = held
}

// rowsTimeout bounds the time without a row while a level is read: rows of unserved tablets do not arrive. The whole time grows with the rows:
// a million take some seconds.
const rowsTimeout = 3 * time.Second

// Rows implements master.Tablets.
func (c *Tablets) Rows(ctx context.Context) (tablets []master.Tablet, whole bool, err error) {
	root, err := c.Metadata.Root(ctx)
	if err != nil {
		return nil, false, err
	}
	tablets = []master.Tablet{{Key: master.RootKey, Generation: root.Generation, Server: root.Server, Recoveries: root.Recoveries}}
	if !c.alive[root.Server] {
		return tablets, false, nil
	}
	start, _ := metadata.TableRange(metadata.TableID)
	end := string(metadata.RootEnd()) + "\x00" // the root tablet's row has the key itself
	level, ok := c.level(ctx, string(start), end)
	if !ok {
		return tablets, false, nil
	}
	if len(level) == 0 {
		if err := c.firstTablet(ctx); err != nil {
			return tablets, false, err
		}
		level, _ = c.level(ctx, string(start), end)
		return append(tablets, level...), false, nil
	}
	tablets = append(tablets, level...)
	for _, t := range level {
		if !c.alive[t.Server] {
			return tablets, false, nil
		}
	}
	level, ok = c.usersRows(ctx, end)
	return append(tablets, level...), ok, nil
}

// usersRows reads the rows of users' tables, from start on, and makes them agree with the tables. It returns false if some cannot be read now.
func (c *Tablets) usersRows(ctx context.Context, start string) (level []master.Tablet, ok bool) {
	if level, ok = c.level(ctx, start, ""); !ok {
		return nil, false
	}
	tables, err := c.Meta.Tables(ctx)
	for i := range level {
		if id, _, err := metadata.ParseKey([]byte(level[i].Key)); err == nil {
			level[i].Table = tables[id]
		}
	}
	if err == nil {
		err = c.reconcile(ctx, level, tables)
	}
	// The rows that were read are valid in any case, and unserved tablets must not wait for this.
	c.reconcileFailed.WarnError(c.Log, "make METADATA agree with the tables; will try again", err)
	return level, true
}

// level reads rows of METADATA. It returns false if some cannot be read now.
func (c *Tablets) level(ctx context.Context, from, to string) (tablets []master.Tablet, ok bool) {
	progress, arrived, stop := timing.WithProgress(ctx, rowsTimeout)
	defer stop()
	err := c.Metadata.ScanAll(progress, from, to, metadata.Places(), func(key string, r *metadata.Row, err error) error {
		arrived()
		t := master.Tablet{Key: key, Damaged: err}
		if err == nil {
			t.Damaged = c.damaged.Why(key, r.Generation)
		}
		if t.Damaged == nil {
			t.Generation, t.Server, t.Recoveries = r.Generation, r.Server, r.Recoveries
		}
		tablets = append(tablets, t)
		return nil
	})
	if errors.Is(context.Cause(progress), timing.ErrStalled) {
		err = errors.Join(err, timing.ErrStalled)
	}
	if ctx.Err() == nil { // otherwise there is no retry
		c.unread.WarnError(c.Log, "METADATA cannot be read; will try again", err)
	}
	return tablets, err == nil
}

// firstTablet creates the row of METADATA's first tablet besides the root tablet.
func (c *Tablets) firstTablet(ctx context.Context) error {
	return c.writeTablet(ctx, metadata.FirstTabletID, metadata.TableID, metadata.RootEnd(), nil)
}

// makeTablet creates the row of a new, empty tablet, unless it exists.
func (c *Tablets) makeTablet(ctx context.Context, tableID uint64, start, end []byte) error {
	id, err := c.Catalog.NextIDs(ctx, 1)
	if err != nil {
		return err
	}
	return c.writeTablet(ctx, id, tableID, start, end)
}

func (c *Tablets) writeTablet(ctx context.Context, id, tableID uint64, start, end []byte) error {
	return c.writeMeta(ctx, &tablet.Meta{ID: id, Table: tableID, Start: start, End: end, LastMajor: time.Now()})
}

// writeMeta creates the row of a new tablet, unless it exists or existed.
func (c *Tablets) writeMeta(ctx context.Context, m *tablet.Meta) error {
	row := &metadata.Row{Table: m.Table, End: m.End, Generation: metadata.FirstGeneration(m.ID), Meta: tablet.EncodeMeta(m)}
	if err := c.Metadata.Create(ctx, row, "created"); !errors.Is(err, metarows.ErrChanged) {
		return err
	}
	return nil
}

// Load implements master.Tablets.
func (c *Tablets) Load(ctx context.Context, v *master.TabletServer, t *master.Tablet, q metaapi.Sequencer) error {
	err := c.Commands.ToTabletServer(ctx, v, command.MethodLoad, q, command.Request{Key: []byte(t.Key), Generation: t.Generation}, nil)
	return overtaken(c.refused(ctx, err, t))
}

// Unload implements master.Tablets.
func (c *Tablets) Unload(ctx context.Context, v *master.TabletServer, t *master.Tablet, q metaapi.Sequencer) (generation uint64, err error) {
	err = c.Commands.ToTabletServer(ctx, v, command.MethodUnload, q, command.Request{Key: []byte(t.Key)}, func(d *wire.Decoder) error {
		generation = d.Uint()
		return d.Err()
	})
	return generation, overtaken(c.refused(ctx, err, t))
}

// overtaken converts the error that a tablet's row has changed or is gone.
func overtaken(err error) error {
	if errors.Is(err, api.CodeConflict) {
		return fmt.Errorf("%w: %w", master.ErrOvertaken, err)
	}
	return err
}

// Merge implements master.Tablets.
func (c *Tablets) Merge(ctx context.Context, v *master.TabletServer, lower, upper *master.Tablet, q metaapi.Sequencer) error {
	err := c.Commands.ToTabletServer(ctx, v, command.MethodMerge, q, command.Request{Key: []byte(lower.Key), Upper: []byte(upper.Key)}, nil)
	return c.refused(ctx, err, lower, upper)
}

// Recovery implements master.Tablets.
func (c *Tablets) Recovery(ctx context.Context, server string) (*master.Recovery, uint64, error) {
	f, err := c.Catalog.Meta.Get(ctx, namespace.RecoveryPath(server))
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	r, err := master.DecodeRecovery(f.Data)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", namespace.RecoveryPath(server), err)
	}
	return r, f.Generation, nil
}

// SaveRecovery implements master.Tablets.
func (c *Tablets) SaveRecovery(ctx context.Context, r *master.Recovery, gen uint64) (uint64, error) {
	return c.Catalog.Set(ctx, namespace.RecoveryPath(r.Server), master.EncodeRecovery(r), gen)
}

// pieceBytes is the size of the pieces of a log that servers sort (paper §6).
const pieceBytes = 64 << 20

// EndLogs implements master.Tablets.
func (c *Tablets) EndLogs(ctx context.Context, server string) (pieces []master.Piece, err error) {
	store := c.Store()
	ids, err := store.ReplicatedLogs().List(ctx, server)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		parts, err := store.ReplicatedLogs().End(ctx, server, id, pieceBytes)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			pieces = append(pieces, master.Piece{Log: id, Start: p.Start, End: p.End})
		}
	}
	return pieces, nil
}

// Sort implements master.Tablets.
func (c *Tablets) Sort(ctx context.Context, by *master.TabletServer, server string, p *master.Piece) (run []byte, err error) {
	o := command.Request{Dead: server, Log: p.Log, Start: p.Start, End: p.End}
	err = c.Commands.ToTabletServer(ctx, by, command.MethodSort, c.Sequencer(), o, func(d *wire.Decoder) error {
		run = append([]byte{}, d.Bytes()...)
		return d.Err()
	})
	return run, err
}

// RemoveLogs implements master.Tablets. The runs of the recovery are removed with it: garbage collection would find them hours later,
// which a full disk cannot wait for.
func (c *Tablets) RemoveLogs(ctx context.Context, server string) error {
	store := c.Store()
	ids, err := store.ReplicatedLogs().List(ctx, server)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := store.ReplicatedLogs().Remove(ctx, server, id); err != nil && !errors.Is(err, blobfs.ErrNoLog) {
			return err
		}
	}
	r, gen, err := c.Recovery(ctx, server)
	if err != nil {
		return err
	}
	if gen != 0 {
		if err := c.Catalog.Remove(ctx, namespace.RecoveryPath(server), gen); err != nil {
			return err
		}
		c.Background.Go(func() { c.dropRuns(r) })
	}
	return c.removeDir(ctx, path.Join(namespace.LogsDir, server))
}

// dropRunsTimeout bounds dropRuns. Each run waits three seconds for nodes that do not answer.
const dropRunsTimeout = time.Minute

// dropRuns removes the runs of a recovery that was removed. What it cannot remove is left to garbage collection.
func (c *Tablets) dropRuns(r *master.Recovery) {
	ctx, cancel := context.WithTimeout(c.Ctx, dropRunsTimeout)
	defer cancel()
	err := roots.EachRun(r, func(m *sortedrun.Meta) error {
		err := c.Store().Delete(ctx, m.Handle.ID)
		if errors.Is(err, blobfs.ErrNoBlob) {
			return nil
		}
		return err
	})
	if err != nil {
		c.Log.Warn("sorted logs left to garbage collection", "server", r.Server, "err", err)
	}
}

// removeDir removes an empty directory.
func (c *Tablets) removeDir(ctx context.Context, dir string) error {
	err := c.Catalog.Meta.Delete(ctx, dir, metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil
	}
	return err
}

// reconcile creates the rows of new tables' tablets, and removes those of dropped tables. level was read from METADATA before the tables
// were listed: rows are created after their table, so a row without a table belongs to a dropped one.
func (c *Tablets) reconcile(ctx context.Context, level []master.Tablet, tables map[uint64]string) error {
	complete, there := map[uint64]bool{}, map[string]bool{}
	for i := range level {
		t := &level[i]
		there[t.Key] = true
		id, end, err := metadata.ParseKey([]byte(t.Key))
		if err != nil && t.Damaged != nil {
			continue
		}
		if err != nil {
			return err
		}
		if tables[id] == "" {
			if err := c.dropTablet(ctx, t, id, end, tables); err != nil {
				return fmt.Errorf("remove a tablet of a dropped table: %w", err)
			}
		}
		complete[id] = complete[id] || len(end) == 0
	}
	var errs []error
	for id, name := range tables {
		if table.IsDropped(name) { // it has had all its tablets
			continue
		}
		if complete[id] {
			if err := c.removeSplitPoints(ctx, name, id); err != nil {
				return fmt.Errorf("record that table %q has all its tablets: %w", name, err)
			}
		} else if err := c.makeTablets(ctx, name, id, there); err != nil { // other tables do not wait for a damaged backup
			errs = append(errs, fmt.Errorf("create the tablets of table %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// dropTablet removes the row of a dropped table's tablet. Its server has lost the schema, and cannot change the row any more.
func (c *Tablets) dropTablet(ctx context.Context, t *master.Tablet, tableID uint64, end []byte, tables map[uint64]string) error {
	row, err := c.Metadata.Get(ctx, tableID, end)
	var damage *metadata.FormatError
	if errors.As(err, &damage) {
		if t.Damaged == nil {
			c.damaged.Note(t.Key, t.Generation, damage)
		}
		row, err = c.removable(ctx, tableID, end, damage, tables)
	}
	if err == nil && row != nil {
		err = c.Metadata.Remove(ctx, row)
	}
	if errors.Is(err, metarows.ErrNoRow) || errors.Is(err, metarows.ErrChanged) {
		return nil // retried in the next round
	}
	return err
}

// removable returns what is needed to remove the damaged row of a dropped table's tablet, or nil if the row must stay: it may be the only
// reference to files of an existing table. While a damaged row exists, garbage collection does not run.
func (c *Tablets) removable(ctx context.Context, tableID uint64, end []byte, damage *metadata.FormatError, tables map[uint64]string) (*metadata.Row, error) {
	var other *metadata.MismatchError
	if errors.As(damage, &other) && (other.Table == metadata.TableID || tables[other.Table] != "") {
		if _, err := c.Metadata.Get(ctx, other.Table, other.End); err != nil {
			return nil, nil // the described tablet has no readable row of its own
		}
	}
	row, err := c.Metadata.Place(ctx, tableID, end)
	if errors.As(err, &damage) {
		return nil, nil
	}
	return row, err
}

// refused rereads the rows of tablets for which a server rejected an order because of corrupt data, and records the unreadable ones: the
// corrupt data may also have been a file. It returns the server's error.
func (c *Tablets) refused(ctx context.Context, err error, tablets ...*master.Tablet) error {
	if !errors.Is(err, api.CodeCorrupt) {
		return err
	}
	for _, t := range tablets {
		tableID, end, keyErr := metadata.ParseKey([]byte(t.Key))
		if keyErr != nil {
			continue // the root tablet's row is not in METADATA
		}
		var damage *metadata.FormatError
		if _, readErr := c.Metadata.Get(ctx, tableID, end); errors.As(readErr, &damage) {
			c.damaged.Note(t.Key, t.Generation, damage)
		}
	}
	return err
}

// both divides the tablets of a node between its two servers.
func both(v master.TabletServer) []master.TabletServer {
	users, own := v, v
	own.Name, own.Metadata = namespace.MetadataServer(v.Name), true
	users.Has, own.Has = nil, nil
	for _, h := range v.Has {
		if t := (master.Tablet{Key: h.Key}); t.OfMetadata() {
			own.Has = append(own.Has, h)
		} else {
			users.Has = append(users.Has, h)
		}
	}
	return []master.TabletServer{own, users}
}

package tablet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/table"
)

// memMetadata is a Metadata that outlives the servers, as METADATA does. fail, if
// set, is asked before each change.
type memMetadata struct {
	mu   sync.Mutex
	rows map[string]metaRow // by metaKey
	fail func() (before, after error)
	// loadErr is what Load returns, if set.
	loadErr error
	// cuts are the changes that servers can still make; then they hear nothing more,
	// also of the change that is the last.
	cuts map[string]int
}

var errCut = errors.New("cut off: outcome unknown")

// cut lets a server make n more changes, of whose last it does not hear.
func (m *memMetadata) cut(owner string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cuts == nil {
		m.cuts = map[string]int{}
	}
	m.cuts[owner] = n
}

type metaRow struct {
	meta  []byte
	gen   uint64
	owner string // the server that it is assigned to
}

// metaKey is like a row key of METADATA: in byte order of the ends, no end last.
func metaKey(table uint64, end []byte) string {
	key := binary.BigEndian.AppendUint64(nil, table)
	if len(end) == 0 {
		return string(append(key, 1))
	}
	return string(append(append(key, 0), end...))
}

func newMemMetadata() *memMetadata { return &memMetadata{rows: map[string]metaRow{}} }

func (m *memMetadata) cloneLocked() *memMetadata { return &memMetadata{rows: maps.Clone(m.rows)} }

// setFaults sets fail and loadErr.
func (m *memMetadata) setFaults(fail func() (before, after error), loadErr error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail, m.loadErr = fail, loadErr
}

func (m *memMetadata) Save(ctx context.Context, meta *Meta, gen uint64) (uint64, error) {
	return ownMetadata{memMetadata: m}.Save(ctx, meta, gen)
}

func (m *memMetadata) Load(_ context.Context, table uint64, end []byte) (*Meta, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loadErr != nil {
		return nil, 0, m.loadErr
	}
	row, ok := m.rows[metaKey(table, end)]
	if !ok {
		return nil, 0, ErrNoMeta
	}
	meta, err := DecodeMeta(row.meta)
	return meta, row.gen, err
}

func (m *memMetadata) Split(ctx context.Context, lower, upper *Meta, gen uint64) (uint64, error) {
	return ownMetadata{memMetadata: m}.Split(ctx, lower, upper, gen)
}

func (m *memMetadata) Remove(ctx context.Context, meta *Meta, gen uint64) error {
	return ownMetadata{memMetadata: m}.Remove(ctx, meta, gen)
}

// loads returns all tablets of table 1, each narrowed to what the row before leaves it.
func (m *memMetadata) loads() ([]Load, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Load
	var start []byte
	for _, key := range slices.Sorted(maps.Keys(m.rows)) {
		meta, err := DecodeMeta(m.rows[key].meta)
		if err == nil {
			err = meta.Narrow(start)
		}
		if err != nil {
			return nil, err
		}
		start = meta.End
		all = append(all, Load{Meta: meta, Gen: m.rows[key].gen})
	}
	return all, nil
}

// ownMetadata is the rows of the tablets that are assigned to owner.
type ownMetadata struct {
	*memMetadata
	owner string
}

func (m ownMetadata) Save(_ context.Context, meta *Meta, gen uint64) (uint64, error) {
	return m.change(func() (uint64, error) {
		key := metaKey(meta.Table, meta.End)
		row := m.rows[key]
		if row.owner != m.owner {
			return 0, ErrMetaLost
		}
		if row.gen != gen {
			return 0, ErrMetaChanged
		}
		m.rows[key] = metaRow{EncodeMeta(meta), gen + 1, m.owner}
		return gen + 1, nil
	})
}

func (m ownMetadata) Split(_ context.Context, lower, upper *Meta, gen uint64) (uint64, error) {
	return m.change(func() (uint64, error) {
		key := metaKey(lower.Table, lower.End)
		if row := m.rows[metaKey(upper.Table, upper.End)]; row.owner != m.owner {
			return 0, ErrMetaLost
		}
		if _, there := m.rows[key]; there {
			return 0, ErrMetaChanged
		}
		m.rows[key] = metaRow{EncodeMeta(lower), 1, m.owner}
		return 1, nil
	})
}

func (m ownMetadata) Remove(_ context.Context, meta *Meta, gen uint64) error {
	_, err := m.change(func() (uint64, error) {
		key := metaKey(meta.Table, meta.End)
		row, there := m.rows[key]
		if there && row.owner != m.owner {
			return 0, ErrMetaLost
		}
		if !there || row.gen != gen {
			return 0, ErrMetaChanged
		}
		delete(m.rows, key)
		return 0, nil
	})
	return err
}

func (m ownMetadata) Load(ctx context.Context, table uint64, end []byte) (*Meta, uint64, error) {
	m.mu.Lock()
	left, is := m.cuts[m.owner]
	m.mu.Unlock()
	if is && left <= 0 {
		return nil, 0, errCut
	}
	return m.memMetadata.Load(ctx, table, end)
}

// change makes a change between the faults before and after it.
func (m ownMetadata) change(do func() (uint64, error)) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var after error
	if left, is := m.cuts[m.owner]; is {
		m.cuts[m.owner] = left - 1
		if left <= 0 {
			return 0, errCut
		}
		if left == 1 {
			after = errCut
		}
	}
	if m.fail != nil && after == nil {
		var before error
		if before, after = m.fail(); before != nil {
			return 0, before
		}
	}
	gen, err := do()
	if err == nil {
		err = after
	}
	return gen, err
}

// clock is a clock that the test sets.
type clock struct {
	micros atomic.Int64
	looked atomic.Pointer[func()] // if not nil, called by whoever asks for the time
}

func (c *clock) now() time.Time {
	if f := c.looked.Load(); f != nil {
		(*f)()
	}
	return time.UnixMicro(c.micros.Load())
}

// env is a server on a disk in memory, that can be closed, crashed and opened.
type env struct {
	t      testing.TB
	fs     *vfs.Mem
	meta   *memMetadata
	schema *table.Schema
	clock  clock
	cfg    Config
	extent int64
	nextID atomic.Uint64

	reads blobReads // of SSTables, by all servers

	store *blobfs.Store
	*Server
}

const testTable = "t"

func testSchema(t testing.TB, specs ...string) *table.Schema {
	var parsed []table.FamilySpec
	for _, text := range specs {
		spec, err := table.ParseFamilySpec(text)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, spec)
	}
	s, err := table.NewSchema(testTable, 1).Apply(parsed...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newEnv opens a server with one table of one tablet.
func newEnv(t testing.TB, cfg Config, specs ...string) *env {
	e := &env{t: t, fs: vfs.NewMem(vfs.MemOptions{}), meta: newMemMetadata(), cfg: cfg, extent: 256 << 10}
	e.schema = testSchema(t, specs...)
	e.clock.micros.Store(1_000_000_000_000)
	e.nextID.Store(16)
	if _, err := e.meta.Save(context.Background(), &Meta{ID: 1, Table: 1, LastMajor: e.clock.now()}, 0); err != nil {
		t.Fatal(err)
	}
	e.open()
	t.Cleanup(func() { e.close() })
	return e
}

func openStore(fs vfs.FS, extentBytes int64) (*blobfs.Store, error) {
	return blobfs.Open(blobfs.Config{
		Folders: []string{"/d0", "/d1"}, FS: fs, ReserveBytes: -1, ExtentBytes: extentBytes, LogExtentsReady: -1,
	})
}

func (e *env) tryOpen() error {
	store, err := openStore(e.fs, e.extent)
	if err != nil {
		return err
	}
	cfg := e.cfg
	cfg.Blobs, cfg.Metadata, cfg.Now = watchedBlobs{OnStore(store), &e.reads}, e.meta, e.clock.now
	cfg.NewTabletID = func(context.Context) (uint64, error) { return e.nextID.Add(1), nil }
	loads, err := e.meta.loads()
	if err != nil {
		return err
	}
	for i := range loads {
		loads[i].Schema = e.schema
	}
	s, err := Open(context.Background(), cfg, loads)
	if err != nil {
		store.Close()
		return err
	}
	e.store, e.Server = store, s
	return nil
}

func (e *env) open() {
	e.t.Helper()
	if err := e.tryOpen(); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) close() {
	if e.Server != nil {
		e.Server.Close()
		e.store.Close()
		e.Server = nil
	}
}

// crash cuts the power: what was not synced is lost, or torn.
func (e *env) crash() {
	// No change of metadata between the two: what follows one, such as the removal
	// of the files that it no longer names, must not be seen without it.
	e.meta.mu.Lock()
	meta := e.meta.cloneLocked()
	disk := e.fs.Crash(rand.New(rand.NewPCG(uint64(e.clock.micros.Load()), 1)))
	e.meta.mu.Unlock()
	e.close() // what it still writes goes to the old disk and the old metadata
	e.fs, e.meta = disk, meta
}

// apply commits a mutation and waits for the answer.
func (e *env) apply(row string, ms ...table.Mutation) (int64, error) {
	return applySync(e.Server, row, ms...)
}

func applySync(s *Server, row string, ms ...table.Mutation) (int64, error) {
	type outcome struct {
		ts  int64
		err error
	}
	done := make(chan outcome, 1)
	s.Apply(testTable, &table.RowMutation{Row: []byte(row), Mutations: ms}, func(ts int64, err error) { done <- outcome{ts, err} })
	o := <-done
	return o.ts, o.err
}

func (e *env) mustApply(row string, ms ...table.Mutation) int64 {
	e.t.Helper()
	ts, err := e.apply(row, ms...)
	if err != nil {
		e.t.Fatal(err)
	}
	return ts
}

// cells formats cells as "fam:qual@ts=value".
func cellStrings(cells []table.Cell) []string {
	var out []string
	for _, c := range cells {
		value := string(c.Value)
		if len(value) > 32 { // enough to tell values apart in a test's output
			value = fmt.Sprintf("%s…%d", value[:16], len(value))
		}
		out = append(out, fmt.Sprintf("%s:%s@%d=%s", c.Family, c.Qualifier, c.Timestamp, value))
	}
	return out
}

func (e *env) read(row string, f table.Filter) []string {
	e.t.Helper()
	var p *table.Program
	if f != nil {
		var err error
		if p, err = table.Compile(f); err != nil {
			e.t.Fatal(err)
		}
	}
	var out []string
	err := e.ReadRow(context.Background(), testTable, []byte(row), p, func(_ []byte, cells []table.Cell) error {
		out = cellStrings(cells)
		return nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// testSeed returns the seed of a random test: of STELE_SEED, or of the clock. It
// logs how to replay it.
func testSeed(t testing.TB) uint64 {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("STELE_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("STELE_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("replay with STELE_SEED=%d go test -run '^%s$' ./tablet/", seed, t.Name())
	return seed
}

// soakRuns returns how many runs of a random test to make: n, times STELE_SOAK.
func soakRuns(n int) int {
	if times, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil && times > 0 {
		return n * times
	}
	return n
}

package tablet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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
	"github.com/steledb/stele/tablet/storage"
)

// memMetadata is a Metadata that outlives the servers, like METADATA. fail, if set, is called
// before each change.
type memMetadata struct {
	mu   sync.Mutex
	rows map[string]metaRow // by metaKey
	// known are the generations of rows as servers know them, by owner and metaKey; none is the
	// row's own.
	known map[string]uint64
	fail  func() (before, after error)
	// loadErr is the error of Load, if set.
	loadErr error
	// changesLeft are the numbers of changes that servers can still make. Then they are
	// disconnected and get no answer, not even to the last change.
	changesLeft map[string]int
}

var errDisconnected = errors.New("cut off: outcome unknown")

// disconnectAfter disconnects a server after n more changes. It gets no answer to the last one.
func (m *memMetadata) disconnectAfter(owner string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changesLeft == nil {
		m.changesLeft = map[string]int{}
	}
	m.changesLeft[owner] = n
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

func newMemMetadata() *memMetadata {
	return &memMetadata{rows: map[string]metaRow{}, known: map[string]uint64{}}
}

func (m *memMetadata) cloneLocked() *memMetadata {
	return &memMetadata{rows: maps.Clone(m.rows), known: map[string]uint64{}}
}

// assign makes a server the owner of a row.
func (m *memMetadata) assign(key, owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := m.rows[key]
	row.owner = owner
	row.gen++
	m.rows[key] = row
	m.known[owner+key] = row.gen
}

// setFaults sets fail and loadErr.
func (m *memMetadata) setFaults(fail func() (before, after error), loadErr error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail, m.loadErr = fail, loadErr
}

func (m *memMetadata) Save(ctx context.Context, meta *Meta) error {
	return ownMetadata{memMetadata: m}.Save(ctx, meta)
}

func (m *memMetadata) Load(ctx context.Context, table uint64, end []byte) (*Meta, error) {
	return ownMetadata{memMetadata: m}.Load(ctx, table, end)
}

func (m *memMetadata) Split(ctx context.Context, lower, upper *Meta) error {
	return ownMetadata{memMetadata: m}.Split(ctx, lower, upper)
}

func (m *memMetadata) Remove(ctx context.Context, meta *Meta) error {
	return ownMetadata{memMetadata: m}.Remove(ctx, meta)
}

// create creates the row of an unassigned tablet.
func (m *memMetadata) create(meta *Meta) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[metaKey(meta.Table, meta.End)] = metaRow{meta: EncodeMeta(meta), gen: 1}
}

// loads returns all tablets of table 1, each narrowed by the preceding row.
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
		m.known[key] = m.rows[key].gen
		all = append(all, Load{Meta: meta})
	}
	return all, nil
}

// ownMetadata is the Metadata of one server, with the tablets assigned to it.
type ownMetadata struct {
	*memMetadata
	owner string
}

// owned returns a row that the owner may change now.
func (m ownMetadata) owned(key string) (metaRow, error) {
	row, there := m.rows[key]
	if row.owner != m.owner {
		return row, ErrMetaLost
	}
	if known, is := m.known[m.owner+key]; !there || is && known != row.gen {
		return row, ErrMetaChanged
	}
	return row, nil
}

// set replaces a row. If after is an error, the owner gets no answer.
func (m ownMetadata) set(meta *Meta, gen uint64, after error) {
	key := metaKey(meta.Table, meta.End)
	m.rows[key] = metaRow{EncodeMeta(meta), gen, m.owner}
	if after == nil {
		m.known[m.owner+key] = gen
	} else if _, is := m.known[m.owner+key]; !is {
		m.known[m.owner+key] = gen - 1
	}
}

func (m ownMetadata) Save(_ context.Context, meta *Meta) error {
	return m.change(func(after error) error {
		row, err := m.owned(metaKey(meta.Table, meta.End))
		if err == nil {
			m.set(meta, row.gen+1, after)
		}
		return err
	})
}

func (m ownMetadata) Split(_ context.Context, lower, upper *Meta) error {
	return m.change(func(after error) error {
		if row := m.rows[metaKey(upper.Table, upper.End)]; row.owner != m.owner {
			return ErrMetaLost
		}
		if _, there := m.rows[metaKey(lower.Table, lower.End)]; there {
			return ErrMetaChanged
		}
		m.set(lower, 1, after)
		return nil
	})
}

func (m ownMetadata) Remove(_ context.Context, meta *Meta) error {
	return m.change(func(error) error {
		key := metaKey(meta.Table, meta.End)
		if _, there := m.rows[key]; !there {
			return ErrMetaChanged
		}
		if _, err := m.owned(key); err != nil {
			return err
		}
		delete(m.rows, key)
		return nil
	})
}

func (m ownMetadata) Load(_ context.Context, table uint64, end []byte) (*Meta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left, is := m.changesLeft[m.owner]; is && left <= 0 {
		return nil, errDisconnected
	}
	if m.loadErr != nil {
		return nil, m.loadErr
	}
	key := metaKey(table, end)
	row, ok := m.rows[key]
	if !ok {
		return nil, ErrNoMeta
	}
	m.known[m.owner+key] = row.gen
	return DecodeMeta(row.meta)
}

// change makes a change between the faults before and after it.
func (m ownMetadata) change(do func(after error) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var after error
	if left, is := m.changesLeft[m.owner]; is {
		m.changesLeft[m.owner] = left - 1
		if left <= 0 {
			return errDisconnected
		}
		if left == 1 {
			after = errDisconnected
		}
	}
	if m.fail != nil && after == nil {
		var before error
		if before, after = m.fail(); before != nil {
			return before
		}
	}
	if err := do(after); err != nil {
		return err
	}
	return after
}

// clock is a clock that the test sets.
type clock struct {
	micros atomic.Int64
	looked atomic.Pointer[func()] // if not nil, called for each reading
}

func (c *clock) now() time.Time {
	if f := c.looked.Load(); f != nil {
		(*f)()
	}
	return time.UnixMicro(c.micros.Load())
}

// env is a server on a disk in memory that can be closed, crashed and reopened.
type env struct {
	keys   []blobfs.MasterKey
	t      testing.TB
	fs     *vfs.Mem
	meta   *memMetadata
	schema *table.Schema
	clock  clock
	cfg    Config
	extent int64
	nextID atomic.Uint64

	reads blobReads // reads of SSTables, by all servers

	store *blobfs.Store
	*Server
}

const testTable = "t"

// streamed, among the families of a test's table, means that it has a change stream.
const streamed = "change stream"

// lastTablet is the last tablet of the tests' table, which begins as its only one.
var lastTablet = Ref{Table: 1}

func testSchema(t testing.TB, specs ...string) *table.Schema {
	var parsed []table.FamilySpec
	retention := time.Duration(0)
	for _, text := range specs {
		if text == streamed {
			retention = 24 * time.Hour
			continue
		}
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
	s.ChangeRetention = retention
	return s
}

// newEnv opens a server with one table of one tablet.
func newEnv(t testing.TB, cfg Config, specs ...string) *env {
	return newEncryptedEnv(t, nil, cfg, specs...)
}

// newEncryptedEnv is newEnv with a store that is encrypted by master keys, if any.
func newEncryptedEnv(t testing.TB, keys []blobfs.MasterKey, cfg Config, specs ...string) *env {
	e := &env{t: t, keys: keys, fs: vfs.NewMem(vfs.MemOptions{}), meta: newMemMetadata(), cfg: cfg, extent: 256 << 10}
	e.schema = testSchema(t, specs...)
	e.clock.micros.Store(1_000_000_000_000)
	e.nextID.Store(16)
	e.meta.create(&Meta{ID: 1, Table: 1, LastMajor: e.clock.now()})
	e.open()
	t.Cleanup(func() { e.close() })
	return e
}

func openStore(fs vfs.FS, extentBytes int64, keys ...blobfs.MasterKey) (*blobfs.Store, error) {
	return blobfs.Open(blobfs.Config{
		Folders: []string{"/d0", "/d1"}, FS: fs, ReserveBytes: -1, ExtentBytes: extentBytes, LogExtentsReady: -1, MasterKeys: keys,
	})
}

func (e *env) tryOpen() error {
	store, err := openStore(e.fs, e.extent, e.keys...)
	if err != nil {
		return err
	}
	cfg := e.cfg
	cfg.Blobs, cfg.Metadata, cfg.Now = watchedBlobs{storage.OnStore(store), &e.reads}, e.meta, e.clock.now
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

// crash changesLeft the power: unsynced data is lost, or torn.
func (e *env) crash() {
	// No metadata change between the two: its consequences, such as the removal of files that it no
	// longer names, must not be seen without it.
	e.meta.mu.Lock()
	meta := e.meta.cloneLocked()
	disk := e.fs.Crash(rand.New(rand.NewPCG(uint64(e.clock.micros.Load()), 1)))
	e.meta.mu.Unlock()
	e.close() // later writes go to the old disk and the old metadata
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

// cellStrings formats cells as "fam:qual@ts=value".
func cellStrings(cells []table.Cell) []string {
	var out []string
	for _, c := range cells {
		value := string(c.Value)
		if len(value) > 32 { // enough to distinguish values in a test's output
			value = fmt.Sprintf("%s…%d, CRC %08x", value[:16], len(value), crc32.ChecksumIEEE(c.Value))
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

// soakRuns returns the number of runs of a random test: n times STELE_SOAK.
func soakRuns(n int) int {
	if times, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil && times > 0 {
		return n * times
	}
	return n
}

// useBlobs replaces the block store of a server.
func (s *Server) useBlobs(b storage.Blobs) { s.cfg.Blobs, s.deletions.Blobs = b, b }

// The operations of a caller with all rights.

// ReadRow is For.ReadRow without access control.
func (s *Server) ReadRow(ctx context.Context, tableName string, row []byte, f *table.Program, emit Emit) error {
	return s.For(nil).ReadRow(ctx, tableName, row, f, emit)
}

// Scan is For.Scan without access control.
func (s *Server) Scan(ctx context.Context, tableName string, rg Range, f *table.Program, emit Emit) (next []byte, err error) {
	return s.For(nil).Scan(ctx, tableName, rg, f, nil, emit)
}

// Apply is For.Apply without access control.
func (s *Server) Apply(tableName string, rm *table.RowMutation, done func(timestamp int64, err error)) {
	s.For(nil).Apply(tableName, rm, done)
}

// ApplyNow is For.ApplyNow without access control.
func (s *Server) ApplyNow(tableName string, rm *table.RowMutation, done func(timestamp int64, err error)) bool {
	return s.For(nil).ApplyNow(tableName, rm, done)
}

// CheckAndMutate is For.CheckAndMutate without access control.
func (s *Server) CheckAndMutate(ctx context.Context, tableName string, row []byte, predicate *table.Program, yes, no []table.Mutation) (matched bool, err error) {
	return s.For(nil).CheckAndMutate(ctx, tableName, row, predicate, yes, no)
}

// ReadModifyWrite is For.ReadModifyWrite without access control.
func (s *Server) ReadModifyWrite(ctx context.Context, tableName string, row []byte, rules []table.Rule) (table.Row, error) {
	return s.For(nil).ReadModifyWrite(ctx, tableName, row, rules, 0)
}

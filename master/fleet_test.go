package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/raftmeta/api"
)

// tabletFleet is METADATA, the lock service's files and the tablet servers, as far as a master sees them. It keeps
// what clients wrote: so it shows what a master lost, and to what it gave two owners.
type tabletFleet struct {
	mu      sync.Mutex
	rng     *rand.Rand
	servers map[string]*tabletServer
	rows    map[string]*tabletRow
	logs    map[string][]write
	ended   map[string]bool
	files   map[string]recoveryFile
	acked   []write
	merged  map[string]string // the keys of tablets that are no more, and of those that have their rows
	started int
	sorts   map[string]int // of each piece, that were answered or came to an end
	broken  map[string]int // that failed
	wrong   []string       // what must not be

	down  bool // METADATA cannot be read
	lossy int  // of 100 saves so many have no known outcome
	flaky int  // of 100 sorts so many fail
	ms    int  // most that a server takes for anything
}

type write struct {
	Key string
	N   int
}

type tabletRow struct {
	Tablet
	files map[int]bool // writes in its SSTables
}

type recoveryFile struct {
	b   []byte
	gen uint64
}

type tabletServer struct {
	name  string
	gone  chan struct{}
	epoch uint64
	has   map[string]map[int]bool
}

func newTabletFleet(rng *rand.Rand, users int) *tabletFleet {
	f := &tabletFleet{
		rng: rng, servers: map[string]*tabletServer{}, rows: map[string]*tabletRow{}, logs: map[string][]write{}, ended: map[string]bool{},
		files: map[string]recoveryFile{}, sorts: map[string]int{}, broken: map[string]int{}, ms: 50,
		merged: map[string]string{},
	}
	keys := []string{RootKey, string(metadata.Key(nil, metadata.TableID, nil))}
	for i := range users {
		keys = append(keys, string(metadata.Key(nil, 16, fmt.Appendf(nil, "row%03d", i))))
	}
	for _, k := range keys {
		f.rows[k] = &tabletRow{Tablet: Tablet{Key: k, Generation: 1}, files: map[int]bool{}}
	}
	return f
}

func (f *tabletFleet) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *tabletFleet) start() {
	f.locked(func() {
		f.started++
		node := fmt.Sprintf("n%d.%d", f.started%5, f.started)
		for _, name := range []string{node, node + testMetadata} {
			f.servers[name] = &tabletServer{name: name, gone: make(chan struct{}), has: map[string]map[int]bool{}}
			f.logs[name] = nil
		}
	})
}

// testMetadata is what the name of a node's server of METADATA's tablets ends with.
const testMetadata = ".metadata"

// kill ends both servers of some node, if more than one is alive. They answer nobody any more.
func (f *tabletFleet) kill() {
	f.locked(func() {
		if names := slices.Sorted(maps.Keys(f.servers)); len(names) > 2 {
			node := strings.TrimSuffix(names[f.rng.IntN(len(names))], testMetadata)
			for _, name := range []string{node, node + testMetadata} {
				close(f.servers[name].gone)
				delete(f.servers, name)
			}
		}
	})
}

// write has a client write to some tablet that is served.
func (f *tabletFleet) write(n int) {
	f.locked(func() {
		for _, name := range slices.Sorted(maps.Keys(f.servers)) {
			s := f.servers[name]
			keys := slices.Sorted(maps.Keys(s.has))
			if len(keys) == 0 || f.ended[name] || f.rng.IntN(3) == 0 {
				continue
			}
			w := write{keys[f.rng.IntN(len(keys))], n}
			f.logs[name] = append(f.logs[name], w)
			s.has[w.Key][n] = true
			f.acked = append(f.acked, w)
			return
		}
	})
}

// settled says what is not as it should be in the end, or nothing.
func (f *tabletFleet) settled() (missing string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, row := range f.rows {
		s := f.servers[row.Server]
		if s == nil || s.has[key] == nil {
			return fmt.Sprintf("tablet %q is not served, METADATA says by %q", key, row.Server)
		}
		if len(row.Recoveries) > 0 {
			return fmt.Sprintf("tablet %q needs recoveries of %v", key, row.Recoveries)
		}
	}
	for _, w := range f.acked {
		key := f.nowIn(w.Key)
		if !f.servers[f.rows[key].Server].has[key][w.N] {
			return fmt.Sprintf("write %d to tablet %q is lost", w.N, w.Key)
		}
	}
	for name := range f.logs {
		if f.servers[name] == nil {
			return "the logs of " + name + " are still there"
		}
	}
	return ""
}

// nowIn returns the key of the tablet that has the rows of one.
func (f *tabletFleet) nowIn(key string) string {
	for f.merged[key] != "" {
		key = f.merged[key]
	}
	return key
}

func (f *tabletFleet) delay() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.rng.IntN(f.ms)+1) * time.Millisecond
}

func (f *tabletFleet) wrongf(format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

// masterView is what one master sees of the fleet. While it is paused it does nothing.
type masterView struct {
	*tabletFleet
	a       *assigner
	flushes sync.WaitGroup
	mu      sync.Mutex
	paused  chan struct{}
}

func (m *masterView) pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = make(chan struct{})
}

func (m *masterView) resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.paused)
	m.paused = nil
}

func (m *masterView) enter() {
	m.mu.Lock()
	p := m.paused
	m.mu.Unlock()
	if p != nil {
		<-p
	}
}

var (
	errTestStale   = errors.New("a newer master is known")
	errTestChanged = errors.New("row was changed")
	errTestUnknown = errors.New("outcome unknown")
)

// at waits as long as a server takes. Who is dead never answers.
func (m *masterView) at(ctx context.Context, name string, q api.Sequencer) (*tabletServer, error) {
	m.enter()
	m.tabletFleet.mu.Lock()
	s := m.servers[name]
	if s != nil && q.LockGeneration != 0 {
		if q.LockGeneration < s.epoch {
			m.tabletFleet.mu.Unlock()
			return nil, errTestStale
		}
		s.epoch = q.LockGeneration
	}
	m.tabletFleet.mu.Unlock()
	if s == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s, m.work(ctx, s)
}

// work is something that a server does, if it lives to do it.
func (m *masterView) work(ctx context.Context, s *tabletServer) error {
	select {
	case <-time.After(m.delay()):
	case <-ctx.Done():
		return ctx.Err()
	case <-s.gone:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (m *masterView) Begin(context.Context) error { m.enter(); return nil }

func (m *masterView) Logs(context.Context) (servers []string, recovered map[string]bool, err error) {
	m.enter()
	recovered = map[string]bool{}
	m.locked(func() {
		servers = slices.Sorted(maps.Keys(m.logs))
		for name, file := range m.files {
			r, e := DecodeRecovery(file.b)
			err = errors.Join(err, e)
			recovered[name] = e == nil && r.Done()
		}
	})
	return servers, recovered, err
}

func (m *masterView) Servers(context.Context) (all []TabletServer, err error) {
	m.enter()
	m.locked(func() {
		for _, name := range slices.Sorted(maps.Keys(m.servers)) {
			node, metadata := strings.CutSuffix(name, testMetadata)
			v := TabletServer{Name: name, Node: node[:2], Metadata: metadata, Silent: m.rng.IntN(20) == 0}
			for key := range m.servers[name].has {
				if !v.Silent {
					v.Has = append(v.Has, Held{Key: key})
				}
			}
			all = append(all, v)
		}
	})
	return all, nil
}

func (m *masterView) Rows(context.Context) (all []Tablet, whole bool, err error) {
	m.enter()
	m.locked(func() {
		if m.down {
			err = errors.New("METADATA cannot be read")
			return
		}
		served := true
		for level := 0; level < 3 && served; level++ {
			for _, key := range slices.Sorted(maps.Keys(m.rows)) {
				row := m.rows[key]
				if row.Level() == level {
					t := row.Tablet
					t.Recoveries = slices.Clone(t.Recoveries)
					all = append(all, t)
					s := m.servers[row.Server]
					served = served && s != nil && s.has[key] != nil
				}
			}
			whole = level == 2
		}
	})
	return all, whole, err
}

// needs returns the dead servers that a tablet needs the logs of, and says what is wrong with giving it to a server.
func (m *masterView) needs(row *tabletRow, to string) []string {
	need := slices.Clone(row.Recoveries)
	if row.Server != "" && row.Server != to && !slices.Contains(need, row.Server) {
		if m.servers[row.Server] != nil {
			m.wrongf("tablet %q goes to %s, %s is alive and has it", row.Key, to, row.Server)
		}
		need = append(need, row.Server)
	}
	return need
}

func (m *masterView) Load(ctx context.Context, v *TabletServer, t *Tablet, q api.Sequencer) error {
	s, err := m.at(ctx, v.Name, q)
	if err != nil {
		return err
	}
	data := map[int]bool{}
	m.locked(func() {
		row := m.rows[t.Key]
		if row == nil || row.Generation != t.Generation || s.has[t.Key] != nil {
			err = errTestChanged
			return
		}
		if row.OfMetadata() != strings.HasSuffix(s.name, testMetadata) {
			m.wrongf("tablet %q is loaded on %s", row.Key, s.name)
		}
		need := m.needs(row, s.name)
		maps.Copy(data, row.files)
		for _, dead := range need {
			r, e := DecodeRecovery(m.files[dead].b)
			if e != nil || !r.Done() {
				m.wrongf("tablet %q is loaded, the logs of %s are not sorted: %v", t.Key, dead, e)
				continue
			}
			for _, p := range r.Pieces {
				var ws []write
				err = errors.Join(err, json.Unmarshal(p.Run, &ws))
				for _, w := range ws {
					if w.Key == t.Key {
						data[w.N] = true
					}
				}
			}
		}
		row.Server, row.Recoveries = s.name, need
		row.Generation++
	})
	if err == nil {
		err = m.work(ctx, s)
	}
	if err != nil {
		return err
	}
	m.locked(func() {
		if s.has[t.Key] == nil { // another master's order may have been quicker
			s.has[t.Key] = data
		}
	})
	m.flushes.Go(func() { m.flush(s, t.Key) })
	return nil
}

// flush writes out what came from the runs, some time later.
func (m *masterView) flush(s *tabletServer, key string) {
	select {
	case <-time.After(m.delay()):
	case <-s.gone:
		return
	}
	m.locked(func() {
		if row := m.rows[key]; row != nil && row.Server == s.name && m.servers[s.name] == s && s.has[key] != nil {
			row.files, row.Recoveries = maps.Clone(s.has[key]), nil
			row.Generation++
		}
	})
}

func (m *masterView) Unload(ctx context.Context, v *TabletServer, t *Tablet, q api.Sequencer) (gen uint64, err error) {
	s, err := m.at(ctx, v.Name, q)
	if err != nil {
		return 0, err
	}
	m.locked(func() {
		row := m.rows[t.Key]
		if row == nil || row.Server != s.name || s.has[t.Key] == nil {
			err = errTestChanged
			return
		}
		row.files, row.Recoveries, row.Server = s.has[t.Key], nil, ""
		row.Generation++
		gen = row.Generation
		delete(s.has, t.Key)
	})
	return gen, err
}

// Merge has all of both written out, as a server does.
func (m *masterView) Merge(ctx context.Context, v *TabletServer, lower, upper *Tablet, q api.Sequencer) error {
	s, err := m.at(ctx, v.Name, q)
	if err != nil {
		return err
	}
	m.locked(func() {
		low, up := m.rows[lower.Key], m.rows[upper.Key]
		if low == nil || up == nil || low.Server != s.name || up.Server != s.name || s.has[lower.Key] == nil || s.has[upper.Key] == nil {
			err = errTestChanged
			return
		}
		maps.Copy(s.has[upper.Key], s.has[lower.Key])
		up.files, up.Recoveries = maps.Clone(s.has[upper.Key]), nil
		up.Generation++
		delete(m.rows, lower.Key)
		delete(s.has, lower.Key)
		m.merged[lower.Key] = upper.Key
	})
	return err
}

func (m *masterView) Forget(_ context.Context, server string) error {
	m.enter()
	m.locked(func() {
		for key, row := range m.rows {
			if row.Server == server || slices.Contains(row.Recoveries, server) {
				m.wrongf("the logs of %s are removed, tablet %q needs them", server, key)
			}
		}
		delete(m.logs, server)
		delete(m.files, server)
	})
	return nil
}

func (m *masterView) Recovery(_ context.Context, server string) (*Recovery, uint64, error) {
	m.enter()
	m.tabletFleet.mu.Lock()
	defer m.tabletFleet.mu.Unlock()
	file, ok := m.files[server]
	if !ok {
		return nil, 0, nil
	}
	r, err := DecodeRecovery(file.b)
	return r, file.gen, err
}

func (m *masterView) SaveRecovery(_ context.Context, r *Recovery, gen uint64) (uint64, error) {
	m.enter()
	m.tabletFleet.mu.Lock()
	defer m.tabletFleet.mu.Unlock()
	fate := m.rng.IntN(100)
	switch {
	case fate < m.lossy/2:
		return 0, errTestUnknown
	case m.files[r.Server].gen != gen:
		return 0, errTestChanged
	}
	m.files[r.Server] = recoveryFile{EncodeRecovery(r), gen + 1}
	if fate < m.lossy {
		return 0, errTestUnknown
	}
	return gen + 1, nil
}

func (m *masterView) EndLogs(_ context.Context, server string) (pieces []Piece, err error) {
	m.enter()
	m.locked(func() {
		if m.servers[server] != nil {
			m.wrongf("the logs of %s are ended, it is alive", server)
		}
		m.ended[server] = true
		var id blobfs.ID
		copy(id[:], server)
		for i := 0; i < len(m.logs[server]); i += 3 {
			pieces = append(pieces, Piece{Log: id, Start: int64(i), End: int64(min(i+3, len(m.logs[server])))})
		}
	})
	return pieces, nil
}

func (m *masterView) Sort(ctx context.Context, by *TabletServer, server string, p *Piece) (run []byte, err error) {
	_, err = m.at(ctx, by.Name, api.Sequencer{})
	m.locked(func() {
		piece := fmt.Sprint(server, " ", p.Start)
		if err == nil && m.rng.IntN(100) < m.flaky {
			err = errors.New("disk failed")
		}
		if err != nil {
			m.broken[piece]++
			return
		}
		m.sorts[piece]++
		if int64(len(m.logs[server])) < p.End {
			err = fmt.Errorf("no log of %s", server)
			return
		}
		run, err = json.Marshal(m.logs[server][p.Start:p.End])
	})
	return run, err
}

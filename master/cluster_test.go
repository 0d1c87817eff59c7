package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
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

// simCluster simulates METADATA, the files of the lock service and the tablet servers, as seen by a
// master. It keeps what clients wrote, and so detects lost writes and tablets with two owners.
type simCluster struct {
	mu      sync.Mutex
	seed    uint64
	dice    map[string]*rand.Rand // random sources, by purpose
	servers map[string]*tabletServer
	rows    map[string]*tabletRow
	logs    map[string][]write
	ended   map[string]bool
	files   map[string]recoveryFile
	acked   []write
	merged  map[string]string // keys of merged tablets, and of those that have their rows
	started int
	sorts   map[string]int // by piece, answered or ended
	broken  map[string]int // that failed
	wrong   []string       // violations
	history []happening

	down  bool // METADATA cannot be read
	lossy int  // percent of saves with unknown outcome
	flaky int  // percent of sorts that fail
	ms    int  // maximum time of a server for one request
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
	busy  map[string]bool // tablets in the course of loading or unloading
}

func newSimCluster(rng *rand.Rand, users int) *simCluster {
	f := &simCluster{
		seed: rng.Uint64(), dice: map[string]*rand.Rand{}, servers: map[string]*tabletServer{},
		rows: map[string]*tabletRow{}, logs: map[string][]write{}, ended: map[string]bool{},
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

func (f *simCluster) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *simCluster) start() {
	f.locked(func() {
		f.started++
		node := fmt.Sprintf("n%d.%d", f.started%5, f.started)
		for _, name := range []string{node, node + testMetadata} {
			f.servers[name] = &tabletServer{name: name, gone: make(chan struct{}), has: map[string]map[int]bool{}, busy: map[string]bool{}}
			f.logs[name] = nil
			f.notef(noTablet, name, "begins")
		}
	})
}

// testMetadata is the name suffix of a node's METADATA server.
const testMetadata = ".metadata"

// kill stops both servers of one node, if more than one node is alive. They answer no more
// requests.
func (f *simCluster) kill() {
	f.locked(func() {
		if names := slices.Sorted(maps.Keys(f.servers)); len(names) > 2 {
			node := strings.TrimSuffix(names[f.diceFor("kill").IntN(len(names))], testMetadata)
			for _, name := range []string{node, node + testMetadata} {
				close(f.servers[name].gone)
				delete(f.servers, name)
				f.notef(noTablet, name, "dies")
			}
		}
	})
}

// write has a client write to a served tablet.
func (f *simCluster) write(n int) {
	f.locked(func() {
		for _, name := range slices.Sorted(maps.Keys(f.servers)) {
			s := f.servers[name]
			keys := slices.Sorted(maps.Keys(s.has))
			if len(keys) == 0 || f.ended[name] || f.diceFor("write").IntN(3) == 0 {
				continue
			}
			w := write{keys[f.diceFor("write").IntN(len(keys))], n}
			f.logs[name] = append(f.logs[name], w)
			s.has[w.Key][n] = true
			f.acked = append(f.acked, w)
			f.notef(w.Key, name, "acknowledges write %d", n)
			return
		}
	})
}

// settled returns what is wrong in the end, and with which tablet; empty if nothing.
func (f *simCluster) settled() (missing, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, row := range f.rows {
		s := f.servers[row.Server]
		if s == nil || s.has[key] == nil {
			return fmt.Sprintf("tablet %q is not served, METADATA says by %q", key, row.Server), key
		}
		if len(row.Recoveries) > 0 {
			return fmt.Sprintf("tablet %q needs recoveries of %v", key, row.Recoveries), key
		}
	}
	for _, w := range f.acked {
		key := f.nowIn(w.Key)
		if !f.servers[f.rows[key].Server].has[key][w.N] {
			return fmt.Sprintf("write %d to tablet %q is lost", w.N, w.Key), key
		}
	}
	for name := range f.logs {
		if f.servers[name] == nil {
			return "the logs of " + name + " are still there", noTablet
		}
	}
	return "", noTablet
}

// nowIn returns the key of the tablet that has the rows of the given one now.
func (f *simCluster) nowIn(key string) string {
	for f.merged[key] != "" {
		key = f.merged[key]
	}
	return key
}

// delay is the duration of an operation. No two operations end at the same instant, where the order
// would be random.
func (f *simCluster) delay(what string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 1 + f.upTo("delay "+what, time.Duration(f.ms)*time.Millisecond)
}

func (f *simCluster) upTo(what string, limit time.Duration) time.Duration {
	return time.Duration(f.diceFor(what).Int64N(int64(limit)))
}

// diceFor returns the random source for a purpose. Each purpose has its own, so that concurrent
// operations get the same numbers in any order, and a seed replays. The caller holds mu.
func (f *simCluster) diceFor(what string) *rand.Rand {
	d := f.dice[what]
	if d == nil {
		h := fnv.New64a()
		_, _ = h.Write([]byte(what)) // never fails
		d = rand.New(rand.NewPCG(f.seed, h.Sum64()))
		f.dice[what] = d
	}
	return d
}

// masterView is one master's view of the cluster. While paused it does nothing.
type masterView struct {
	*simCluster
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

// enter delays a request by up to a millisecond.
func (m *masterView) enter(what string) {
	m.mu.Lock()
	p := m.paused
	m.mu.Unlock()
	if p != nil {
		<-p
	}
	var way time.Duration
	m.locked(func() { way = 1 + m.upTo("way "+what, time.Millisecond) })
	time.Sleep(way)
}

var (
	errTestStale   = errors.New("a newer master is known")
	errTestChanged = errors.New("row was changed")
	errTestUnknown = errors.New("outcome unknown")
)

// at waits as long as a server takes. A dead server never answers.
func (m *masterView) at(ctx context.Context, name, what string, q api.Sequencer) (*tabletServer, error) {
	m.enter(name + " " + what)
	m.simCluster.mu.Lock()
	s := m.servers[name]
	if s != nil && q.LockGeneration != 0 {
		if q.LockGeneration < s.epoch {
			m.simCluster.mu.Unlock()
			return nil, errTestStale
		}
		s.epoch = q.LockGeneration
	}
	m.simCluster.mu.Unlock()
	if s == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s, m.work(ctx, s, what)
}

// work is an action of a server, if it lives to do it.
func (m *masterView) work(ctx context.Context, s *tabletServer, what string) error {
	select {
	case <-time.After(m.delay(s.name + " " + what)):
	case <-ctx.Done():
		return ctx.Err()
	case <-s.gone:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (m *masterView) Begin(context.Context) error { m.enter("begin"); return nil }

func (m *masterView) Logs(context.Context) (servers []string, recovered map[string]bool, err error) {
	m.enter("logs")
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
	m.enter("servers")
	m.locked(func() {
		for _, name := range slices.Sorted(maps.Keys(m.servers)) {
			node, metadata := strings.CutSuffix(name, testMetadata)
			v := TabletServer{Name: name, Node: node[:2], Metadata: metadata, Silent: m.diceFor("silent "+name).IntN(20) == 0}
			for _, key := range slices.Sorted(maps.Keys(m.servers[name].has)) {
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
	m.enter("rows")
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

func (m *masterView) RemoveLogs(_ context.Context, server string) error {
	m.enter("remove logs " + server)
	m.locked(func() {
		if m.servers[server] != nil {
			m.wrongf(noTablet, "the logs of %s are removed, it is alive", server)
		}
		for key, row := range m.rows {
			if row.Server == server || slices.Contains(row.Recoveries, server) {
				m.wrongf(key, "the logs of %s are removed, which are needed", server)
			}
		}
		delete(m.logs, server)
		delete(m.files, server)
		m.notef(noTablet, server, "its logs are removed")
	})
	return nil
}

func (m *masterView) Recovery(_ context.Context, server string) (*Recovery, uint64, error) {
	m.enter("recovery " + server)
	m.simCluster.mu.Lock()
	defer m.simCluster.mu.Unlock()
	file, ok := m.files[server]
	if !ok {
		return nil, 0, nil
	}
	r, err := DecodeRecovery(file.b)
	return r, file.gen, err
}

func (m *masterView) SaveRecovery(_ context.Context, r *Recovery, gen uint64) (uint64, error) {
	m.enter("save " + r.Server)
	m.simCluster.mu.Lock()
	defer m.simCluster.mu.Unlock()
	fate := m.diceFor("save " + r.Server).IntN(100)
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
	m.enter("end " + server)
	m.locked(func() {
		if m.servers[server] != nil {
			m.wrongf(noTablet, "the logs of %s are ended, it is alive", server)
		}
		m.ended[server] = true
		m.notef(noTablet, server, "its logs are ended, they have %d writes", len(m.logs[server]))
		var id blobfs.ID
		copy(id[:], server)
		for i := 0; i < len(m.logs[server]); i += 3 {
			pieces = append(pieces, Piece{Log: id, Start: int64(i), End: int64(min(i+3, len(m.logs[server])))})
		}
	})
	return pieces, nil
}

func (m *masterView) Sort(ctx context.Context, by *TabletServer, server string, p *Piece) (run []byte, err error) {
	piece := fmt.Sprint(server, " ", p.Start)
	if by.Silent || by.Metadata {
		m.locked(func() {
			m.wrongf(noTablet, "%s, silent %v, of METADATA %v, sorts %s", by.Name, by.Silent, by.Metadata, piece)
		})
	}
	_, err = m.at(ctx, by.Name, "sorts "+piece, api.Sequencer{})
	m.locked(func() {
		if err == nil && m.diceFor("sort "+piece).IntN(100) < m.flaky {
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

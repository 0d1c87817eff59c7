package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

var (
	errTestBusy      = errors.New("the tablet is being loaded or unloaded")
	errTestOvertaken = fmt.Errorf("%w: its row is at another generation, or gone", ErrOvertaken)
)

// begin rejects other loads and unloads of a tablet on a server until end: a server executes one
// order for a tablet at a time, and rejects that of another master meanwhile.
func (f *simCluster) begin(s *tabletServer, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.busy[key] {
		return errTestBusy
	}
	s.busy[key] = true
	return nil
}

func (f *simCluster) end(s *tabletServer, key string) {
	f.locked(func() { delete(s.busy, key) })
}

// needs returns the dead servers whose logs a tablet needs, and the reason why the tablet must not
// be assigned.
func (f *simCluster) needs(row *tabletRow, to string) []string {
	need := slices.Clone(row.Recoveries)
	if row.Server != "" && row.Server != to && !slices.Contains(need, row.Server) {
		if f.servers[row.Server] != nil {
			f.wrongf(row.Key, "assigned to %s, while %s is alive and has it", to, row.Server)
		}
		need = append(need, row.Server)
	}
	return need
}

// Load has a server acquire the row and serve the tablet later. If the server has the tablet, it is
// no error.
func (m *masterView) Load(ctx context.Context, v *TabletServer, t *Tablet, q api.Sequencer) error {
	s, err := m.at(ctx, v.Name, "load "+t.Key, q)
	if err != nil {
		return err
	}
	if err := m.begin(s, t.Key); err != nil {
		return err
	}
	defer m.end(s, t.Key)
	data, err := m.take(s, t, q)
	if err != nil || data == nil {
		return err
	}
	if err = m.work(ctx, s, "open "+t.Key); err != nil {
		m.release(s, t)
		return err
	}
	m.serve(s, t, data)
	m.flushes.Go(func() { m.flush(s, t.Key) })
	return nil
}

// take assigns a tablet to a server and returns its contents; nil if the server has it.
func (f *simCluster) take(s *tabletServer, t *Tablet, q api.Sequencer) (data map[int]bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	row := f.rows[t.Key]
	switch {
	case row != nil && s.has[t.Key] != nil:
		return nil, nil
	case row == nil || row.Generation != t.Generation:
		return nil, errTestOvertaken
	}
	if row.OfMetadata() != strings.HasSuffix(s.name, testMetadata) {
		f.wrongf(row.Key, "it is loaded on %s", s.name)
	}
	need := f.needs(row, s.name)
	data = map[int]bool{}
	maps.Copy(data, row.files)
	for _, dead := range need {
		r, e := DecodeRecovery(f.files[dead].b)
		if e != nil || !r.Done() {
			f.wrongf(t.Key, "it is loaded, the logs of %s are not sorted: %v", dead, e)
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
	f.notef(t.Key, s.name, "takes it for master %d, which makes generation %d; recoveries %v, files and runs %s",
		q.LockGeneration, row.Generation, need, writesIn(data))
	return data, err
}

// serve has a server serve what it acquired.
func (f *simCluster) serve(s *tabletServer, t *Tablet, data map[int]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.servers[s.name] != s {
		return
	}
	if row := f.rows[t.Key]; row == nil || row.Server != s.name {
		f.wrongf(t.Key, "%s serves it, METADATA assigns it to another: %+v", s.name, row)
	}
	for name, other := range f.servers {
		if other.has[t.Key] != nil {
			f.wrongf(t.Key, "%s serves it, %s does so already", s.name, name)
		}
	}
	s.has[t.Key] = data
	f.notef(t.Key, s.name, "serves %s", writesIn(data))
}

// release unassigns a tablet that a server acquired and failed to load; it may fail.
func (f *simCluster) release(s *tabletServer, t *Tablet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	row := f.rows[t.Key]
	if f.servers[s.name] != s || row == nil || row.Server != s.name || f.diceFor("give back "+t.Key).IntN(2) == 0 {
		return
	}
	row.Server = ""
	row.Generation++
	f.notef(t.Key, s.name, "released, at generation %d", row.Generation)
}

// flush writes out the entries from the runs, some time later.
func (m *masterView) flush(s *tabletServer, key string) {
	select {
	case <-time.After(m.delay(s.name + " flush " + key)):
	case <-s.gone:
		return
	}
	m.locked(func() {
		if row := m.rows[key]; row != nil && row.Server == s.name && m.servers[s.name] == s && s.has[key] != nil {
			row.files, row.Recoveries = maps.Clone(s.has[key]), nil
			row.Generation++
			m.notef(key, s.name, "writes it out, which makes generation %d; files %s", row.Generation, writesIn(row.files))
		}
	})
}

// Unload has a server write a tablet out, stop serving it, and record that in its row later.
func (m *masterView) Unload(ctx context.Context, v *TabletServer, t *Tablet, q api.Sequencer) (gen uint64, err error) {
	s, err := m.at(ctx, v.Name, "unload "+t.Key, q)
	if err != nil {
		return 0, err
	}
	if err := m.begin(s, t.Key); err != nil {
		return 0, err
	}
	defer m.end(s, t.Key)
	m.locked(func() {
		row := m.rows[t.Key]
		switch {
		case row == nil:
			err = errTestChanged
		case s.has[t.Key] != nil:
			row.files, row.Recoveries = s.has[t.Key], nil
			row.Generation++
			delete(s.has, t.Key)
			m.notef(t.Key, s.name, "stops serving it for master %d, which makes generation %d; files %s", q.LockGeneration, row.Generation, writesIn(row.files))
		}
	})
	if err == nil {
		err = m.work(ctx, s, "unloaded "+t.Key)
	}
	if err != nil {
		return 0, err
	}
	m.locked(func() {
		row := m.rows[t.Key]
		if row == nil {
			err = errTestChanged
		} else if row.Server == s.name {
			row.Server = ""
			row.Generation++
			gen = row.Generation
			m.notef(t.Key, s.name, "has unloaded it, which makes generation %d", gen)
		}
	})
	return gen, err
}

// Merge has both tablets written out, as a server does.
func (m *masterView) Merge(ctx context.Context, v *TabletServer, lower, upper *Tablet, q api.Sequencer) error {
	s, err := m.at(ctx, v.Name, "merge "+lower.Key, q)
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
		m.notef(lower.Key, s.name, "is merged with the one above it")
		m.notef(upper.Key, s.name, "is merged with the one below it, which makes generation %d; files %s", up.Generation, writesIn(up.files))
	})
	return err
}

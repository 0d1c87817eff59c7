package master

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// Unserved is a tablet that METADATA assigns to no server, or to a server that does not hold it.
type Unserved struct {
	Tablet
	Start []byte    // the tablet's rows come after this one; nil if there is no lower bound
	Since time.Time // as seen by this master
	Tries int       // consecutive failed orders for it
	// Err is why it is not served: the last of these failures, or what it waits for.
	Err error

	first string // key of the tablet before it
	final bool   // Err takes precedence over failed orders
}

// unservedAfter is how long a tablet is not served before it is reported: moves and splits take
// less.
const unservedAfter = 5 * time.Second

var (
	errNoServer  = errors.New("no live tablet server can load the tablet")
	errNotSorted = errors.New("the commit logs of its dead server are not sorted yet")
	errNotTaken  = errors.New("the load is in progress or about to start")
)

// Unserved returns the tablets that have not been served for unservedAfter, sorted by key. The
// error is ErrNotMaster.
func (m *Master) Unserved() ([]Unserved, error) {
	a := m.assigner.Load()
	if a == nil || m.Epoch() == 0 {
		return nil, ErrNotMaster
	}
	return a.unserved(time.Now()), nil
}

// noteUnserved records which tablets are not served. A tablet keeps its previous state if its
// server did not answer, or if its row could not be read.
func (a *assigner) noteUnserved(s *TabletState) {
	alive := map[string]*TabletServer{}
	for i := range s.Servers {
		alive[s.Servers[i].Name] = &s.Servers[i]
	}
	now, found := time.Now(), map[string]*Unserved{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range s.Tablets {
		t := &s.Tablets[i]
		v, known := alive[t.Server], a.mu.unserved[t.Key]
		if v != nil && (v.has(t.Key) || v.Silent && known == nil) {
			continue
		}
		u := &Unserved{Tablet: *t, Since: now}
		if known != nil {
			u.Since = known.Since
		}
		if i > 0 {
			u.first = s.Tablets[i-1].Key
		}
		u.Err, u.final = s.whyUnserved(t, v != nil)
		found[t.Key] = u
	}
	if !a.whole {
		for key, u := range a.mu.unserved {
			if !slices.ContainsFunc(s.Tablets, func(t Tablet) bool { return t.Key == key }) {
				found[key] = u
			}
		}
	}
	a.mu.unserved = found
}

// whyUnserved returns why a tablet is not served, for Unserved.Err and final. serverAlive reports
// whether its server is alive.
func (s *TabletState) whyUnserved(t *Tablet, serverAlive bool) (why error, final bool) {
	switch {
	case t.Damaged != nil:
		return t.Damaged, true
	case !serverAlive && s.Suspended[t.Key] != nil:
		return s.Suspended[t.Key], true
	case !serverAlive && t.Server != "" && !s.Recovered[t.Server]:
		return errNotSorted, false
	case !serverAlive && !slices.ContainsFunc(s.Servers, func(v TabletServer) bool { return v.serves(t.Key) && !v.Silent }):
		return errNoServer, false
	}
	return errNotTaken, false
}

// unserved returns the tablets that had been recorded for unservedAfter by now.
func (a *assigner) unserved(now time.Time) (all []Unserved) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.mu.unserved {
		if now.Sub(u.Since) < unservedAfter {
			continue
		}
		x := *u
		x.Start = startAfter(x.first, x.Key)
		for _, o := range []Order{{Kind: Load, Tablet: u.Tablet}, {Kind: Recover, Server: u.Server}} {
			if f := a.mu.failures[o.subject()]; f.err != nil && !x.final {
				x.Tries, x.Err = f.tries, f.err
				break
			}
		}
		all = append(all, x)
	}
	slices.SortFunc(all, func(x, y Unserved) int { return cmp.Compare(x.Key, y.Key) })
	return all
}

// startAfter returns the start of key's tablet, given the key of the tablet before it.
func startAfter(before, key string) []byte {
	table, _, err := metadata.ParseKey([]byte(key))
	if err != nil {
		return nil
	}
	if before == RootKey && table == metadata.TableID {
		return metadata.RootEnd()
	}
	if of, end, err := metadata.ParseKey([]byte(before)); err == nil && of == table {
		return end
	}
	return nil
}

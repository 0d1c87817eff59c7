package tablet

import (
	"sync/atomic"

	"github.com/steledb/stele/tablet/memtable"
)

// mem is a memtable with the sequence numbers in it.
type mem struct {
	*memtable.Table
	// minSeq is the first entry's sequence number; 0 while there is none.
	minSeq atomic.Uint64
	// maxSeq is the last entry's. It is final once the memtable is frozen.
	maxSeq atomic.Uint64
	// stamped is the last server timestamp given when the memtable was frozen.
	stamped int64
	// onWritten, if not nil, is called when the memtable is in files that the
	// metadata names. Set before the memtable is frozen.
	onWritten func()

	// start and end bound what counts of it: start < row <= end, empty being no
	// bound. Set where a split gave it to two tablets.
	start, end []byte

	held     *held
	sums     *familySums
	released atomic.Bool
}

// held is the memory of a memtable that one tablet has, or two after a split.
type held struct {
	server *Server
	bytes  atomic.Int64 // what it adds to Server.memtables or, when it has no owner any more, to Server.lingering
	owners atomic.Int32
	refs   atomic.Int32 // of owners and of views
}

func newMem(s *Server) *mem {
	m := &mem{Table: memtable.New(), held: &held{server: s}, sums: &familySums{}}
	m.held.owners.Store(1)
	m.held.refs.Store(1)
	return m
}

// unref takes note that a view or an owner has let go of the memtable. The last gives the memory back.
func (h *held) unref() {
	if h.refs.Add(-1) > 0 {
		return
	}
	if n := h.bytes.Swap(0); n > 0 {
		h.server.lingering.Add(-n)
		if h.server.waiters.Load() > 0 {
			h.server.signalRoom()
		}
	}
}

// part returns what a frozen memtable has of the rows start < row <= end, for
// another tablet.
func (m *mem) part(start, end []byte) *mem {
	p := &mem{Table: m.Table, held: m.held, sums: m.sums, stamped: m.stamped, start: start, end: end}
	p.minSeq.Store(m.minSeq.Load())
	p.maxSeq.Store(m.maxSeq.Load())
	m.held.owners.Add(1)
	m.held.refs.Add(1)
	return p
}

// count adds to the server's memory what the memtable has grown.
func (m *mem) count() {
	if grown := m.Bytes() - m.held.bytes.Load(); grown > 0 {
		m.held.bytes.Add(grown)
		m.held.server.memtablesGrew(grown)
	}
}

// release ends the tablet's part in the memtable, which is written out or is to be no more. Its memory is given back when no
// read looks at it any more either.
func (m *mem) release() {
	if m.released.Swap(true) {
		return
	}
	if h := m.held; h.owners.Add(-1) == 0 {
		n := h.bytes.Load()
		h.server.lingering.Add(n)
		h.server.memtables.Add(-n)
	}
	m.held.unref()
}

// group is the files of one locality group, oldest first.
type group struct {
	name  string
	files []*file
}

// view is what a read looks at: memtables and files that together hold each
// entry of the tablet exactly once. A view never changes; a tablet replaces it.
type view struct {
	active *mem
	frozen []*mem  // oldest first
	groups []group // in the order of names

	// refs counts the readers, and the tablet while the view is current.
	refs atomic.Int32
}

func (v *view) group(name string) *group {
	for i := range v.groups {
		if v.groups[i].name == name {
			return &v.groups[i]
		}
	}
	return nil
}

// filesOf returns the files of a group, oldest first.
func (v *view) filesOf(name string) []*file {
	if g := v.group(name); g != nil {
		return g.files
	}
	return nil
}

// fileOf returns the file of the view that is of the same SSTable as m, or nil.
func (v *view) fileOf(m *FileMeta) *file {
	for _, g := range v.groups {
		for _, f := range g.files {
			if f.meta.Handle.ID == m.Handle.ID {
				return f
			}
		}
	}
	return nil
}

// hold has a new view hold what is in it, until its last release.
func (v *view) hold() {
	v.eachMem(func(m *mem) { m.held.refs.Add(1) })
	for _, g := range v.groups {
		for _, f := range g.files {
			f.refs.Add(1)
		}
	}
	v.refs.Store(1)
}

func (v *view) release() {
	if v.refs.Add(-1) > 0 {
		return
	}
	v.eachMem(func(m *mem) { m.held.unref() })
	for _, g := range v.groups {
		for _, f := range g.files {
			f.release()
		}
	}
}

// mostFiles returns the number of files of the group that has the most.
func (v *view) mostFiles() (n int) {
	for i := range v.groups {
		n = max(n, len(v.groups[i].files))
	}
	return n
}

func (v *view) eachMem(f func(m *mem)) {
	if v.active != nil { // else it is of files alone
		f(v.active)
	}
	for _, m := range v.frozen {
		f(m)
	}
}

// clone returns a view with the same contents, to be changed and installed.
func (v *view) clone() *view {
	n := &view{active: v.active, frozen: append([]*mem(nil), v.frozen...)}
	for _, g := range v.groups {
		n.groups = append(n.groups, group{name: g.name, files: append([]*file(nil), g.files...)})
	}
	return n
}

// replace puts the files added in the place of those removed, which stand next
// to each other in the named group, or at its end if there are none.
func (v *view) replace(name string, removed []*file, added *file) {
	if added == nil {
		v.replaceAll(name, removed, nil)
		return
	}
	v.replaceAll(name, removed, []*file{added})
}

// replaceAll is replace with several files, none of which is nil.
func (v *view) replaceAll(name string, removed, added []*file) {
	g := v.group(name)
	if g == nil {
		at := 0
		for at < len(v.groups) && v.groups[at].name < name {
			at++
		}
		v.groups = append(v.groups, group{})
		copy(v.groups[at+1:], v.groups[at:])
		v.groups[at] = group{name: name}
		g = &v.groups[at]
	}
	var files []*file
	placed := false
	for _, f := range g.files {
		if len(removed) > 0 && f == removed[0] {
			files, placed = append(files, added...), true
		}
		if !containsFile(removed, f) {
			files = append(files, f)
		}
	}
	if !placed {
		files = append(files, added...)
	}
	g.files = files
}

func containsFile(files []*file, f *file) bool {
	for _, g := range files {
		if g == f {
			return true
		}
	}
	return false
}

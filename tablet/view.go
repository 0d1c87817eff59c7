package tablet

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/steledb/stele/tablet/memtable"
	"github.com/steledb/stele/tablet/sstable"
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
	// counted is what the memtable adds to Server.memtables, in bytes.
	counted atomic.Int64
}

func newMem() *mem { return &mem{Table: memtable.New()} }

// count adds to the server's memory what the memtable has grown.
func (m *mem) count(s *Server) {
	if grown := m.Bytes() - m.counted.Load(); grown > 0 {
		m.counted.Add(grown)
		s.memtablesGrew(grown)
	}
}

// release gives the memory back that the memtable was counted with.
func (m *mem) release(s *Server) { s.memtables.Add(-m.counted.Swap(0)) }

// file is an open SSTable. It is counted by the views that hold it; when the
// last one goes and the file is out of the tablet's metadata, its blob goes too.
type file struct {
	meta   FileMeta
	table  *sstable.Table
	blob   BlobReader
	refs   atomic.Int32
	unlink atomic.Bool // delete the blob with the last reference
	delete func(f *file)

	columnFilter bool // the Bloom filter knows columns, not only rows
}

func (f *file) release() {
	if f.refs.Add(-1) > 0 {
		return
	}
	_ = f.blob.Close() // read only: nothing to lose
	if f.unlink.Load() {
		f.delete(f)
	}
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

func (v *view) release() {
	if v.refs.Add(-1) > 0 {
		return
	}
	for _, g := range v.groups {
		for _, f := range g.files {
			f.release()
		}
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
		if len(removed) > 0 && f == removed[0] && added != nil {
			files, placed = append(files, added), true
		}
		if !containsFile(removed, f) {
			files = append(files, f)
		}
	}
	if !placed && added != nil {
		files = append(files, added)
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

// openFile opens the SSTable that m describes.
func (s *Server) openFile(ctx context.Context, m FileMeta) (*file, error) {
	blob, err := s.cfg.Blobs.OpenBlob(ctx, m.Handle)
	if err != nil {
		return nil, fmt.Errorf("open sstable %s: %w", m.Handle.ID, err)
	}
	t, err := sstable.Open(ctx, blob, sstable.OpenOptions{Cache: s.cache, Name: m.Handle.ID.String()})
	if err != nil {
		blob.Close()
		return nil, err
	}
	return &file{meta: m, table: t, blob: blob, delete: s.deleteFile,
		columnFilter: t.Meta().FilterName == filterNameRowColumn}, nil
}

// deleteFile removes the blob of a file that no view and no metadata holds, and its blocks
// from the cache, where they would push out those that are read.
func (s *Server) deleteFile(f *file) {
	f.table.DropCached()
	if err := s.cfg.Blobs.Delete(context.Background(), f.meta.Handle.ID); err != nil {
		// The next start finds it again among blobs that no metadata names.
		s.log.Warn("delete sstable", "blob", f.meta.Handle.ID.String(), "error", err)
	}
}

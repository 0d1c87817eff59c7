package local

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/vfs"
)

// startBytes is how much of an extent is written back to disk at a time while it is being written.
// If all were left to the final sync, the syncs of commit logs would wait behind it.
const startBytes = 1 << 20

// chunkPool has buffers of one chunk.
var chunkPool = sync.Pool{New: func() any { return new([ChunkBytes]byte) }}

// extentWriter writes one extent of a blob into a temporary file. If the folder fails, file and
// folder are replaced; see move.
type extentWriter struct {
	extentMeta
	s         *extents
	folder    *folder
	file      vfs.File // nil once finished
	name      string   // path of the file; empty if there is none
	chunks    []uint32
	flushed   int64 // bytes whose write-back has started
	committed int64 // bytes counted in folder.committed and not yet written
	finished  bool  // table and footer are written and synced
	renamed   bool
	// replacedFile means that the file replaced the extent's existing file under the same name, so
	// drop must not remove it.
	replacedFile   bool
	holdersDurable bool // the holder list is durable
	// priorityBytes is the expected length in bytes of a high-priority extent; 0 for others.
	priorityBytes int64
	// full has the folders that turned out to have no space for this extent.
	full []*folder
}

// errSource means that data in a failed folder cannot be read back.
var errSource = errors.New("written data cannot be read back")

// start creates the temporary file in a folder with free space. If the folder fails, it is retired
// and another one is tried.
func (x *extentWriter) start() error {
	need := extentFileBytes(x.s.cfg.ExtentBytes)
	if x.priorityBytes > 0 {
		need = extentFileBytes(min(x.priorityBytes, x.s.cfg.ExtentBytes))
	}
	for {
		f, err := x.s.pick(need, x.priorityBytes > 0, func(f *folder) bool { return slices.Contains(x.full, f) })
		if err != nil {
			return err
		}
		x.folder, x.committed = f, need
		if err = x.create(); err == nil {
			return nil
		}
		retry := x.handleFailure(err)
		x.drop()
		if !retry {
			return err
		}
	}
}

func (x *extentWriter) create() error {
	name := x.folder.blobPath(x.id().String() + tmpSuffix)
	file, err := x.folder.fs.Create(name)
	if err != nil {
		return err
	}
	x.file, x.name = file, name
	page := chunkPool.Get().(*[ChunkBytes]byte)
	defer chunkPool.Put(page)
	x.encodeHeader(page[:])
	_, err = file.WriteAt(page[:pageBytes], 0)
	return err
}

// write appends p to the payload. Only the last write of an extent may have a length that is not a
// multiple of the chunk size. On an error nothing was appended.
func (x *extentWriter) write(p []byte) error {
	if x.folder.isRetired() {
		return x.folder.retiredError()
	}
	if n := x.length - x.flushed; n >= startBytes {
		if err := x.file.StartSync(pageBytes+x.flushed, n); err != nil {
			return err
		}
		x.flushed = x.length
	}
	if _, err := x.file.WriteAt(p, pageBytes+x.length); err != nil {
		return err
	}
	for chunk := range slices.Chunk(p, ChunkBytes) {
		x.chunks = append(x.chunks, crc.Sum(chunk))
	}
	x.length += int64(len(p))
	x.releaseCommitted(int64(len(p)))
	return nil
}

// finish writes table and footer and makes the file durable, but not its name.
func (x *extentWriter) finish() error {
	if x.folder.isRetired() {
		return x.folder.retiredError()
	}
	buf := chunkPool.Get().(*[ChunkBytes]byte)
	defer chunkPool.Put(buf)
	if _, err := x.file.WriteAt(x.appendTail(buf[:0], x.chunks), pageBytes+x.length); err != nil {
		return err
	}
	if err := x.file.Sync(); err != nil {
		return err
	}
	x.releaseCommitted(x.committed)
	x.finished = true
	// A blob may have any number of extents; only the open one keeps a descriptor.
	err := x.file.Close()
	x.file = nil
	return err
}

func (x *extentWriter) id() ExtentID { return ExtentID{Blob: x.blob, Index: x.index} }

// of returns the blob's number of extents if this is the last one, otherwise 0.
func (x *extentWriter) of() int {
	if x.last {
		return x.index + 1
	}
	return 0
}

// rename gives the file its name as a sealed extent.
func (x *extentWriter) rename() error {
	if x.folder.isRetired() {
		return x.folder.retiredError()
	}
	name := x.folder.blobPath(extentName(x.id(), x.of()))
	replacedFile := x.s.listsFile(x.id(), name)
	if err := x.folder.fs.Rename(x.name, name); err != nil {
		return err
	}
	x.name, x.renamed, x.replacedFile = name, true, replacedFile
	return nil
}

// move writes the extent again in another folder, from data read back from the current one. After a
// failed fsync the page cache may have the right bytes; each chunk is verified with the checksum
// taken in memory. errSource if data is lost, otherwise the errors of pick.
func (x *extentWriter) move(cause error) error {
	if !x.handleFailure(cause) {
		return cause
	}
	x.releaseCommitted(x.committed)
	old := *x
	defer old.drop()
	for {
		*x = extentWriter{s: old.s, extentMeta: old.extentMeta, priorityBytes: old.priorityBytes, full: x.full}
		x.length = 0
		if err := x.start(); err != nil {
			return err
		}
		err := x.copyFrom(&old)
		if err == nil && old.finished {
			err = x.finish()
		}
		if err == nil {
			return nil
		}
		lost := errors.Is(err, errSource)
		retry := !lost && x.handleFailure(err)
		x.drop()
		if !retry {
			return err
		}
	}
}

func (x *extentWriter) copyFrom(old *extentWriter) error {
	buf := chunkPool.Get().(*[ChunkBytes]byte)
	defer chunkPool.Put(buf)
	if old.file == nil && len(old.chunks) > 0 {
		file, err := old.folder.fs.OpenRead(old.name)
		if err != nil {
			return fmt.Errorf("%w: %w", errSource, err)
		}
		old.file = file
	}
	for i, want := range old.chunks {
		at := int64(i) * ChunkBytes
		p := buf[:min(ChunkBytes, old.length-at)]
		if _, err := readFull(old.file, p, pageBytes+at); err != nil {
			return fmt.Errorf("%w: %w", errSource, err)
		}
		if got := crc.Sum(p); got != want {
			return fmt.Errorf("%w: %w", errSource, &CorruptError{File: old.name, Offset: pageBytes + at, Got: got, Want: want})
		}
		if err := x.write(p); err != nil {
			return err
		}
	}
	return nil
}

// handleFailure records that the folder is full, or retires it because of another error, and reports
// whether another folder may work.
func (x *extentWriter) handleFailure(cause error) (retry bool) {
	if vfs.IsDiskFull(cause) {
		x.full = append(x.full, x.folder)
	}
	return x.folder.failed(cause)
}

// drop closes the file and, if the folder is not retired, removes it.
func (x *extentWriter) drop() {
	x.releaseCommitted(x.committed)
	if x.file != nil {
		x.file.Close()
		x.file = nil
	}
	if x.name != "" && !x.replacedFile {
		// A file that cannot be removed is removed when the store is next opened.
		_ = x.folder.remove(x.name)
	}
	x.name = ""
}

// releaseCommitted reduces the space committed to this extent by n bytes.
func (x *extentWriter) releaseCommitted(n int64) {
	n = min(n, x.committed)
	if n == 0 {
		return // there may be no folder yet
	}
	x.committed -= n
	x.folder.committed.Add(-n)
}

func (x *extentWriter) ref(node string) ExtentRef {
	ref := ExtentRef{Index: x.index, Length: x.length, CRC: tableCRC(x.chunks)}
	if node != "" {
		ref.Replicas = []string{node}
	}
	return ref
}

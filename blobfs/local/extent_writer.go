package local

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/vfs"
)

// startBytes of an extent go to disk together while it is written: were all of it left to
// the last sync, commit logs' syncs would wait behind it.
const startBytes = 1 << 20

// chunkPool lends buffers of one chunk.
var chunkPool = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// extentWriter writes one extent of a blob into a temporary file. Its file and
// folder are replaced when the folder fails; see move.
type extentWriter struct {
	extentMeta
	s        *Store
	folder   *folder
	file     vfs.File // nil once finished
	name     string   // path of the file; empty if there is none
	chunks   []uint32
	begun    int64 // bytes whose way to disk has begun
	promised int64 // bytes of the folder's promise not yet used
	finished bool  // table and footer are there, and all is synced
	renamed  bool
	// tookPlace means that it is where the extent's file was, which is no more: it stays, whatever comes.
	tookPlace bool
	noted     bool // the folder has the list of holders
	// vital is, if the extent is vital, how many bytes it is expected to have; else 0.
	vital int64
	// full are the folders that had no room for this extent after all.
	full []*folder
}

// errSource means that what a failed folder holds cannot be read back.
var errSource = errors.New("written data cannot be read back")

// start makes the temporary file in a folder that has room. A folder that
// fails at it is retired, and another tried.
func (x *extentWriter) start() error {
	need := extentFileBytes(x.s.cfg.ExtentBytes)
	if x.vital > 0 {
		need = extentFileBytes(min(x.vital, x.s.cfg.ExtentBytes))
	}
	for {
		f, err := x.s.pick(need, x.vital > 0, func(f *folder) bool { return slices.Contains(x.full, f) })
		if err != nil {
			return err
		}
		x.folder, x.promised = f, need
		if err = x.create(); err == nil {
			return nil
		}
		elsewhere := x.judge(err)
		x.drop()
		if !elsewhere {
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
	page := chunkPool.Get().(*[chunkBytes]byte)
	defer chunkPool.Put(page)
	x.encodeHeader(page[:])
	_, err = file.WriteAt(page[:pageBytes], 0)
	return err
}

// write appends p to the payload. Only the last write of an extent may have a
// length that is not a multiple of the chunk's. On an error nothing was appended.
func (x *extentWriter) write(p []byte) error {
	if x.folder.isRetired() {
		return x.folder.retiredError()
	}
	if n := x.length - x.begun; n >= startBytes {
		if err := x.file.StartSync(pageBytes+x.begun, n); err != nil {
			return err
		}
		x.begun = x.length
	}
	if _, err := x.file.WriteAt(p, pageBytes+x.length); err != nil {
		return err
	}
	for chunk := range slices.Chunk(p, chunkBytes) {
		x.chunks = append(x.chunks, crc.Sum(chunk))
	}
	x.length += int64(len(p))
	x.keepPromise(int64(len(p)))
	return nil
}

// finish adds table and footer and makes the file durable, though not its name.
func (x *extentWriter) finish() error {
	if x.folder.isRetired() {
		return x.folder.retiredError()
	}
	buf := chunkPool.Get().(*[chunkBytes]byte)
	defer chunkPool.Put(buf)
	if _, err := x.file.WriteAt(x.appendTail(buf[:0], x.chunks), pageBytes+x.length); err != nil {
		return err
	}
	if err := x.file.Sync(); err != nil {
		return err
	}
	x.keepPromise(x.promised)
	x.finished = true
	// A blob may have any number of extents; only one keeps a descriptor.
	err := x.file.Close()
	x.file = nil
	return err
}

func (x *extentWriter) id() ExtentID { return ExtentID{Blob: x.blob, Index: x.index} }

// of is the number of the blob's extents, if this is the last.
func (x *extentWriter) of() int {
	if x.last {
		return x.index + 1
	}
	return 0
}

// rename gives the file the name of a sealed extent.
func (x *extentWriter) rename() error {
	if x.folder.isRetired() {
		return x.folder.retiredError()
	}
	name := x.folder.blobPath(extentName(x.id(), x.of()))
	tookPlace := x.s.listsFile(x.id(), name)
	if err := x.folder.fs.Rename(x.name, name); err != nil {
		return err
	}
	x.name, x.renamed, x.tookPlace = name, true, tookPlace
	return nil
}

// move writes the extent once more in another folder, from what the present
// one still reads, each chunk proven by the checksum taken of it in memory: after a
// failed fsync the page cache may well hold the right bytes, and the
// checksum tells. errSource if they are gone, else the error of pick.
func (x *extentWriter) move(cause error) error {
	if !x.judge(cause) {
		return cause
	}
	x.keepPromise(x.promised)
	old := *x
	defer old.drop()
	for {
		*x = extentWriter{s: old.s, extentMeta: old.extentMeta, vital: old.vital, full: x.full}
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
		elsewhere := !lost && x.judge(err)
		x.drop()
		if !elsewhere {
			return err
		}
	}
}

func (x *extentWriter) copyFrom(old *extentWriter) error {
	buf := chunkPool.Get().(*[chunkBytes]byte)
	defer chunkPool.Put(buf)
	if old.file == nil && len(old.chunks) > 0 {
		file, err := old.folder.fs.OpenRead(old.name)
		if err != nil {
			return fmt.Errorf("%w: %w", errSource, err)
		}
		old.file = file
	}
	for i, want := range old.chunks {
		at := int64(i) * chunkBytes
		p := buf[:min(chunkBytes, old.length-at)]
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

// judge retires the folder because of an error, or remembers that it is full, and
// tells whether to try another.
func (x *extentWriter) judge(cause error) (elsewhere bool) {
	if vfs.IsDiskFull(cause) {
		x.full = append(x.full, x.folder)
	}
	return x.folder.failed(cause)
}

// drop closes the present file and, in a folder that still works, removes it.
func (x *extentWriter) drop() {
	x.keepPromise(x.promised)
	if x.file != nil {
		x.file.Close()
		x.file = nil
	}
	if x.name != "" && !x.tookPlace {
		// What cannot be removed now goes when the store is next opened.
		_ = x.folder.remove(x.name)
	}
	x.name = ""
}

// keepPromise gives n bytes of the promise back to the folder.
func (x *extentWriter) keepPromise(n int64) {
	n = min(n, x.promised)
	if n == 0 {
		return // there may be no folder yet
	}
	x.promised -= n
	x.folder.promised.Add(-n)
}

func (x *extentWriter) ref(node string) ExtentRef {
	ref := ExtentRef{Index: x.index, Length: x.length, CRC: tableCRC(x.chunks)}
	if node != "" {
		ref.Replicas = []string{node}
	}
	return ref
}

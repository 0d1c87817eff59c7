package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/steledb/stele/internal/vfs"
)

// file is a rotated log file. It is not safe for concurrent use.
type file struct {
	fs       vfs.FS
	dir      string
	name     string
	bytesMax int64
	files    int

	f    vfs.File
	size int64
	// chain is the position of the last line. head is a copy for readers in other goroutines.
	chain chain
	head  atomic.Pointer[chain]
	// torn means that there may be bytes beyond size from an incomplete write.
	torn bool
	// failed is set after a failed fsync, when the content of the file is unknown. All later writes
	// fail with it.
	failed error
}

func openFile(fsys vfs.FS, dir, name string, bytesMax int64, files int) (*file, error) {
	l := &file{fs: fsys, dir: dir, name: name, bytesMax: bytesMax, files: files}
	l.head.Store(&chain{})
	f, err := fsys.Open(l.path(0))
	if errors.Is(err, fs.ErrNotExist) { // a new log, or an interrupted rotation
		if err := l.resume(1); err != nil {
			return nil, err
		}
		return l, l.begin()
	}
	if err != nil {
		return nil, err
	}
	l.f = f
	if l.size, err = f.Size(); err == nil {
		err = l.repair()
	}
	if err == nil && l.size == 0 {
		err = l.resume(1)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open %s: %w", l.path(0), err)
	}
	return l, nil
}

// path returns the path of the n-th file. The newest is 0.
func (l *file) path(n int) string {
	if n == 0 {
		return filepath.Join(l.dir, l.name)
	}
	return filepath.Join(l.dir, l.name+"."+strconv.Itoa(n))
}

// begin creates a new file and makes its name durable.
func (l *file) begin() (err error) {
	if l.f, err = l.fs.Create(l.path(0)); err != nil {
		return err
	}
	l.size, l.torn = 0, false
	return l.syncDir()
}

// syncDir makes renames and creations durable.
func (l *file) syncDir() error {
	if err := l.fs.SyncDir(l.dir); err != nil {
		l.failed = fmt.Errorf("sync %s: %w: no more writes to %s until the node restarts", l.dir, err, l.name)
		return l.failed
	}
	return nil
}

// batchBytesMax bounds the bytes written before an fsync, and with them the size of an incomplete
// tail after a power loss.
const batchBytesMax = 64 << 10

// repair truncates the incomplete last batch after a power loss. It scans the last bytes of the
// file and cuts at the first line that is not valid JSON.
func (l *file) repair() error {
	from := max(0, l.size-2*batchBytesMax)
	b := make([]byte, l.size-from)
	if _, err := l.f.ReadAt(b, from); err != nil && len(b) > 0 {
		return err
	}
	good := 0
	if from > 0 { // the window starts within a line
		good = bytes.IndexByte(b, '\n') + 1
	}
	for {
		n := bytes.IndexByte(b[good:], '\n')
		if n < 0 || !json.Valid(b[good:good+n]) {
			break
		}
		l.chain = chainAfter(b[good : good+n])
		good += n + 1
	}
	l.publish()
	if int64(good) == l.size-from {
		return nil
	}
	l.size = from + int64(good)
	return l.f.Truncate(l.size)
}

// resume continues the chain from the end of the n-th file, if that exists.
func (l *file) resume(n int) error {
	f, err := l.fs.OpenRead(l.path(n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	b := make([]byte, min(size, batchBytesMax))
	if _, err := f.ReadAt(b, size-int64(len(b))); err != nil && len(b) > 0 {
		return err
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	if len(b) > 0 {
		l.chain = chainAfter(b[bytes.LastIndexByte(b, '\n')+1:])
	}
	l.publish()
	return nil
}

func (l *file) publish() {
	c := l.chain
	l.head.Store(&c)
}

// append writes lines durably in batches. It returns the number of lines written, and their bytes.
func (l *file) append(lines ...*line) (written int, text []byte, err error) {
	for written < len(lines) {
		var batch, one bytes.Buffer
		next, n := l.chain, 0
		for _, line := range lines[written:] {
			one.Reset()
			after := next.add(&one, l.name, line)
			if n > 0 && batch.Len()+one.Len() > batchBytesMax {
				break
			}
			batch.Write(one.Bytes())
			next = after
			n++
		}
		if err := l.appendBatch(batch.Bytes()); err != nil {
			return written, text, err
		}
		l.chain = next
		l.publish()
		written += n
		text = append(text, batch.Bytes()...)
	}
	return written, text, nil
}

// appendBatch writes at most batchBytesMax of lines durably. After an error, none of them counts as
// written.
func (l *file) appendBatch(lines []byte) error {
	if l.failed != nil {
		return l.failed
	}
	if l.f == nil || l.size > 0 && l.size+int64(len(lines)) > l.bytesMax {
		if err := l.rotate(); err != nil {
			return fmt.Errorf("rotate %s: %w", l.path(0), err)
		}
	}
	if l.torn {
		if err := l.f.Truncate(l.size); err != nil {
			return fmt.Errorf("truncate an incomplete line of %s: %w", l.path(0), err)
		}
		l.torn = false
	}
	if _, err := l.f.WriteAt(lines, l.size); err != nil {
		l.torn = true // not permanent: a full disk may have free space later
		return fmt.Errorf("write %s: %w", l.path(0), err)
	}
	if err := l.f.Sync(); err != nil {
		l.failed = fmt.Errorf("sync %s: %w: no more writes to it until the node restarts", l.path(0), err)
		return l.failed
	}
	l.size += int64(len(lines))
	return nil
}

// rotate gives each file the next number and creates a new one. It completes an interrupted
// rotation: the renames stop at the first free number.
func (l *file) rotate() error {
	if l.f != nil {
		if err := l.f.Close(); err != nil {
			return err
		}
		l.f = nil
	}
	last := 0
	for last < l.files-1 {
		if _, _, err := l.fs.Stat(l.path(last)); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		last++
	}
	for n := last; n > 0; n-- { // the last rename replaces the oldest file
		if err := l.fs.Rename(l.path(n-1), l.path(n)); err != nil {
			return err
		}
	}
	if l.files == 1 {
		if err := l.fs.Remove(l.path(0)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return l.begin()
}

func (l *file) close() error {
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}

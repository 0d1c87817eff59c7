package local

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// sparePool keeps log files that are zeroed, synced and ready to be
// overwritten, so that appends touch no metadata. One goroutine, the keeper, makes
// them ahead of time and recycles those that logs release.
type sparePool struct {
	s *Store

	// making is held while a spare is made: who finds none ready waits for the one
	// under way instead of making the disk write two. Held across I/O.
	making sync.Mutex
	// waiting counts those who wait for a spare.
	waiting atomic.Int32

	// mu guards what follows. Never held across I/O.
	mu      sync.Mutex
	ready   []*logFile
	started bool          // the keeper runs
	jobs    []func()      // for the keeper; bounded by the log extents that exist
	wake    chan struct{} // of capacity 1: there is something to do
	stop    chan struct{}
	done    sync.WaitGroup // the keeper
}

func (p *sparePool) init(s *Store) {
	p.s = s
	p.wake = make(chan struct{}, 1)
	p.stop = make(chan struct{})
}

// start starts the keeper, once: a store without logs needs none.
func (p *sparePool) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started || p.s.cfg.LogExtentsReady == 0 {
		return
	}
	p.started = true
	p.done.Go(p.keep)
	p.nudge()
}

func (p *sparePool) close() {
	p.mu.Lock()
	started := p.started
	p.started = true // too late to start one
	p.mu.Unlock()
	if started {
		close(p.stop)
	}
	p.done.Wait()
}

func (p *sparePool) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// later has the keeper do job, or does it now if there is no keeper.
func (p *sparePool) later(job func()) {
	p.mu.Lock()
	if p.started {
		p.jobs = append(p.jobs, job)
		p.nudge()
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	job()
}

// keep is the keeper. Jobs come first: each may save making a spare.
func (p *sparePool) keep() {
	tick := time.NewTicker(max(p.s.cfg.UsedSpareMax/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-p.wake:
		case <-tick.C:
			p.removeOld()
		}
		for p.work() {
			select {
			case <-p.stop:
				return
			default:
			}
		}
	}
}

// work does one thing and tells whether there may be more.
func (p *sparePool) work() bool {
	p.mu.Lock()
	if len(p.jobs) > 0 {
		job := p.jobs[0]
		p.jobs = p.jobs[1:]
		p.mu.Unlock()
		job()
		return true
	}
	p.mu.Unlock()
	if !p.wanted() {
		return false
	}
	p.making.Lock()
	defer p.making.Unlock()
	if !p.wanted() {
		return false
	}
	f, err := p.s.makeSpare(false, p.restMaking)
	if err != nil {
		// No room or no folder. The log that needs a spare will try for itself
		// and tell; the keeper tries again when one is taken.
		return false
	}
	p.adopt(f)
	return true
}

const (
	// makeRest is how many times as long as a part of a spare took to be made the disk is left to others, and makeRestMax the most.
	makeRest    = 3
	makeRestMax = 10 * time.Millisecond
)

// restMaking lets others have the disk while a spare is made that nobody waits for: another is ready.
func (p *sparePool) restMaking(took time.Duration) {
	p.mu.Lock()
	ready := len(p.ready)
	p.mu.Unlock()
	if ready == 0 || p.waiting.Load() > 0 {
		return
	}
	select {
	case <-time.After(min(makeRest*took, makeRestMax)):
	case <-p.stop:
	}
}

// removeOld removes the spares that have waited for too long with what they had in them.
func (p *sparePool) removeOld() {
	p.mu.Lock()
	var old []*logFile
	p.ready = slices.DeleteFunc(p.ready, func(f *logFile) bool {
		if f.usedUntil.IsZero() || time.Since(f.usedUntil) < p.s.cfg.UsedSpareMax {
			return false
		}
		old = append(old, f)
		return true
	})
	p.mu.Unlock()
	for _, f := range old {
		_ = f.remove() // has been judged
	}
}

func (p *sparePool) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready) < p.s.cfg.LogExtentsReady
}

// adopt adds a spare file to those ready, unless it is of another size than this
// store's extents: then it has no use.
func (p *sparePool) adopt(f *logFile) {
	if f.header.bytes != p.s.cfg.ExtentBytes {
		if !p.s.cfg.ReadOnly {
			_ = f.remove() // has been judged
		}
		return
	}
	if f.header.generation > 1 {
		f.usedUntil = time.Now()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = append(p.ready, f)
}

// take returns a spare, made on the spot if none is ready. Errors are those of pick. In a folder that
// has less than its reserve left only vital logs get one: what is logged must be written out there as well.
func (p *sparePool) take(vital bool) (*logFile, error) {
	defer p.nudge()
	usable := func(f *folder) bool { return vital || p.s.roomFor(f, 0) }
	if f := p.pop(usable); f != nil {
		return f, nil
	}
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	p.making.Lock()
	defer p.making.Unlock()
	if f := p.pop(usable); f != nil {
		return f, nil
	}
	return p.s.makeSpare(vital, func(time.Duration) {})
}

// pop takes the first of the spares in a folder that will do.
func (p *sparePool) pop(usable func(*folder) bool) *logFile {
	judged := map[*folder]bool{}
	for _, f := range p.s.folders {
		judged[f] = !f.isRetired() && usable(f)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = slices.DeleteFunc(p.ready, func(f *logFile) bool { return f.folder.isRetired() })
	i := slices.IndexFunc(p.ready, func(f *logFile) bool { return judged[f.folder] })
	if i < 0 {
		return nil
	}
	f := p.ready[i]
	p.ready = slices.Delete(p.ready, i, i+1)
	return f
}

// sacrifice removes a spare, for what is vital needs the room, and tells whether there was one.
func (p *sparePool) sacrifice(avoid func(*folder) bool) bool {
	f := p.pop(func(f *folder) bool { return !avoid(f) })
	return f != nil && f.remove() == nil
}

// sparesMax bounds the released extents that are kept for reuse: 1 GiB at the default
// size. A log that grows and shrinks with the memtables behind it should not have
// its files zeroed each time, which costs as much as writing the log.
const sparesMax = 16

// recycle makes a file that its log needs no more a spare, or removes it if
// there are enough, the folder is full, or someone reads it. An error has been judged; the file is
// then left as it is.
func (p *sparePool) recycle(st *logState, f *logFile) error {
	if f.folder.isRetired() {
		return f.folder.retiredError()
	}
	st.mu.Lock()
	read := f.readers > 0
	st.mu.Unlock()
	if read {
		return f.remove()
	}
	return p.recycleFile(f)
}

// recycleFile is recycle for a file that nobody reads, or whose readers know bytes of a later use
// when they see them.
func (p *sparePool) recycleFile(f *logFile) error {
	if f.folder.isRetired() {
		return f.folder.retiredError()
	}
	p.mu.Lock()
	enough := len(p.ready) >= sparesMax
	p.mu.Unlock()
	if enough || !p.s.roomFor(f.folder, p.s.cfg.ExtentBytes) { // others wait for the room
		return f.remove()
	}
	h := logHeader{state: logFileSpare, generation: f.header.generation + 1, bytes: f.header.bytes}
	err := f.writeHeader(h)
	if err == nil {
		p.adopt(f)
	}
	return err
}

// makeSpare makes a log file, writes zeros all over it, and makes it durable, file
// and name. It calls rest after each part, with how long that took. A folder that fails at it is retired, one that is full passed over.
func (s *Store) makeSpare(vital bool, rest func(took time.Duration)) (*logFile, error) {
	var full []*folder
	for {
		folder, err := s.pick(s.cfg.ExtentBytes, vital, func(f *folder) bool { return slices.Contains(full, f) })
		if err != nil {
			return nil, err
		}
		f, err := folder.makeLogFile(s.cfg.ExtentBytes, rest)
		folder.promised.Add(-s.cfg.ExtentBytes)
		if err == nil {
			return f, nil
		}
		elsewhere := folder.failed(err)
		// What cannot be removed now goes when the store is next opened.
		_ = folder.remove(f.path() + tmpSuffix)
		if !elsewhere {
			return nil, err
		}
		full = append(full, folder)
	}
}

// zeroBytes is how much of a new log file is written and synced at a time. Small, so
// that an append that comes at the same moment does not queue behind 64 MiB.
const zeroBytes = 1 << 20

var zeros [zeroBytes]byte

// makeLogFile returns the file also with an error; there may be a temporary file then.
func (f *folder) makeLogFile(size int64, rest func(time.Duration)) (*logFile, error) {
	var random [8]byte
	rand.Read(random[:])
	out := &logFile{
		folder: f,
		name:   hex.EncodeToString(random[:]) + logSuffix,
		header: logHeader{state: logFileSpare, generation: 1, bytes: size},
	}
	tmp := out.path() + tmpSuffix
	file, err := f.fs.Create(tmp)
	if err != nil {
		return out, err
	}
	err = fillLogFile(file, out.header, rest)
	file.Close()
	if err != nil {
		return out, err
	}
	if err := f.fs.Rename(tmp, out.path()); err != nil {
		return out, err
	}
	return out, f.syncLogNames()
}

func fillLogFile(file vfs.File, h logHeader, rest func(took time.Duration)) error {
	if err := file.Preallocate(h.bytes); err != nil {
		return err
	}
	for at := int64(0); at < h.bytes; at += zeroBytes {
		began := time.Now()
		if _, err := file.WriteAt(zeros[:min(zeroBytes, h.bytes-at)], at); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
		rest(time.Since(began))
	}
	page := make([]byte, pageBytes)
	h.encode(page)
	if _, err := file.WriteAt(page, 0); err != nil {
		return err
	}
	return file.Sync()
}

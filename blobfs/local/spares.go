package local

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// sparePool keeps log files that are zeroed, synced and ready to be
// overwritten, so that appends touch no metadata. Keepers, as many goroutines as there are
// folders, make them ahead of time and recycle those that logs release. At most one keeper
// works in a folder, so a disk that stalls holds up one keeper and no other folder.
type sparePool struct {
	s *Store

	// waiting counts the callers of take that found no spare ready.
	waiting atomic.Int32

	// mu guards what follows. Never held across I/O.
	mu        sync.Mutex
	ready     []*logFile
	recycling int              // files that are being made spares, or removed instead
	started   bool             // the keepers run
	jobs      []spareJob       // for the keepers; bounded by the log extents that exist
	making    map[*folder]bool // a spare is being made there
	working   map[*folder]bool // a keeper runs a job there
	made      chan struct{}    // closed and replaced when a spare was made, or could not be
	wake      chan struct{}    // with one token for each keeper: there is something to do
	stop      chan struct{}
	done      sync.WaitGroup // the keepers
}

// spareJob is work in one folder.
type spareJob struct {
	folder *folder
	run    func()
}

func (p *sparePool) init(s *Store) {
	p.s = s
	p.making, p.working, p.made = map[*folder]bool{}, map[*folder]bool{}, make(chan struct{})
	p.wake = make(chan struct{}, len(s.cfg.Folders))
	p.stop = make(chan struct{})
}

// start starts the keepers, once: a store without logs needs none.
func (p *sparePool) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started || p.s.cfg.LogExtentsReady == 0 {
		return
	}
	p.started = true
	for range p.s.folders {
		p.done.Go(p.keep)
	}
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

// nudge wakes all keepers.
func (p *sparePool) nudge() {
	for range cap(p.wake) {
		select {
		case p.wake <- struct{}{}:
		default:
			return
		}
	}
}

// later has a keeper run a job in a folder, or runs it now if there are no keepers.
func (p *sparePool) later(f *folder, run func()) {
	p.mu.Lock()
	if p.started {
		p.jobs = append(p.jobs, spareJob{f, run})
		p.nudge()
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	run()
}

// keep is a keeper. Jobs come first: each may save making a spare.
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

// work does one thing and reports whether there may be more.
func (p *sparePool) work() bool {
	if job, ok := p.takeJob(); ok {
		job.run()
		p.mu.Lock()
		delete(p.working, job.folder)
		p.mu.Unlock()
		p.nudge() // there may be others for the folder
		return true
	}
	if !p.wanted() {
		return false
	}
	// No space or no folder, or another keeper makes it. A log that needs a spare tries for
	// itself and reports the error; the keepers try again when one is taken.
	f, err := p.make(true, false, p.restMaking)
	return f != nil && err == nil || p.hasJob()
}

// takeJob removes the first job in a folder in which no keeper works, and keeps the other
// keepers out of that folder.
func (p *sparePool) takeJob() (spareJob, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.nextJobLocked()
	if i < 0 {
		return spareJob{}, false
	}
	job := p.jobs[i]
	p.jobs = slices.Delete(p.jobs, i, i+1)
	p.working[job.folder] = true
	return job, true
}

func (p *sparePool) hasJob() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nextJobLocked() >= 0
}

// nextJobLocked returns the index of the first job in a folder in which no keeper works,
// or -1. p.mu is held.
func (p *sparePool) nextJobLocked() int {
	return slices.IndexFunc(p.jobs, func(j spareJob) bool { return !p.working[j.folder] && !p.making[j.folder] })
}

// make makes a log file, writes zeros all over it, and makes it durable, file and name. It
// calls rest after each part, with how long that took. A folder that fails at it is retired,
// one that is full passed over, and so is one in which a spare is being made. It returns nil
// if there is no other folder, or if a keeper asks for a spare that another is making.
func (p *sparePool) make(keeper, vital bool, rest func(took time.Duration)) (*logFile, error) {
	var full []*folder
	for {
		busy := p.busy(keeper)
		folder, err := p.s.pick(p.s.cfg.ExtentBytes, vital, func(f *folder) bool {
			return slices.Contains(full, f) || slices.Contains(busy, f)
		})
		if errors.Is(err, ErrDiskFull) && len(busy) > 0 {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if !p.begin(folder, keeper) {
			folder.promised.Add(-p.s.cfg.ExtentBytes)
			if keeper {
				return nil, nil
			}
			continue
		}
		f, err := folder.makeLogFile(p.s.cfg.ExtentBytes, rest)
		folder.promised.Add(-p.s.cfg.ExtentBytes)
		if err == nil {
			if keeper {
				p.adopt(f)
			}
			p.end(folder)
			return f, nil
		}
		elsewhere := folder.failed(err)
		// What cannot be removed now goes when the store is next opened.
		_ = folder.remove(f.path() + tmpSuffix)
		p.end(folder)
		if !elsewhere {
			return nil, err
		}
		full = append(full, folder)
	}
}

// busy returns the folders in which spares are being made, and for a keeper those in which
// jobs run. Callers of take do not wait for jobs, which may wait for the caller's log.
func (p *sparePool) busy(keeper bool) []*folder {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Collect(maps.Keys(p.making))
	if keeper {
		all = slices.AppendSeq(all, maps.Keys(p.working))
	}
	return all
}

// begin keeps others from making a spare in a folder until end. It returns false if another
// is being made there, or if a keeper would make more than are wanted or runs a job there.
func (p *sparePool) begin(f *folder, keeper bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.making[f] || keeper && (p.working[f] || !p.wantedLocked()) {
		return false
	}
	p.making[f] = true
	return true
}

func (p *sparePool) end(f *folder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.making, f)
	close(p.made)
	p.made = make(chan struct{})
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

// removeOld queues the removal of spares that still hold old content after UsedSpareMax. As a job it cannot block the keepers of other folders.
func (p *sparePool) removeOld() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = slices.DeleteFunc(p.ready, func(f *logFile) bool {
		if f.usedUntil.IsZero() || time.Since(f.usedUntil) < p.s.cfg.UsedSpareMax {
			return false
		}
		p.jobs = append(p.jobs, spareJob{f.folder, func() { _ = f.remove() }}) // has been judged
		return true
	})
}

func (p *sparePool) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wantedLocked()
}

// wantedLocked reports whether a keeper is to make a spare. While none is ready it does not
// rely on those that are being made: their disks may have stalled. p.mu is held.
func (p *sparePool) wantedLocked() bool {
	few := p.s.cfg.LogExtentsReady - len(p.ready)
	return few > 0 && (len(p.making) < few || len(p.ready) == 0)
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

// take returns a spare, made on the spot if none is ready. If spares are being made in all folders that may have one, it
// waits for the first of them instead of having a disk write two. Errors are those of pick. In a folder that
// has less than its reserve left only vital logs get one: what is logged must be written out there as well.
func (p *sparePool) take(vital bool) (*logFile, error) {
	defer p.nudge()
	usable := func(f *folder) bool { return vital || p.s.roomFor(f, 0) }
	if f := p.pop(usable); f != nil {
		return f, nil
	}
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	for {
		p.mu.Lock()
		made := p.made
		p.mu.Unlock()
		if f := p.pop(usable); f != nil {
			return f, nil
		}
		if f, err := p.make(false, vital, func(time.Duration) {}); f != nil || err != nil {
			return f, err
		}
		<-made
	}
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
	enough := len(p.ready)+len(p.making)+p.recycling >= sparesMax
	p.recycling++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.recycling--
		p.mu.Unlock()
	}()
	if enough || f.outdated() || !p.s.roomFor(f.folder, p.s.cfg.ExtentBytes) { // others wait for the room
		return f.remove()
	}
	h := logHeader{state: logFileSpare, generation: f.header.generation + 1, bytes: f.header.bytes}
	err := f.writeHeader(h)
	if err == nil {
		p.adopt(f)
	}
	return err
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
		if err := vfs.WriteZeros(file, zeros[:min(zeroBytes, h.bytes-at)], at); err != nil {
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

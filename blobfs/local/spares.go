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

// sparePool has the spares: log files that are zeroed or recycled, synced and ready to be
// overwritten, so that appends change no metadata. The spare workers, as many goroutines as there
// are folders, make spares in advance and recycle released log files. At most one worker runs in a
// folder, so a stalled disk blocks one worker and no other folder.
type sparePool struct {
	s *disks

	// waiting is the number of callers of take that found no spare.
	waiting atomic.Int32

	// mu guards the fields below. Never held across I/O.
	mu        sync.Mutex
	ready     []*logFile
	recycling int              // files being turned into spares, or removed
	started   bool             // the workers run
	jobs      []spareJob       // for the workers; bounded by the existing log extents
	making    map[*folder]bool // folders in which a spare is being made
	working   map[*folder]bool // folders in which a worker runs a job
	made      chan struct{}    // closed and replaced when the making of a spare has ended
	wake      chan struct{}    // capacity for one token per worker
	stop      chan struct{}
	done      sync.WaitGroup // the workers
}

// spareJob is a job in one folder.
type spareJob struct {
	folder *folder
	run    func()
}

func (p *sparePool) init(s *disks) {
	p.s = s
	p.making, p.working, p.made = map[*folder]bool{}, map[*folder]bool{}, make(chan struct{})
	p.wake = make(chan struct{}, len(s.cfg.Folders))
	p.stop = make(chan struct{})
}

// start starts the workers on the first call. A store without logs needs none.
func (p *sparePool) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started || p.s.cfg.LogExtentsReady == 0 {
		return
	}
	p.started = true
	for range p.s.folders {
		p.done.Go(p.runWorker)
	}
	p.wakeWorkers()
}

func (p *sparePool) close() {
	p.mu.Lock()
	started := p.started
	p.started = true // prevents a later start
	p.mu.Unlock()
	if started {
		close(p.stop)
	}
	p.done.Wait()
}

// wakeWorkers wakes all workers.
func (p *sparePool) wakeWorkers() {
	for range cap(p.wake) {
		select {
		case p.wake <- struct{}{}:
		default:
			return
		}
	}
}

// later queues a job in a folder for the workers, or runs it now if there are no workers.
func (p *sparePool) later(f *folder, run func()) {
	p.mu.Lock()
	if p.started {
		p.jobs = append(p.jobs, spareJob{f, run})
		p.wakeWorkers()
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	run()
}

// runWorker is the loop of a worker. Jobs come first, because each may make a new spare unnecessary.
func (p *sparePool) runWorker() {
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

// work runs one job or makes one spare, and reports whether there may be more to do.
func (p *sparePool) work() bool {
	if job, ok := p.takeJob(); ok {
		job.run()
		p.mu.Lock()
		delete(p.working, job.folder)
		p.mu.Unlock()
		p.wakeWorkers() // the folder may have more jobs
		return true
	}
	if !p.needsSpare() {
		return false
	}
	// On a failure, or if another worker makes the spare, stop. A log that needs a spare tries
	// itself and reports the error; the workers try again when a spare is taken.
	f, err := p.make(true, false, p.pauseMaking)
	return f != nil && err == nil || p.hasJob()
}

// takeJob removes the first job in a folder without a running worker, and reserves the folder.
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

// nextJobLocked returns the index of the first job in a folder without a running worker, or -1.
// p.mu must be held.
func (p *sparePool) nextJobLocked() int {
	return slices.IndexFunc(p.jobs, func(j spareJob) bool { return !p.working[j.folder] && !p.making[j.folder] })
}

// make creates a log file, fills it with zeros, and makes it durable, file and name. It calls pause
// after each step with the step's duration. A folder that fails is retired. Full folders, and
// folders in which a spare is being made, are skipped. It returns nil if no other folder is left,
// or if a worker calls it for a spare that another worker is making.
func (p *sparePool) make(byWorker, highPriority bool, pause func(took time.Duration)) (*logFile, error) {
	var full []*folder
	for {
		busy := p.busy(byWorker)
		folder, err := p.s.pick(p.s.cfg.ExtentBytes, highPriority, func(f *folder) bool {
			return slices.Contains(full, f) || slices.Contains(busy, f)
		})
		if errors.Is(err, ErrDiskFull) && len(busy) > 0 {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if !p.begin(folder, byWorker) {
			folder.committed.Add(-p.s.cfg.ExtentBytes)
			if byWorker {
				return nil, nil
			}
			continue
		}
		f, err := folder.makeLogFile(p.s.cfg.ExtentBytes, pause)
		folder.committed.Add(-p.s.cfg.ExtentBytes)
		if err == nil {
			if byWorker {
				p.adopt(f)
			}
			p.end(folder)
			return f, nil
		}
		retry := folder.failed(err)
		// A file that cannot be removed is removed when the store is next opened.
		_ = folder.remove(f.path() + tmpSuffix)
		p.end(folder)
		if !retry {
			return nil, err
		}
		full = append(full, folder)
	}
}

// busy returns the folders in which spares are being made and, for a worker, those in which jobs
// run. Callers of take do not wait for jobs, because a job may wait for the caller's log.
func (p *sparePool) busy(byWorker bool) []*folder {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Collect(maps.Keys(p.making))
	if byWorker {
		all = slices.AppendSeq(all, maps.Keys(p.working))
	}
	return all
}

// begin reserves a folder for making a spare until end. It returns false if a spare is being made
// there. For a worker, it also returns false if no more spares are needed or a job runs there.
func (p *sparePool) begin(f *folder, byWorker bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.making[f] || byWorker && (p.working[f] || !p.needsSpareLocked()) {
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
	// makePauseRatio is the pause after each step of making a spare, as a multiple of the step.
	// makePauseMax bounds it.
	makePauseRatio = 3
	makePauseMax   = 10 * time.Millisecond
)

// pauseMaking pauses the making of a spare while another one is ready and no caller waits.
func (p *sparePool) pauseMaking(took time.Duration) {
	p.mu.Lock()
	ready := len(p.ready)
	p.mu.Unlock()
	if ready == 0 || p.waiting.Load() > 0 {
		return
	}
	select {
	case <-time.After(min(makePauseRatio*took, makePauseMax)):
	case <-p.stop:
	}
}

// removeOld queues the removal of spares that still have old content after UsedSpareMax. As jobs,
// the removals cannot block the workers of other folders.
func (p *sparePool) removeOld() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = slices.DeleteFunc(p.ready, func(f *logFile) bool {
		if f.usedUntil.IsZero() || time.Since(f.usedUntil) < p.s.cfg.UsedSpareMax {
			return false
		}
		p.jobs = append(p.jobs, spareJob{f.folder, func() { _ = f.remove() }}) // the error was passed to failed
		return true
	})
}

func (p *sparePool) needsSpare() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.needsSpareLocked()
}

// needsSpareLocked reports whether a worker should make a spare. While none is ready it ignores the
// spares being made, because their disks may have stalled. p.mu must be held.
func (p *sparePool) needsSpareLocked() bool {
	few := p.s.cfg.LogExtentsReady - len(p.ready)
	return few > 0 && (len(p.making) < few || len(p.ready) == 0)
}

// adopt adds a spare to the pool. A file of another size than the store's extents is removed
// instead.
func (p *sparePool) adopt(f *logFile) {
	if f.header.bytes != p.s.cfg.ExtentBytes {
		if !p.s.cfg.ReadOnly {
			_ = f.remove() // the error was passed to failed
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

// take returns a spare, and makes one if none is ready. If spares are being made in all usable
// folders, it waits for the first of them, so that no disk writes two at once. Errors are those of
// pick. In a folder below its reserve only high-priority logs get a spare, because what is logged
// must later be written to that disk by compactions too.
func (p *sparePool) take(highPriority bool) (*logFile, error) {
	defer p.wakeWorkers()
	usable := func(f *folder) bool { return highPriority || p.s.hasSpace(f, 0) }
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
		if f, err := p.make(false, highPriority, func(time.Duration) {}); f != nil || err != nil {
			return f, err
		}
		<-made
	}
}

// pop removes and returns the first spare in a usable folder.
func (p *sparePool) pop(usable func(*folder) bool) *logFile {
	eligible := map[*folder]bool{}
	for _, f := range p.s.folders {
		eligible[f] = !f.isRetired() && usable(f)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = slices.DeleteFunc(p.ready, func(f *logFile) bool { return f.folder.isRetired() })
	i := slices.IndexFunc(p.ready, func(f *logFile) bool { return eligible[f.folder] })
	if i < 0 {
		return nil
	}
	f := p.ready[i]
	p.ready = slices.Delete(p.ready, i, i+1)
	return f
}

// removeSpare removes a spare to free space for a high-priority extent, and reports whether it did.
func (p *sparePool) removeSpare(avoid func(*folder) bool) bool {
	f := p.pop(func(f *folder) bool { return !avoid(f) })
	return f != nil && f.remove() == nil
}

// sparesMax bounds the released files kept for reuse: 1 GiB at the default extent size. The size of
// a log follows that of the memtables, and zeroing its files each time would cost as much as
// writing the log.
const sparesMax = 16

// recycle turns a released log file into a spare, or removes it if there are enough spares, the
// folder is short of space, or the file has open readers. An error has been passed to failed, and
// leaves the file as it is.
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

// recycleFile is recycle for a file without readers, or whose readers detect bytes of a later use.
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
	if enough || f.outdated() || !p.s.hasSpace(f.folder, p.s.cfg.ExtentBytes) { // the space is needed for other writes
		return f.remove()
	}
	h := logHeader{state: logFileSpare, generation: f.header.generation + 1, bytes: f.header.bytes}
	err := f.writeHeader(h)
	if err == nil {
		p.adopt(f)
	}
	return err
}

// zeroBytes is the size of the steps in which a new log file is written and synced. It is small so
// that a concurrent append does not queue behind 64 MiB.
const zeroBytes = 1 << 20

var zeros [zeroBytes]byte

// makeLogFile returns the file even on an error, because a temporary file may exist.
func (f *folder) makeLogFile(size int64, pause func(time.Duration)) (*logFile, error) {
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
	err = fillLogFile(file, out.header, pause)
	file.Close()
	if err != nil {
		return out, err
	}
	if err := f.fs.Rename(tmp, out.path()); err != nil {
		return out, err
	}
	return out, f.syncLogNames()
}

func fillLogFile(file vfs.File, h logHeader, pause func(took time.Duration)) error {
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
		pause(time.Since(began))
	}
	page := make([]byte, pageBytes)
	h.encode(page)
	if _, err := file.WriteAt(page, 0); err != nil {
		return err
	}
	return file.Sync()
}

package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// ErrClosed means that the log was closed.
var ErrClosed = errors.New("audit log is closed")

// Config configures a Log. Zero fields mean their default.
type Config struct {
	// Dir is the directory of the files. It is created if missing; its parent must exist.
	Dir string
	// Node is the id of this node.
	Node string
	// BytesMax is the maximum size of one file in bytes. Default 16 MiB, about 80,000 records; at
	// least 128 KiB.
	BytesMax int64
	// Files is the number of files kept of each log. Default 8.
	Files int
	// FS is the file system of Dir. Default: that of the operating system.
	FS vfs.FS
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Sink gets each record after it has been written. Close closes it. Nil means none.
	Sink Sink
	// Logger gets the heads of the chains every hour, and errors about records that could not be
	// written. Nil discards.
	Logger *slog.Logger
}

// filesKept is the default of Config.Files.
const filesKept = 8

func (c Config) withDefaults() (Config, error) {
	if c.BytesMax == 0 {
		c.BytesMax = 16 << 20
	}
	if c.Files == 0 {
		c.Files = filesKept
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Dir == "":
		return c, errors.New("audit log: no directory is set")
	case c.BytesMax < 2*batchBytesMax:
		return c, fmt.Errorf("audit log: file size is %d bytes, want at least %d", c.BytesMax, 2*batchBytesMax)
	case c.Files < 1 || c.Files > 1000:
		return c, fmt.Errorf("audit log: number of files is %d, want 1 to 1000", c.Files)
	}
	return c, nil
}

const (
	// flushEvery is the interval at which refusals are written.
	flushEvery = time.Second
	// repeatEvery is the interval at which repeated identical refusals are written.
	repeatEvery = time.Minute
	// refusalsMax bounds the distinct refusals in memory. refusalsOfOne bounds those of one
	// principal, or of one host without a credential.
	refusalsMax   = 1000
	refusalsOfOne = 20
	// headsEvery is the interval at which chain heads are logged.
	headsEvery = time.Hour
)

// Log is a node's audit log. It is safe for concurrent use.
type Log struct {
	cfg    Config
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	// actions guards the fields in it, and is held while they are written.
	actions struct {
		sync.Mutex
		file, tables *file // audit.log and table-admins.log
		closed       bool
	}
	// refusals is written only by the flush goroutine once it runs.
	refusals *file
	ship     *shipper // nil without a sink

	// mu guards the fields in it and is never held across I/O.
	mu struct {
		sync.Mutex
		byKey        map[refusalKey]*refusal
		perRequester map[requester]int // number of entries of byKey by requester
		overflow     refusal           // refusals in excess of refusalsMax
	}
}

// refusalKey is the key by which refusals are aggregated.
type refusalKey struct {
	requester
	from, action, on, code string
}

// requester is a principal, a node, or, without a credential, a host.
type requester struct{ kind, name, host string }

// refusal is an aggregate of identical refusals.
type refusal struct {
	first   Record // the first since the last write
	count   int64
	written time.Time // time of the last write, by the monotonic clock; zero: never
}

// Open opens the log and truncates incomplete lines left by a power loss.
func Open(cfg Config) (*Log, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := vfs.MakeDir(cfg.FS, cfg.Dir); err != nil {
		return nil, err
	}
	l := &Log{cfg: cfg}
	var opened []*file
	for _, to := range []struct {
		file **file
		name string
	}{{&l.actions.file, "audit.log"}, {&l.actions.tables, "table-admins.log"}, {&l.refusals, "refusals.log"}} {
		f, err := openFile(cfg.FS, cfg.Dir, to.name, cfg.BytesMax, cfg.Files)
		if err != nil {
			for _, f := range opened {
				err = errors.Join(err, f.close())
			}
			return nil, err
		}
		*to.file, opened = f, append(opened, f)
	}
	l.mu.byKey, l.mu.perRequester = map[refusalKey]*refusal{}, map[requester]int{}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	if cfg.Sink != nil {
		l.ship = newShipper(cfg.Sink, cfg.Logger)
		l.tasks.Go(func() { l.ship.run(ctx) })
	}
	l.logHeads()
	l.tasks.Go(func() { l.flushLoop(ctx) })
	return l, nil
}

// logHeads logs the heads of the chains, so that later truncation of a log can be detected.
func (l *Log) logHeads() {
	for _, f := range []*file{l.actions.file, l.actions.tables, l.refusals} {
		if head := f.head.Load(); head.seq > 0 {
			l.cfg.Logger.Info("audit log head", "file", f.name, "seq", head.seq, "sha256", head.prev())
		}
	}
}

// Action records an action of a cluster administrator or of a node. The record is durable when it
// returns nil. Errors: those of the disk, ErrClosed.
func (l *Log) Action(r Record) error { return l.action(l.actions.file, r) }

// TableAction is Action for administrators of single tables. Their records have a file of their
// own, so they cannot displace those of cluster administrators.
func (l *Log) TableAction(r Record) error { return l.action(l.actions.tables, r) }

func (l *Log) action(to *file, r Record) error {
	if r.Time.IsZero() {
		r.Time = l.cfg.Now()
	}
	one := r.line(l.cfg.Node, 1)
	l.actions.Lock()
	defer l.actions.Unlock()
	if l.actions.closed {
		return ErrClosed
	}
	_, text, err := to.append(one)
	l.ship.add(text)
	return err
}

// Refusal queues a refusal to be written by the next flush. It never blocks on I/O.
func (l *Log) Refusal(r Record) {
	if r.Time.IsZero() {
		r.Time = l.cfg.Now()
	}
	r.Outcome = Refused
	host, _, err := net.SplitHostPort(r.From)
	if err != nil {
		host = r.From
	}
	by := requester{kind: r.Requester.Kind.String(), name: clean(r.Requester.Name)}
	if by.name == "" {
		by.host = clean(host)
	}
	key := refusalKey{by, clean(host), clean(r.Action), clean(r.On), clean(r.Code)}
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.mu.byKey[key]
	if to == nil && l.mu.perRequester[by] >= refusalsOfOne-1 { // one more record for all further kinds
		key, r = refusalKey{requester: by}, Record{Requester: r.Requester, From: r.From, Time: r.Time, Action: "various", Outcome: Refused, Text: "too many kinds of refusals of one requester to record individually"}
		to = l.mu.byKey[key]
	}
	if to == nil && len(l.mu.byKey) < refusalsMax {
		to = &refusal{}
		l.mu.byKey[key] = to
		l.mu.perRequester[by]++
	}
	if to == nil {
		to = &l.mu.overflow
		r = Record{Time: r.Time, Action: "various", Outcome: Refused, Text: "too many kinds of refusals to record individually"}
	}
	if to.count++; to.count == 1 {
		r.clean() // do not retain a large text of the caller
		to.first = r
	}
}

func (l *Log) flushLoop(ctx context.Context) {
	tick, heads := time.NewTicker(flushEvery), time.NewTicker(headsEvery)
	defer tick.Stop()
	defer heads.Stop()
	for {
		select {
		case <-tick.C:
			l.flush(false)
		case <-heads.C:
			l.logHeads()
		case <-ctx.Done():
			l.flush(true)
			return
		}
	}
}

// flush writes new refusals, and repeated ones once a minute. If all is set it writes everything.
func (l *Log) flush(all bool) {
	due := l.due(all)
	lines := make([]*line, len(due))
	for i := range due {
		lines[i] = due[i].first.line(l.cfg.Node, due[i].count)
	}
	written, text, err := l.refusals.append(lines...)
	l.ship.add(text)
	if err != nil {
		lost := int64(0)
		for _, r := range due[written:] {
			lost += r.count
		}
		l.cfg.Logger.Error("audit log write failed", "refusals", lost, "err", err)
	}
}

// due removes and returns the refusals that are due to be written, in order of time.
func (l *Log) due(all bool) []refusal {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []refusal
	take := func(r *refusal) {
		if r.count > 0 && (all || now.Sub(r.written) >= repeatEvery) {
			list = append(list, *r)
			r.count, r.written, r.first = 0, now, Record{}
		}
	}
	for key, r := range l.mu.byKey {
		if r.count == 0 && now.Sub(r.written) >= repeatEvery {
			delete(l.mu.byKey, key)
			if l.mu.perRequester[key.requester]--; l.mu.perRequester[key.requester] == 0 {
				delete(l.mu.perRequester, key.requester)
			}
			continue
		}
		take(r)
	}
	take(&l.mu.overflow)
	slices.SortFunc(list, func(a, b refusal) int { return a.first.Time.Compare(b.first.Time) })
	return list
}

// Close writes queued refusals and closes the files and the sink.
func (l *Log) Close() error {
	l.actions.Lock()
	was := l.actions.closed
	l.actions.closed = true
	l.actions.Unlock()
	if was {
		return nil
	}
	l.cancel()
	l.tasks.Wait()
	l.logHeads()
	return errors.Join(l.ship.close(), l.actions.file.close(), l.actions.tables.close(), l.refusals.close())
}

package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// ErrClosed means that the log was closed.
var ErrClosed = errors.New("audit log is closed")

// Config says where and how much is written.
type Config struct {
	// Dir is the folder of the files. It is made if it is not there, in one that is.
	Dir string
	// Node is the id of this node.
	Node string
	// BytesMax is the size of one file: 16 MiB, some 80,000 records; at least 128 KiB.
	BytesMax int64
	// Files is the number of files kept of each kind: 8.
	Files int
	// FS is where the folder is: the machine's file system.
	FS vfs.FS
	// Now is the clock: time.Now.
	Now func() time.Time
	// Sink gets each record once it is written here; Close closes it. Nil: there is none.
	Sink Sink
	// Logger gets the ends of the chains, each hour, and records that could not be written.
	// Nil discards.
	Logger *slog.Logger
}

// filesKept is the number of files of each kind that nodes keep.
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
		return c, errors.New("no folder for the audit log")
	case c.BytesMax < 2*batchBytesMax:
		return c, fmt.Errorf("files of the audit log have %d bytes, at least %d", c.BytesMax, 2*batchBytesMax)
	case c.Files < 1 || c.Files > 1000:
		return c, fmt.Errorf("%d files of the audit log, want 1 to 1000", c.Files)
	}
	return c, nil
}

const (
	// flushEvery is how long a refusal waits for others.
	flushEvery = time.Second
	// repeatEvery is how often refusals that are alike are written.
	repeatEvery = time.Minute
	// refusalsMax bounds the refusals that are told apart, and refusalsOfOne those of one principal, or of one
	// host without a credential.
	refusalsMax   = 1000
	refusalsOfOne = 20
	// headsEvery is how often the ends of the chains are logged.
	headsEvery = time.Hour
)

// Log is a node's audit log. It is safe for concurrent use.
type Log struct {
	cfg    Config
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	// actions guards the fields in it, also while they are written.
	actions struct {
		sync.Mutex
		file, tables *file // of the cluster's administrators, and of those of tables
		closed       bool
	}
	// refusals is written by flush alone, once it runs.
	refusals *file
	ship     *shipper // nil without a sink

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		alike  map[likeness]*refusal
		kinds  map[requester]int // of alike, by who was refused
		others refusal           // what exceeds refusalsMax
	}
}

// likeness is what refusals that are counted together have in common.
type likeness struct {
	requester
	from, action, on, code string
}

// requester is a principal or node; or a host, of requests without a credential.
type requester struct{ kind, name, host string }

// refusal is refusals that are alike.
type refusal struct {
	first   Record // since they were last written
	count   int64
	written time.Time // on the monotonic clock; zero, which is long ago: never
}

// Open opens the log, and cuts off what a power loss has left in pieces.
func Open(cfg Config) (*Log, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := cfg.FS.MkdirAll(cfg.Dir); err != nil {
		return nil, err
	}
	if err := cfg.FS.SyncDir(filepath.Dir(cfg.Dir)); err != nil {
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
	l.mu.alike, l.mu.kinds = map[likeness]*refusal{}, map[requester]int{}
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

// logHeads logs the ends of the chains: what is cut off a log afterwards is missed by them.
func (l *Log) logHeads() {
	for _, f := range []*file{l.actions.file, l.actions.tables, l.refusals} {
		if head := f.head.Load(); head.seq > 0 {
			l.cfg.Logger.Info("end of the audit log", "file", f.name, "seq", head.seq, "sha256", head.prev())
		}
	}
}

// Action records an action of an administrator of the cluster, or of a node. When it returns nil the record is durable.
// Errors: those of the disk, ErrClosed.
func (l *Log) Action(r Record) error { return l.action(l.actions.file, r) }

// TableAction is Action for administrators of single tables: nothing that they do displaces what the cluster's
// administrators did.
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

// Refusal notes a refusal, to be written soon. It waits for nothing.
func (l *Log) Refusal(r Record) {
	if r.Time.IsZero() {
		r.Time = l.cfg.Now()
	}
	r.Outcome = Refused
	host, _, err := net.SplitHostPort(r.From)
	if err != nil {
		host = r.From
	}
	by := requester{kind: r.Who.Kind.String(), name: clean(r.Who.Name)}
	if by.name == "" {
		by.host = clean(host)
	}
	key := likeness{by, clean(host), clean(r.Action), clean(r.On), clean(r.Code)}
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.mu.alike[key]
	if to == nil && l.mu.kinds[by] >= refusalsOfOne-1 { // one more, for all further kinds
		key, r = likeness{requester: by}, Record{Who: r.Who, From: r.From, Time: r.Time, Action: "various", Outcome: Refused, Text: "more kinds of refusals than are recorded one by one of one requester"}
		to = l.mu.alike[key]
	}
	if to == nil && len(l.mu.alike) < refusalsMax {
		to = &refusal{}
		l.mu.alike[key] = to
		l.mu.kinds[by]++
	}
	if to == nil {
		to = &l.mu.others
		r = Record{Time: r.Time, Action: "various", Outcome: Refused, Text: "more refusals of different kinds than are told apart"}
	}
	if to.count++; to.count == 1 {
		r.clean() // a caller's large text is not kept
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

// flush writes refusals that are new, and each minute those that were repeated; or all.
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
		l.cfg.Logger.Error("refusals were not written to the audit log", "refusals", lost, "error", err)
	}
}

// due takes the refusals that are to be written, in order of time.
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
	for key, r := range l.mu.alike {
		if r.count == 0 && now.Sub(r.written) >= repeatEvery {
			delete(l.mu.alike, key)
			if l.mu.kinds[key.requester]--; l.mu.kinds[key.requester] == 0 {
				delete(l.mu.kinds, key.requester)
			}
			continue
		}
		take(r)
	}
	take(&l.mu.others)
	slices.SortFunc(list, func(a, b refusal) int { return a.first.Time.Compare(b.first.Time) })
	return list
}

// Close writes the refusals that wait, and closes the files.
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

package audit

import (
	"bytes"
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
	// Logger gets refusals that could not be written. Nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.BytesMax == 0 {
		c.BytesMax = 16 << 20
	}
	if c.Files == 0 {
		c.Files = 8
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
	// refusalsMax bounds the refusals that are told apart.
	refusalsMax = 1000
)

// Log is a node's audit log. It is safe for concurrent use.
type Log struct {
	cfg    Config
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	// actions guards the fields in it, also while they are written.
	actions struct {
		sync.Mutex
		file   *file
		closed bool
	}
	// refusals is written by flush alone, once it runs.
	refusals *file

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		alike  map[likeness]*refusal
		others refusal // what alike has no room for
	}
}

// likeness is what refusals that are counted together have in common.
type likeness struct{ kind, name, host, action, on, code string }

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
	if l.actions.file, err = openFile(cfg.FS, cfg.Dir, "audit.log", cfg.BytesMax, cfg.Files); err != nil {
		return nil, err
	}
	if l.refusals, err = openFile(cfg.FS, cfg.Dir, "refusals.log", cfg.BytesMax, cfg.Files); err != nil {
		return nil, errors.Join(err, l.actions.file.close())
	}
	l.mu.alike = map[likeness]*refusal{}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.tasks.Go(func() { l.flushLoop(ctx) })
	return l, nil
}

// Action writes an action down. When it returns nil the record is durable. Errors: those
// of the disk, ErrClosed.
func (l *Log) Action(r Record) error {
	if r.Time.IsZero() {
		r.Time = l.cfg.Now()
	}
	var b bytes.Buffer
	r.encode(&b, l.cfg.Node, 1)
	l.actions.Lock()
	defer l.actions.Unlock()
	if l.actions.closed {
		return ErrClosed
	}
	return l.actions.file.append(b.Bytes())
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
	key := likeness{r.Who.Kind.String(), clean(r.Who.Name), clean(host), clean(r.Action), clean(r.On), clean(r.Code)}
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.mu.alike[key]
	if to == nil && len(l.mu.alike) < refusalsMax {
		to = &refusal{}
		l.mu.alike[key] = to
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
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.flush(false)
		case <-ctx.Done():
			l.flush(true)
			return
		}
	}
}

// flush writes refusals that are new, and each minute those that were repeated; or all.
func (l *Log) flush(all bool) {
	var batch, one bytes.Buffer
	waits := int64(0) // refusals in batch
	write := func() {
		if waits == 0 {
			return
		}
		if err := l.refusals.append(batch.Bytes()); err != nil {
			l.cfg.Logger.Error("refusals were not written to the audit log", "refusals", waits, "error", err)
		}
		batch.Reset()
		waits = 0
	}
	for _, r := range l.due(all) {
		one.Reset()
		r.first.encode(&one, l.cfg.Node, r.count)
		if batch.Len()+one.Len() > batchBytesMax {
			write()
		}
		batch.Write(one.Bytes())
		waits += r.count
	}
	write()
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
	return errors.Join(l.actions.file.close(), l.refusals.close())
}

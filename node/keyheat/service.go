package keyheat

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/peers"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/tablet"
)

// DirName is the name of the directory of the files in the first data directory.
const DirName = "heat"

// Method returns a node's part of the heat of a table.
const Method = "tablet.heat"

const (
	// timeout bounds the wait for a node's part.
	timeout = 5 * time.Second
	// settling is the time after the start in which loads of tablets are part of the start.
	settling = 2 * time.Minute
)

// Config has what the service needs of the node.
type Config struct {
	Log     *slog.Logger
	FS      vfs.FS
	Dir     string // of the files
	Name    string // the node's
	ID      func() string
	Catalog *namespace.Catalog
	Peers   *peers.Set
	Members func() []blobfs.Member
	Authz   *authz.Authorizer
	Rows    func() *metarows.Table
	// Users and Metadata return the current tablet servers; nil before the first.
	Users, Metadata func() *tablet.Server
}

// Service keeps the heat of keys.
type Service struct {
	Config
	started time.Time
	// summing has a place for each hot_tablets that is being answered; others wait.
	summing chan struct{}

	// mu guards the fields in it. Never held across I/O, nor with another lock but those of package heat.
	mu struct {
		sync.Mutex
		store   *store // nil until Run has opened it
		current *column
		ended   *column // the one before while it is being written; else nil
		loaded  map[uint64][]tablet.Loaded
	}
}

// New returns the service.
func New(cfg Config) *Service {
	s := &Service{Config: cfg, started: time.Now(), summing: make(chan struct{}, summingMax)}
	s.mu.current = &column{minute: minuteOf(s.started)}
	of := s.mu.current.of(0)
	of.events = append(of.events, event{s.started.UnixMilli(), "start", nil})
	return s
}

// Register registers the methods of the service.
func (s *Service) Register(r method.Registrar) {
	r.Handle(api.MethodKeyHeat, rpc.Spawned, authz.Guard{To: authz.RightOfTable, Right: acl.Read}, s.serve)
	r.Handle(Method, rpc.Spawned, authz.Guard{}, s.servePart)
	r.Handle(api.MethodHotTablets, rpc.Spawned, authz.Guard{To: authz.Known, Leader: authz.LeaderThroughout}, s.serveHot)
	r.Handle(MethodSums, rpc.Spawned, authz.Guard{}, s.serveSums)
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// Run writes each minute to the files until ctx ends. They are encrypted if there are master keys.
func (s *Service) Run(ctx context.Context, keys []blobfs.MasterKey) {
	st, err := openStore(encrypted(s.FS, keys), s.Dir, s.Log)
	if err != nil {
		s.Log.Warn("key heat files not opened; only the current minute is kept", "err", err)
	} else {
		s.mu.Lock()
		s.mu.store = st
		s.mu.Unlock()
	}
	for {
		now := time.Now()
		if timing.Sleep(ctx, now.Truncate(time.Minute).Add(time.Minute).Sub(now)) != nil {
			s.write(st)
			return
		}
		s.write(st)
	}
}

// write ends the minute and adds it to the files.
func (s *Service) write(st *store) {
	ended := s.endMinute(time.Now())
	if st != nil && len(ended.tables) > 0 {
		if err := st.add(ended); err != nil {
			s.Log.Warn("key heat not written", "err", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ended = nil
}

// endMinute takes the counters, and begins a new column. It returns the one that has ended.
func (s *Service) endMinute(now time.Time) *column {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeLocked(now)
	ended := s.mu.current
	s.mu.current, s.mu.ended = &column{minute: max(minuteOf(now), ended.minute)}, ended
	return ended
}

// each calls do with the columns of a period, those of tables only if there are any. do must not retain a column. Of the one that is being written do
// gets what is in memory.
func (s *Service) each(p period, do func(c *column), only ...uint64) error {
	s.mu.Lock()
	s.takeLocked(time.Now())
	st, written := s.mu.store, int64(-1)
	do(s.mu.current)
	if s.mu.ended != nil {
		do(s.mu.ended)
		written = s.mu.ended.minute
	}
	s.mu.Unlock()
	if st == nil {
		return nil
	}
	return st.read(p.layer(), p.from, p.to, func(c *column) {
		if c.minute != written {
			do(c)
		}
	}, only...)
}

// takeLocked takes the counters of the tablet servers into the current column.
func (s *Service) takeLocked(now time.Time) {
	for _, server := range []*tablet.Server{s.Metadata(), s.Users()} {
		if server != nil {
			for _, p := range server.TakeHeat() {
				s.mu.current.add(p)
			}
		}
	}
	if users := s.Users(); users != nil {
		s.noteChangesLocked(users.Served().Loaded(), now)
	}
	s.mu.current.reduce()
}

// noteChangesLocked adds the changes of tablets since the last call to the current column.
func (s *Service) noteChangesLocked(loaded []tablet.Loaded, now time.Time) {
	was := s.mu.loaded
	s.mu.loaded = map[uint64][]tablet.Loaded{}
	for _, l := range loaded {
		s.mu.loaded[l.Table] = append(s.mu.loaded[l.Table], l)
		if kind := changeOf(was[l.Table], &l); kind != "" && (kind != "load" || now.Sub(s.started) > settling) {
			t := s.mu.current.of(l.Table)
			t.events = append(t.events, event{now.UnixMilli(), kind, l.End[:min(len(l.End), api.SlowRowBytesMax)]})
		}
	}
}

// serve answers key_heat.
func (s *Service) serve(c *rpc.Call) {
	var r api.KeyHeatRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, nil), &r.Options) {
		return
	}
	id := metadata.TableID
	if r.Table != metadata.Name {
		schema, err := s.Catalog.SchemaOf(c.Context(), r.Table)
		if err != nil {
			reply.Fail(c, err)
			return
		}
		id = schema.ID
	}
	p := periodOf(&r, time.Now())
	g := newGrid(p)
	if err := s.gather(c.Context(), id, p, g); err != nil {
		reply.Fail(c, err)
		return
	}
	k := g.result(&r)
	if err := s.hideUsers(c.Context(), authz.SubjectOf(c), k); err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(k.Append)
}

// hideUsers removes the users of hot rows if the caller may not see the requests of other users, for which slow_requests requires the same right.
func (s *Service) hideUsers(ctx context.Context, caller *authz.Subject, k *api.KeyHeat) error {
	all, err := s.readsAll(ctx, caller)
	if err != nil || all {
		return err
	}
	for i := range k.Hot {
		k.Hot[i].Users = nil
	}
	return nil
}

// readsAll reports whether the caller has the right to read on the cluster.
func (s *Service) readsAll(ctx context.Context, caller *authz.Subject) (bool, error) {
	if !caller.Restricted() {
		return true, nil
	}
	_, err := s.Authz.Rights.Check(ctx, caller, acl.Read)
	if errors.Is(err, api.ErrPermission) {
		return false, nil
	}
	return err == nil, err
}

// gather adds the parts of all nodes to g.
func (s *Service) gather(ctx context.Context, id uint64, p period, g *grid) (err error) {
	var mu sync.Mutex
	g.silent, err = s.ask(ctx, func(ctx context.Context, node string) error {
		part := &part{}
		err := s.Peers.Call(ctx, node, Method, func(e *wire.Encoder) {
			e.Array(5)
			e.Uint(id)
			p.append(e)
			e.Int(int64(formLatest))
		}, part.decode)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			g.parts = append(g.parts, part)
		}
		return err
	})
	return err
}

// ask calls each node that is alive at the same time, and returns the ids of those that did not answer. The error is that of ctx.
func (s *Service) ask(ctx context.Context, call func(ctx context.Context, node string) error) (silent []string, err error) {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, m := range s.Members() {
		group.Go(func() {
			if m.Alive || m.ID == s.ID() {
				err := call(within, m.ID)
				if err == nil {
					return
				}
				s.Log.Debug("key heat of node not received", "node", m.ID, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			silent = append(silent, m.ID)
		})
	}
	group.Wait()
	return silent, ctx.Err()
}

// servePart answers Method.
func (s *Service) servePart(c *rpc.Call) {
	id, p := c.Params.Uint(), period{from: c.Params.Int(), to: c.Params.Int(), interval: c.Params.Int()}
	f := formOf(c, 5)
	err := c.Params.Err()
	if err == nil {
		err = p.check()
	}
	var own *part
	if err == nil {
		own, err = s.part(id, p)
	}
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(func(e *wire.Encoder) { own.append(e, f) })
}

// formOf reads the form of the answer from the last of n parameters. An older node sends it not, and reads only the first form.
func formOf(c *rpc.Call, n int) form {
	if c.NumParams < n {
		return formCounts
	}
	return form(min(max(c.Params.Int(), 0), int64(formLatest)))
}

// part returns the node's part of a period.
func (s *Service) part(id uint64, p period) (*part, error) {
	own := &part{node: s.Name, columns: map[int64]*column{}}
	if err := s.each(p, func(c *column) { own.add(c, id, p) }, 0, id); err != nil {
		return nil, err
	}
	for _, c := range own.columns {
		c.reduce()
	}
	server := s.Users()
	if id == metadata.TableID {
		server = s.Metadata()
	}
	if server != nil {
		own.samples = server.RowSamples(id, samplesMax)
	}
	return own, nil
}

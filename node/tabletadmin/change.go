package tabletadmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// handleTabletChanges registers the methods by which operators split, move, merge and compact tablets.
func (tv *Service) handleTabletChanges(r method.Registrar) {
	guard := authz.Guard{To: authz.RightOfTable, Right: acl.Admin, SelfAudited: true, Leader: authz.LeaderFirst}
	for method, do := range map[string]func(context.Context, *change) (reply.Result, error){
		api.MethodSplitTablet: tv.split, api.MethodMoveTablet: tv.move,
		api.MethodMergeTablets: tv.merge, api.MethodCompactTablet: tv.compact,
	} {
		r.Handle(method, rpc.Spawned, guard, func(c *rpc.Call) {
			c.Retain() // what is begun may outlive the call
			caller, r := authz.SubjectOf(c), change{}
			decoded := r.Decode(&c.Params, c.NumParams, method, tv.Limits)
			if decoded != nil {
				tv.Authz.Audit.ActionOnRows(caller, method, r.auditSubject(), decoded)
			}
			if !reply.Begin(c, decoded, &r.Options) {
				return
			}
			ctx, cancel := context.WithTimeout(c.Context(), tabletChangeTimeout)
			defer cancel()
			a, err := do(ctx, &r)
			tv.Authz.Audit.ActionOnRows(caller, method, r.auditSubject(), err)
			if err != nil {
				reply.Fail(c, err)
				return
			}
			c.Reply(a)
		})
	}
}

// change is a request to change a tablet.
type change struct {
	api.TabletRequest
	// found are the ids of the tablets that the request names, once they are located.
	found []uint64
}

// at records the tablets that the request names.
func (r *change) at(all ...*placed) {
	r.found = r.found[:0]
	for _, p := range all {
		r.found = append(r.found, p.meta.ID)
	}
}

// auditSubject returns the subject of the request for the audit log. Row keys are not logged: a tablet that is named by a row is
// logged by its id.
func (r *change) auditSubject() string {
	ids, s := r.found, ""
	if len(ids) == 0 && r.ID != 0 {
		ids = []uint64{r.ID}
	}
	switch len(ids) {
	case 0:
	case 1:
		s = fmt.Sprintf("tablet %d of ", ids[0])
	default:
		s = fmt.Sprintf("tablets %d and %d of ", ids[0], ids[1])
	}
	s += "table " + r.Table
	if r.Node != "" {
		s += " to node " + r.Node
	}
	return s
}

const (
	// tabletChangeTimeout bounds a change of a tablet: two servers may have a gigabyte each to write out.
	tabletChangeTimeout = 5 * time.Minute
	// unservedTimeout is how long a change waits until a tablet is served.
	unservedTimeout = 20 * time.Second
)

// placed is a tablet and its location according to METADATA.
type placed struct {
	schema *table.Schema
	row    *metadata.Row
	meta   *tablet.Meta
}

func (p *placed) key() string { return master.KeyOf(p.row.Table, p.row.End) }

// change returns the result that the caller gets.
func (p *placed) change() *api.TabletChange {
	return &api.TabletChange{ID: p.meta.ID, Node: namespace.NodeOf(p.row.Server), Server: p.row.Server}
}

// place locates a tablet by one of its rows, or by its id. Errors: api.ErrNoTable, api.ErrNoTablet, and api.ErrNotServing for a
// table whose tablets do not exist yet.
func (tv *Service) place(ctx context.Context, name string, row []byte, id uint64) (*placed, error) {
	s, err := tv.Catalog.SchemaOf(ctx, name)
	if err != nil {
		return nil, err
	}
	if id == 0 {
		r, err := tv.Rows().Holder(ctx, s.ID, row)
		if errors.Is(err, metarows.ErrNoRow) {
			return nil, fmt.Errorf("table %q, row %.64q: %w", name, row, api.ErrNotServing)
		}
		if err != nil {
			return nil, err
		}
		m, err := tablet.DecodeMeta(r.Meta)
		return &placed{s, r, m}, err
	}
	var found *placed
	if err := tv.Rows().Tablets(ctx, s.ID, func(r *metadata.Row) error {
		m, err := tablet.DecodeMeta(r.Meta)
		if err == nil && m.ID == id {
			found = &placed{s, r, m}
		}
		return err
	}); err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("tablet %d of table %q: %w", id, name, api.ErrNoTablet)
	}
	return found, nil
}

// untilServed calls do, and repeats it while the error is that the tablet is not served.
func untilServed(ctx context.Context, do func() error) error {
	start := time.Now()
	pauses := timing.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		err := api.FromRPC(do())
		if err == nil || !errors.Is(err, api.ErrNotServing) && !errors.Is(err, api.ErrUnavailable) || time.Since(start) > unservedTimeout {
			return err
		}
		if pauses.Sleep(ctx); ctx.Err() != nil {
			return err
		}
	}
}

// callServer calls a method of the server of a tablet.
func (tv *Service) callServer(ctx context.Context, p *placed, method string, more func(*wire.Encoder), values int, result func(*wire.Decoder) error) error {
	if p.row.Unassigned() {
		return fmt.Errorf("tablet %d of table %q has no server: %w", p.meta.ID, p.schema.Name, api.ErrNotServing)
	}
	return tv.Peers.Call(ctx, namespace.NodeOf(p.row.Server), method, func(e *wire.Encoder) {
		e.Array(2 + values)
		e.Str(p.schema.Name)
		e.Bin(p.row.Key())
		if more != nil {
			more(e)
		}
	}, result)
}

// split has the tablet's server split it.
func (tv *Service) split(ctx context.Context, r *change) (reply.Result, error) {
	if r.Table == metadata.Name {
		return nil, api.ErrSystemTable
	}
	if err := tv.mayAddTablet(ctx, r.Table); err != nil {
		return nil, err
	}
	middle := r.Middle || r.ID != 0
	if len(r.Row) == 0 && r.ID == 0 {
		middle = true
		var err error
		if r.ID, err = tv.largestTablet(ctx, r.Table); err != nil {
			return nil, err
		}
	}
	tried := false
	var done api.TabletChange
	err := untilServed(ctx, func() error {
		p, err := tv.place(ctx, r.Table, r.Row, r.ID)
		if err != nil {
			return err
		}
		r.at(p)
		if !middle && string(p.row.End) == string(r.Row) {
			if !tried {
				return fmt.Errorf("a tablet of table %q ends at row %.64q already: %w", r.Table, r.Row, api.ErrBadSplit)
			}
			// An earlier attempt succeeded.
			done.Lower, done.At = p.meta.ID, p.row.End
			return nil
		}
		tried = true
		done = *p.change()
		return tv.callServer(ctx, p, MethodSplit, func(e *wire.Encoder) {
			if middle {
				e.Nil()
			} else {
				e.Bin(r.Row)
			}
		}, 1, func(d *wire.Decoder) error {
			d.Array()
			done.Lower, done.At = d.Uint(), append([]byte(nil), d.Bytes()...)
			return d.Err()
		})
	})
	if err != nil {
		return nil, err
	}
	tv.Log.Info("tablet split", "cause", "request", "table", r.Table, "tablet", done.ID, "lower", done.Lower)
	return done.Append, nil
}

// mayAddTablet returns a *table.LimitError if the table already has as many tablets as requests may create. Each tablet takes
// memory on its server and a row of METADATA.
func (tv *Service) mayAddTablet(ctx context.Context, name string) error {
	s, err := tv.Catalog.SchemaOf(ctx, name)
	if err != nil {
		return err
	}
	limit, tablets := cmp.Or(tv.TabletsMax, api.TabletsRequestedMax), int64(0)
	from, to := metadata.TableRange(s.ID)
	err = tv.Rows().ScanAll(ctx, string(from), string(to), metadata.Locations(), func(string, *metadata.Row, error) error {
		tablets++
		return nil
	})
	if err == nil && tablets >= limit {
		return &table.LimitError{What: "tablets of a table that requests may make", Limit: limit, Got: tablets + 1}
	}
	return err
}

// largestTablet returns the id of the table's tablet with the most bytes.
func (tv *Service) largestTablet(ctx context.Context, name string) (id uint64, err error) {
	s, _, err := tv.Catalog.Schema(ctx, name)
	if err != nil {
		return 0, err
	}
	err = untilServed(ctx, func() error {
		infos, err := tv.Describe(ctx, s)
		if err != nil {
			return err
		}
		most := int64(-1)
		for i := range infos {
			bytes := infos[i].MemtableBytes
			for _, g := range infos[i].Groups {
				bytes += g.Bytes
			}
			if bytes > most {
				id, most = infos[i].ID, bytes
			}
		}
		if id == 0 {
			return fmt.Errorf("table %q: %w", name, api.ErrNotServing)
		}
		return nil
	})
	return id, err
}

// move has the master move a tablet to a node.
func (tv *Service) move(ctx context.Context, r *change) (reply.Result, error) {
	to, err := tv.Find(ctx, r.Node)
	if err != nil {
		return nil, err
	}
	// The tablet is located once: if it splits meanwhile, its upper part moves.
	p, err := tv.placeServed(ctx, r)
	if err != nil {
		return nil, err
	}
	r.at(p)
	if err := tv.callMaster(ctx, &request{method: MethodMove, a: p.key(), b: to.ID, here: tv.Master().MoveTablet}); err != nil {
		return nil, fmt.Errorf("move tablet %d of table %q to node %s: %w", p.meta.ID, r.Table, r.Node, err)
	}
	p, err = tv.place(ctx, r.Table, nil, p.meta.ID)
	if err != nil {
		return nil, err
	}
	tv.Log.Info("tablet moved", "cause", "request", "table", r.Table, "tablet", p.meta.ID, "server", p.row.Server)
	return p.change().Append, nil
}

// placeServed is place, but waits until the table has tablets.
func (tv *Service) placeServed(ctx context.Context, r *change) (p *placed, err error) {
	err = untilServed(ctx, func() error {
		p, err = tv.place(ctx, r.Table, r.Row, r.ID)
		return err
	})
	return p, err
}

// merge has the master merge a tablet with its upper neighbour, or the last tablet of a table with its lower one.
func (tv *Service) merge(ctx context.Context, r *change) (reply.Result, error) {
	if r.Table == metadata.Name {
		return nil, api.ErrSystemTable
	}
	lower, err := tv.placeServed(ctx, r)
	if err != nil {
		return nil, err
	}
	var upper *placed
	if len(lower.row.End) > 0 {
		upper, err = tv.place(ctx, r.Table, append(append([]byte{}, lower.row.End...), 0), 0)
	} else {
		upper = lower
		lower, err = tv.below(ctx, upper)
	}
	if err != nil {
		return nil, err
	}
	r.at(lower, upper)
	err = tv.callMaster(ctx, &request{method: MethodMerge, a: lower.key(), b: upper.key(), here: tv.Master().MergeTablets, done: tv.merged(lower)})
	if err != nil {
		return nil, fmt.Errorf("merge tablets %d and %d of table %q: %w", lower.meta.ID, upper.meta.ID, r.Table, err)
	}
	done := upper.change()
	if p, err := tv.place(ctx, r.Table, nil, upper.meta.ID); err == nil {
		done = p.change()
	}
	tv.Log.Info("tablets merged", "cause", "request", "table", r.Table, "lower", lower.meta.ID, "upper", upper.meta.ID)
	return done.Append, nil
}

// merged returns whether lower has been merged into its upper neighbour. By the time that a new master gets the request, the keys may belong to
// other tablets.
func (tv *Service) merged(lower *placed) func(ctx context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		now, err := tv.Rows().Get(ctx, lower.row.Table, lower.row.End)
		if errors.Is(err, metarows.ErrNoRow) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		m, err := tablet.DecodeMeta(now.Meta)
		return err == nil && m.ID != lower.meta.ID, err
	}
}

// below returns the tablet before p.
func (tv *Service) below(ctx context.Context, p *placed) (*placed, error) {
	before, err := tv.Rows().Between(ctx, p.row.Table, p.meta.Start, p.row.End)
	if err != nil {
		return nil, err
	}
	end := p.meta.Start
	if len(before) > 0 {
		end = before[len(before)-1].End
	}
	if len(end) == 0 {
		return nil, fmt.Errorf("table %q has one tablet, and that has no neighbour: %w", p.schema.Name, api.ErrNoTablet)
	}
	r, err := tv.Rows().Get(ctx, p.row.Table, end)
	if err != nil {
		return nil, err
	}
	m, err := tablet.DecodeMeta(r.Meta)
	return &placed{p.schema, r, m}, err
}

// compact has the tablet's server compact it.
func (tv *Service) compact(ctx context.Context, r *change) (reply.Result, error) {
	return nil, untilServed(ctx, func() error {
		p, err := tv.place(ctx, r.Table, r.Row, r.ID)
		if err != nil {
			return err
		}
		r.at(p)
		return tv.callServer(ctx, p, MethodCompactOne, func(e *wire.Encoder) { e.Bool(r.Major) }, 1, nil)
	})
}

// request is a request to the master that may be sent more than once, to different masters.
type request struct {
	method string
	a, b   string // names of what it is about
	here   func(ctx context.Context, a, b string) error
	done   func(ctx context.Context) (bool, error) // reports whether the change has been made; nil if the master's answer suffices
}

// callMaster sends a request to the master, on this node or another, until it answers.
func (tv *Service) callMaster(ctx context.Context, r *request) error {
	pauses := timing.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for {
		again, err := tv.callMasterOnce(ctx, r)
		if !again {
			return err
		}
		if pauses.Sleep(ctx); ctx.Err() != nil {
			return err
		}
	}
}

func (tv *Service) callMasterOnce(ctx context.Context, r *request) (again bool, err error) {
	if r.done != nil {
		if done, err := r.done(ctx); done || err != nil {
			return errors.Is(err, api.ErrNotServing), err
		}
	}
	if tv.Master().Epoch() != 0 {
		err := r.here(ctx, r.a, r.b)
		return errors.Is(err, master.ErrNotMaster), err
	}
	masterID, _ := tv.Masters.Last()
	if masterID == "" || masterID == tv.ID() {
		return true, fmt.Errorf("no master is known: %w", api.ErrUnavailable)
	}
	err = api.FromRPC(tv.Peers.Call(ctx, masterID, r.method, func(e *wire.Encoder) {
		e.Array(2)
		e.Bin([]byte(r.a))
		e.Bin([]byte(r.b))
	}, nil))
	var answer *rpc.Error
	return err != nil && (!errors.As(err, &answer) || errors.Is(err, api.ErrUnavailable)), err
}

// handleMasterRequests registers the requests that any node may send to the master.
func (tv *Service) handleMasterRequests(r method.Registrar) {
	for method, do := range map[string]func(m *master.Master, ctx context.Context, a, b string) error{
		MethodMove: (*master.Master).MoveTablet, MethodMerge: (*master.Master).MergeTablets,
	} {
		r.Handle(method, rpc.Waiting, authz.Guard{}, func(c *rpc.Call) {
			a, b := string(c.Params.Bytes()), string(c.Params.Bytes())
			err := c.Params.Err()
			if err == nil {
				err = do(tv.Master(), c.Context(), a, b)
			}
			if err != nil {
				reply.Fail(c, err)
				return
			}
			c.Reply(nil)
		})
	}
}

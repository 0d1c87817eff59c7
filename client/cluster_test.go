package client

import (
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// fakeCluster is the state of a fake with several servers. They share their data.
type fakeCluster struct {
	addrs []string
	srvs  []*rpc.Server
	ids   map[string]uint64 // of tables
	// tablets are by table, in order; METADATA's first is the root tablet.
	tablets    map[string][]*fakeTablet
	generation uint64
	// ignorant servers that have no tablet of a table report that the table does not exist.
	ignorant bool
	hints    func(name string, row []byte) *api.NotServingError // nil: no hints
	silent   map[int]bool                                       // servers without a lease
	// trace holds all requests: "method table@server", with "!" appended to rejected ones.
	trace   []string
	subject string // table of the request being executed
}

// fakeTablet is a tablet with its server in METADATA and its actual server; -1 is none.
type fakeTablet struct {
	end               string // empty: no end
	published, serves int
}

const noServer = -1

// newFakeCluster returns a fake of n servers with the table t in one tablet, on the last.
// METADATA's tablets are on the first two.
func newFakeCluster(f *fake, n int) *fake {
	fc := &fakeCluster{ids: map[string]uint64{metadata.Name: metadata.TableID}, tablets: map[string][]*fakeTablet{}}
	fc.addrs, fc.srvs = []string{f.addr}, []*rpc.Server{f.srv}
	for i := 1; i < n; i++ {
		addr, srv := f.serve("127.0.0.1:0", i)
		fc.addrs, fc.srvs = append(fc.addrs, addr), append(fc.srvs, srv)
	}
	f.t.Cleanup(func() {
		for _, srv := range fc.srvs {
			srv.Close()
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cluster = fc
	f.schemas[metadata.Name] = metadata.Schema()
	fc.tablets[metadata.Name] = []*fakeTablet{{string(metadata.RootEnd()), 0, 0}, {"", 1, 1}}
	fc.ids["t"] = metadata.FirstID
	fc.tablets["t"] = []*fakeTablet{{"", n - 1, n - 1}}
	f.publishLocked()
	return f
}

// layout gives a table tablets that end at ends, and a last one, on these servers.
func (f *fake) layout(name string, ends []string, servers ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*fakeTablet
	for i, s := range servers {
		t := &fakeTablet{"", s, s}
		if i < len(ends) {
			t.end = ends[i]
		}
		all = append(all, t)
	}
	f.cluster.tablets[name] = all
	f.publishLocked()
}

// publishLocked writes METADATA.
func (f *fake) publishLocked() {
	fc := f.cluster
	rows := map[string][]table.Cell{}
	fc.generation++
	for name, tablets := range fc.tablets {
		for i, t := range tablets {
			if name == metadata.Name && i == 0 {
				continue // its location is returned by root
			}
			r := metadata.Row{Table: fc.ids[name], Generation: fc.generation, Meta: []byte{1}}
			if t.end != "" {
				r.End = []byte(t.end)
			}
			if t.published != noServer {
				r.Server, r.Addr = serverName(t.published), fc.addrs[t.published]
			}
			for _, m := range metadata.Create(&r, "").Else {
				if m.Op == table.OpSet {
					rows[string(r.Key())] = append(rows[string(r.Key())], table.Cell{Family: m.Family, Qualifier: m.Qualifier, Timestamp: 1, Value: m.Value})
				}
			}
		}
	}
	f.rows[metadata.Name] = rows
}

func serverName(at int) string { return fmt.Sprintf("n%d.%d", at, 300+at) }

// tablet returns the tablet of a row.
func (fc *fakeCluster) tablet(name string, row []byte) (*fakeTablet, int) {
	tablets := fc.tablets[name]
	i := slices.IndexFunc(tablets, func(t *fakeTablet) bool { return t.end == "" || t.end >= string(row) })
	if i < 0 {
		return nil, 0
	}
	return tablets[i], i
}

// withoutID counts requests about rows that do not name the table's id.
const withoutID = "without a table id"

// here reports whether the server that executes a request holds the row of the table with that id.
func (f *fake) here(name string, id uint64, row []byte) error {
	fc := f.cluster
	if fc == nil {
		return nil
	}
	fc.subject = name
	switch now := fc.ids[name]; {
	case id == 0 && name != metadata.Name: // lookups have no id
		f.requests[withoutID]++
	case id != 0 && now != 0 && id != now:
		return &api.TableReplacedError{Table: name, ID: now}
	}
	if fc.silent[f.at] {
		return &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true, Message: "the server has no lease"}
	}
	t, _ := fc.tablet(name, row)
	if t != nil && t.serves == f.at {
		return nil
	}
	if f.schemas[name] == nil || fc.ignorant && !slices.ContainsFunc(fc.tablets[name], func(t *fakeTablet) bool { return t.serves == f.at }) {
		return api.ErrNoTable
	}
	if fc.hints != nil {
		if hint := fc.hints(name, row); hint != nil {
			return hint
		}
	}
	return api.ErrNotServing
}

// upTo returns the end of the rows from row on that the server holds; nil at the table's end.
func (f *fake) upTo(name string, id uint64, row []byte) ([]byte, error) {
	if f.cluster == nil {
		return nil, nil
	}
	if err := f.here(name, id, row); err != nil {
		return nil, err
	}
	tablets := f.cluster.tablets[name]
	_, i := f.cluster.tablet(name, row)
	for ; i < len(tablets) && tablets[i].serves == f.at; i++ {
		if tablets[i].end == "" {
			return nil, nil
		}
	}
	return successor([]byte(tablets[i-1].end)), nil
}

// root answers without the hook, because it precedes the first call of every test.
func (f *fake) root(c *rpc.Call, at int) {
	if on := f.onRoot.Load(); on != nil {
		if err := (*on)(); err != nil {
			c.Fail(api.ToRPC(err))
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var r api.NamesRequest
	if err := r.Decode(&c.Params, c.NumParams, api.MethodRoot, 1); err != nil {
		c.Fail(api.ToRPC(err))
		return
	}
	f.requests[api.MethodRoot]++
	info := api.RootInfo{}
	if fc := f.cluster; fc != nil {
		fc.trace = append(fc.trace, fmt.Sprintf("root %s@%d", r.Names[0], at))
		id, ok := fc.ids[r.Names[0]]
		if !ok {
			c.Fail(api.ToRPC(fmt.Errorf("table %q: %w", r.Names[0], api.ErrNoTable)))
			return
		}
		info = api.RootInfo{Metadata: true, Table: id}
		if t := fc.tablets[metadata.Name][0]; t.published != noServer {
			info.Server, info.Addr = serverName(t.published), fc.addrs[t.published]
		}
	}
	c.Reply(info.Append)
}

func (f *fake) sampleRowKeys(d *wire.Decoder, n int, e *wire.Encoder) error {
	var r api.SampleRowKeysRequest
	if err := r.Decode(d, n, nil); err != nil {
		return err
	}
	if f.cluster == nil {
		if f.schemas[r.Table] == nil {
			return api.ErrNoTable
		}
		api.AppendSamples(e, []api.RowSample{{Key: []byte("m"), Offset: 10}, {Offset: 20}})
		return nil
	}
	if err := f.here(r.Table, r.TableID, r.Start); err != nil {
		return err
	}
	var samples []api.RowSample
	tablets := f.cluster.tablets[r.Table]
	for _, i := f.cluster.tablet(r.Table, r.Start); i < len(tablets) && tablets[i].serves == f.at; i++ {
		samples = append(samples, api.RowSample{Key: []byte(tablets[i].end), Offset: int64(10 * (len(samples) + 1))})
	}
	api.AppendSamples(e, samples)
	return nil
}

// change changes the tablets and updates METADATA.
func (f *fake) change(name string, change func(tablets []*fakeTablet) []*fakeTablet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cluster.tablets[name] = change(f.cluster.tablets[name])
	f.publishLocked()
}

// move moves the tablet of a row at once.
func (f *fake) move(name, row string, to int) {
	f.change(name, func(all []*fakeTablet) []*fakeTablet {
		t, _ := f.cluster.tablet(name, []byte(row))
		t.published, t.serves = to, to
		return all
	})
}

// moveUnpublished is move without an update of METADATA.
func (f *fake) moveUnpublished(name, row string, to int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, _ := f.cluster.tablet(name, []byte(row))
	t.serves = to
}

// kill stops a server; revive restarts it with empty memory.
func (f *fake) kill(at int) {
	f.cluster.srvs[at].Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.cursors {
		if s.at == at {
			delete(f.cursors, id)
		}
	}
}

func (f *fake) revive(at int) {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		l, err := net.Listen("tcp", f.cluster.addrs[at])
		if err == nil {
			l.Close()
			break
		}
		if time.Now().After(deadline) {
			f.t.Fatal(err)
		}
	}
	_, f.cluster.srvs[at] = f.serve(f.cluster.addrs[at], at)
}

func (f *fake) traceLocked(method string, err error) {
	if fc := f.cluster; fc != nil {
		line := fmt.Sprintf("%s %s@%d", method, fc.subject, f.at)
		if err != nil {
			line += "!"
		}
		fc.trace, fc.subject = append(fc.trace, line), ""
	}
}

// traced returns the requests since its last call.
func (f *fake) traced() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	trace := f.cluster.trace
	f.cluster.trace = nil
	return trace
}

// metadataKey is the key in METADATA of the table's tablet that ends at end.
func (f *fake) metadataKey(name, end string) string {
	return string(metadata.Key(nil, f.cluster.ids[name], []byte(end)))
}

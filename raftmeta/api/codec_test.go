package api

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
)

// decodeRequest decodes params, an array.
func decodeRequest(method string, params []byte) (*request, error) {
	r := &request{shape: shapeOf[method]}
	d := wire.NewDecoder(params)
	n := d.Array()
	if d.Err() != nil {
		return nil, d.Err()
	}
	err := r.decode(&d, n)
	if err == nil && d.More() {
		err = errors.New("bytes are left")
	}
	return r, err
}

var testSequencer = Sequencer{Path: "/jobs/a:b", Mode: Exclusive, Instance: 7, LockGeneration: 1 << 40}

// goldens are examples of params, some of them from docs/rpc.md. They must not change.
var goldens = []struct {
	request
	hex string
}{
	{request{shape: shapeOf[MethodOpenSession], name: "db1"}, "91 a3646231"},
	{request{shape: shapeOf[MethodOpenSession], name: "db1", lease: 5 * time.Second, timeout: time.Second},
		"92 a3646231 82 a86c656173655f6d73cd1388 aa74696d656f75745f6d73cd03e8"},
	{request{shape: shapeOf[MethodKeepAlive], session: 300, term: 2, acked: 9, hang: 1500 * time.Millisecond},
		"94 cd012c 02 09 81 a768616e675f6d73cd05dc"},
	{request{shape: shapeOf[MethodCloseSession], session: 300}, "91 cd012c"},
	{request{shape: shapeOf[MethodGet], path: "/a"}, "91 a22f61"},
	{request{shape: shapeOf[MethodGet], path: "/a", session: 300}, "92 a22f61 81 a773657373696f6ecd012c"},
	{request{shape: shapeOf[MethodGet], path: "/a", stale: true}, "92 a22f61 81 a57374616c65c3"},
	{request{shape: shapeOf[MethodStat], path: "/a"}, "91 a22f61"},
	{request{shape: shapeOf[MethodList], path: "/"}, "91 a12f"},
	{request{shape: shapeOf[MethodReadDirectory], path: "/a"}, "91 a22f61"},
	{request{shape: shapeOf[MethodReadDirectory], path: "/a", since: 300, after: "b"}, "92 a22f61 82 a573696e6365cd012c a56166746572a162"},
	{request{shape: shapeOf[MethodSet], path: "/a", data: []byte("v")}, "93 a22f61 c40176 00"},
	{request{shape: shapeOf[MethodSet], path: "/a", data: []byte("v"), generation: AnyGeneration, session: 300, ephemeral: true, guard: testSequencer},
		"94 a22f61 c40176 c0 83 a773657373696f6ecd012c a9657068656d6572616cc3" +
			"a56775617264 d923 6578636c75736976653a373a313039393531313632373737363a2f6a6f62732f613a62"},
	{request{shape: shapeOf[MethodSet], path: "/a", data: []byte("v"), node: true, owner: "ann"},
		"94 a22f61 c40176 00 82 a46e6f6465c3 a56f776e6572a3616e6e"},
	{request{shape: shapeOf[MethodSet], path: "/a", data: []byte("v"), from: "/b", fromGeneration: 5},
		"94 a22f61 c40176 00 82 a466726f6da22f62 af66726f6d5f67656e65726174696f6e05"},
	{request{shape: shapeOf[MethodDelete], path: "/a", generation: 5}, "92 a22f61 05"},
	{request{shape: shapeOf[MethodSetACL], path: "/a", acl: "ops"}, "92 a22f61 a36f7073"},
	{request{shape: shapeOf[MethodAcquire], session: 300, path: "/a", mode: Exclusive, wait: 10 * time.Second, delay: time.Second},
		"94 cd012c a22f61 a96578636c7573697665 82 a7776169745f6d73cd2710 a864656c61795f6d73cd03e8"},
	{request{shape: shapeOf[MethodAcquire], session: 300, path: "/a", mode: Shared}, "93 cd012c a22f61 a6736861726564"},
	{request{shape: shapeOf[MethodRelease], session: 300, path: "/a", hold: 301}, "93 cd012c a22f61 81 a4686f6c64cd012d"},
	{request{shape: shapeOf[MethodCheckSequencer], sequencer: testSequencer},
		"91 d923 6578636c75736976653a373a313039393531313632373737363a2f6a6f62732f613a62"},
	{request{shape: shapeOf[MethodWatch], session: 300, path: "/a", kinds: ContentsChanged | LockFreed, seen: 12},
		"94 cd012c a22f61 11 81 aa67656e65726174696f6e0c"},
	{request{shape: shapeOf[MethodUnwatch], session: 300, path: "/a", watch: 4}, "93 cd012c a22f61 04"},
}

// Invariant RA1: a decoded value equals the encoded one.
func TestGoldenRequests(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range goldens {
		want := wiretest.Unhex(t, g.hex)
		if got := wiretest.Encode(g.request.append); !bytes.Equal(got, want) {
			t.Errorf("%s is written as\n%x, want\n%x", g.method, got, want)
		}
		back, err := decodeRequest(g.method, want)
		if err != nil || !reflect.DeepEqual(*back, g.request) {
			t.Errorf("%s is read as %+v (%v)", g.method, back, err)
		}
		seen[g.method] = true
	}
	if len(seen) != len(Methods()) {
		t.Errorf("goldens of %d methods, there are %d", len(seen), len(Methods()))
	}
}

func TestRequestsAreChecked(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for _, c := range []struct {
		method string
		params []any
		code   rpc.Code
	}{
		{MethodGet, nil, rpc.CodeBadRequest},
		{MethodGet, []any{"/a", nil, nil}, rpc.CodeBadRequest},
		{MethodGet, []any{5}, rpc.CodeBadRequest},
		{MethodGet, []any{"/a", map[string]any{"holt": 1}}, rpc.CodeBadRequest},
		{MethodGet, []any{"/a", map[string]any{"hold": 1}}, rpc.CodeBadRequest},
		{MethodGet, []any{"/a", map[string]any{"stale": 1}}, rpc.CodeBadRequest},
		{MethodGet, []any{"/a", map[string]any{"trace_id": make([]byte, 65)}}, rpc.CodeBadRequest},
		{MethodGet, []any{"/" + long}, CodeBadPath},
		{MethodOpenSession, []any{long}, CodeNamespaceLimit},
		{MethodSetACL, []any{"/a", long}, CodeNamespaceLimit},
		{MethodSet, []any{"/a", make([]byte, FileBytesMax+1), nil}, CodeNamespaceLimit},
		{MethodSet, []any{"/a", "", -1}, rpc.CodeBadRequest},
		{MethodSet, []any{"/a", "", nil, map[string]any{"guard": "exclusive"}}, rpc.CodeBadRequest},
		{MethodSet, []any{"/a", "", nil, map[string]any{"owner": long}}, rpc.CodeBadRequest},
		{MethodAcquire, []any{1, "/a", "both"}, rpc.CodeBadRequest},
		{MethodWatch, []any{1, "/a", 0}, rpc.CodeBadRequest},
		{MethodWatch, []any{1, "/a", 32}, rpc.CodeBadRequest},
		{MethodWatch, []any{1, "/a", 257}, rpc.CodeBadRequest},
		{MethodGet, []any{"/a", map[string]any{"timeout_ms": 0}}, rpc.CodeBadRequest},
		{MethodGet, []any{"/a", map[string]any{"timeout_ms": -1}}, rpc.CodeBadRequest},
		{MethodGet, []any{"/a", map[string]any{"session": 0}}, rpc.CodeBadRequest},
		{MethodOpenSession, []any{"n", map[string]any{"lease_ms": 0}}, rpc.CodeBadRequest},
		{MethodOpenSession, []any{"n", map[string]any{"lease_ms": -1}}, rpc.CodeBadRequest},
		{MethodAcquire, []any{1, "/a", "shared", map[string]any{"wait_ms": -1}}, rpc.CodeBadRequest},
		{MethodAcquire, []any{1, "/a", "shared", map[string]any{"delay_ms": -1}}, rpc.CodeBadRequest},
		{MethodRelease, []any{1, "/a", map[string]any{"hold": 0}}, rpc.CodeBadRequest},
		{MethodRelease, []any{1, "/a", map[string]any{"hold": "1"}}, rpc.CodeBadRequest},
		{MethodOpenSession, []any{"n", map[string]any{"lease_ms": true}}, rpc.CodeBadRequest},
		{MethodCheckSequencer, []any{"exclusive:1:2"}, rpc.CodeBadRequest},
		{MethodCheckSequencer, []any{"exclusive:1:2:/" + long}, rpc.CodeBadRequest},
	} {
		var e wire.Encoder
		wiretest.Any(&e, c.params)
		if c.params == nil {
			e.Reset()
			e.Array(0)
		}
		_, err := decodeRequest(c.method, e.Bytes())
		if err == nil || ToRPC(err).Code != c.code {
			t.Errorf("%s%.80v: %v, want %v", c.method, c.params, err, c.code)
			continue
		}
		if len(c.params) == 0 {
			continue
		}
		options, _ := c.params[len(c.params)-1].(map[string]any)
		for option := range options {
			if !strings.Contains(err.Error(), option) && option != "guard" {
				t.Errorf("%s%.80v: %v, which does not name the option", c.method, c.params, err)
			}
		}
	}
	// What a client of another make may send.
	var e wire.Encoder
	wiretest.Any(&e, []any{[]byte("/a"), map[string]any{"x_mine": []any{1}, "session": nil, "timeout_ms": 1 << 40, "trace_id": nil}})
	if r, err := decodeRequest(MethodGet, e.Bytes()); err != nil || r.path != "/a" || r.timeout != timeoutMax {
		t.Errorf("%+v %v", r, err)
	}
}

func TestResults(t *testing.T) {
	f := File{Stat: Stat{
		Path: "/a", Dir: true, Instance: 1, Generation: 2, LockGeneration: 3, ACLGeneration: 4, ACL: "ops",
		Ephemeral: 5, Bytes: 6, Children: 7, Lock: Shared, Holders: []SessionID{8, 1 << 50},
	}, Data: []byte("data")}
	perm := CachePermission{OK: true, Term: 9, At: 1 << 33}
	var gotFile File
	var gotPerm CachePermission
	d := wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { appendStat(e, &f.Stat, f.Data, true, perm) }))
	if decodeStat(&d, &gotFile, &gotPerm); d.Err() != nil || !reflect.DeepEqual(gotFile, f) || gotPerm != perm {
		t.Errorf("file: %+v %+v %v", gotFile, gotPerm, d.Err())
	}
	all := []Stat{f.Stat, {Path: "/b"}}
	d = wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { appendStats(e, all) }))
	if got := decodeStats(&d); d.Err() != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("list: %+v %v", got, d.Err())
	}
	// A lease is rounded down.
	k := KeepAliveResponse{Lease: 2*time.Second + 999*time.Microsecond, Term: 3, First: 4, Events: []Event{
		{Kind: ChildAdded, Path: "/d", Name: "n", Index: 77}, {Kind: CacheInvalid, Path: "/e"}, {Kind: FailedOver},
	}}
	var gotK KeepAliveResponse
	d = wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { appendKeepAlive(e, &k) }))
	decodeKeepAlive(&d, &gotK)
	if k.Lease = 2 * time.Second; d.Err() != nil || !reflect.DeepEqual(gotK, k) {
		t.Errorf("keep-alive: %+v %v", gotK, d.Err())
	}
	g, gotG := Grant{testSequencer, 55}, Grant{}
	d = wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { appendGrant(e, &g) }))
	if decodeGrant(&d, &gotG); d.Err() != nil || gotG != g {
		t.Errorf("grant: %+v %v", gotG, d.Err())
	}
}

// Results of a later version have unknown keys, elements and kinds.
func TestResultsOfLaterVersions(t *testing.T) {
	var e wire.Encoder
	wiretest.Any(&e, map[string]any{
		"term": 3, "first": 1, "new": []any{1}, "lease_ms": 10, "events": []any{[]any{4096, "/p", "", 0, "new"}, []any{1, "/q"}},
	})
	var k KeepAliveResponse
	d := wire.NewDecoder(e.Bytes())
	decodeKeepAlive(&d, &k)
	if want := []Event{{Path: "/p"}, {Kind: ContentsChanged, Path: "/q"}}; d.Err() != nil || !reflect.DeepEqual(k.Events, want) {
		t.Errorf("%+v %v", k, d.Err())
	}
}

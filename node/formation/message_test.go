package formation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/steledb/stele/internal/wire"
)

var unexported = cmp.AllowUnexported(hello{}, candidate{}, promiseRequest{}, promiseAnswer{}, joinRequest{}, joinAnswer{})

// message is any of the messages.
type message interface {
	append(e *wire.Encoder)
	decode(d *wire.Decoder) error
}

func messages() []message {
	p, q := Peer{ID: "n1", Name: "a", RPC: "h:1", Gossip: "h:2"}, Peer{ID: "n2", RPC: "h:3"}
	return []message{
		&hello{}, &hello{
			Peer: p, version: "v1", cluster: "c", raftEpoch: 3, expect: 5, key: []byte{1, 2}, attempt: 7, active: true, promised: "n3",
			fresh: []candidate{{q, 5}, {p, 4}}, members: []Peer{p, q},
		},
		&promiseRequest{founder: p, expect: 3, key: []byte{9}, attempt: 1 << 40},
		&promiseAnswer{node: "n1", granted: true, attempt: 2}, &promiseAnswer{node: "n1", to: q, cluster: "c"},
		&joinRequest{Peer: p, cluster: "c", key: []byte{1}},
		&joinAnswer{cluster: "c", raftEpoch: 1, members: []Peer{q}},
	}
}

func blank(m message) message {
	switch m.(type) {
	case *hello:
		return &hello{}
	case *promiseRequest:
		return &promiseRequest{}
	case *promiseAnswer:
		return &promiseAnswer{}
	case *joinRequest:
		return &joinRequest{}
	}
	return &joinAnswer{}
}

func TestMessages(t *testing.T) {
	for _, m := range messages() {
		var e wire.Encoder
		m.append(&e)
		d, got := wire.NewDecoder(e.Bytes()), blank(m)
		if err := got.decode(&d); err != nil || d.More() {
			t.Errorf("%+v: %v", m, err)
		}
		if diff := cmp.Diff(m, got, unexported); diff != "" {
			t.Errorf("%T: %s", m, diff)
		}
	}
}

// TestUnknownKeys: unknown keys of later versions are skipped.
func TestUnknownKeys(t *testing.T) {
	var e wire.Encoder
	e.Map(2)
	e.Str("shoe_size")
	e.Array(2)
	e.Int(43)
	e.Nil()
	e.Str("id")
	e.Str("n1")
	for _, m := range []message{&hello{}, &joinRequest{}, &promiseRequest{}} {
		d := wire.NewDecoder(e.Bytes())
		if err := m.decode(&d); err != nil || d.More() {
			t.Errorf("%T: %v", m, err)
		}
	}
}

func FuzzMessages(f *testing.F) {
	for i, m := range messages() {
		var e wire.Encoder
		m.append(&e)
		f.Add(i, e.Bytes())
	}
	f.Fuzz(func(t *testing.T, i int, b []byte) {
		all := messages()
		m := blank(all[uint(i)%uint(len(all))])
		if _, err := wire.Check(b, wire.Limits{}); err != nil {
			return
		}
		d := wire.NewDecoder(b)
		_ = m.decode(&d)
	})
}

func TestAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		"h": "h:7106", "h:1": "h:1", "10.0.0.1": "10.0.0.1:7106", "::1": "[::1]:7106", "[::1]": "[::1]:7106", "[::1]:5": "[::1]:5", "h:": "h:7106",
		"": "", ":1": "",
	} {
		got, err := WithPort(addr)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, %v, want %q", addr, got, err, want)
		}
	}
}

package api

import (
	"bytes"
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// FuzzRequest feeds bytes to the decoder of each method. What it accepts must survive
// being written and read again; what it refuses must be the client's fault; and no
// input may cost much more memory than its own size (M1, M2).
func FuzzRequest(f *testing.F) {
	for i := range shapes {
		for _, g := range goldens {
			if g.shape == &shapes[i] {
				f.Add(uint8(i), unhex(f, g.hex))
			}
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, params []byte) {
		method := shapes[int(i)%len(shapes)].method
		r, err := decodeRequest(method, params)
		if err != nil {
			if code := ToRPC(err).Code; code == rpc.CodeInternal && err.Error() != "bytes are left" {
				t.Fatalf("internal error %v", err)
			}
			return
		}
		once := encode(r.append)
		if len(once) > 2*len(params)+64 {
			t.Fatalf("%d bytes became %d", len(params), len(once))
		}
		again, err := decodeRequest(method, once)
		if err != nil {
			t.Fatalf("what was decoded from %x is written as %x: %v", params, once, err)
		}
		if twice := encode(again.append); !bytes.Equal(once, twice) {
			t.Fatalf("written as %x, then as %x", once, twice)
		}
	})
}

// fuzzResult feeds bytes to a decoder of results, and writes and reads again what it
// accepts.
func fuzzResult[R any](f *testing.F, read func(*wire.Decoder, *R), write func(*wire.Encoder, *R)) {
	f.Fuzz(func(t *testing.T, b []byte) {
		var r R
		d := wire.NewDecoder(b)
		if read(&d, &r); d.Err() != nil {
			return
		}
		once := encode(func(e *wire.Encoder) { write(e, &r) })
		var again R
		d = wire.NewDecoder(once)
		if read(&d, &again); d.Err() != nil {
			t.Fatalf("%+v is written as %x: %v", r, once, d.Err())
		}
		if twice := encode(func(e *wire.Encoder) { write(e, &again) }); !bytes.Equal(once, twice) {
			t.Fatalf("written as %x, then as %x", once, twice)
		}
	})
}

type fileAndLeave struct {
	File
	leave CacheLeave
}

func FuzzFile(f *testing.F) {
	s := Stat{Path: "/a", Generation: 5, Lock: Shared, Holders: []SessionID{1, 2}, ACL: "x"}
	f.Add(encode(func(e *wire.Encoder) { appendStat(e, &s, []byte("d"), true, CacheLeave{true, 1, 2}) }))
	fuzzResult(f, func(d *wire.Decoder, r *fileAndLeave) { decodeStat(d, &r.File, &r.leave) },
		func(e *wire.Encoder, r *fileAndLeave) { appendStat(e, &r.Stat, r.Data, true, r.leave) })
}

func FuzzList(f *testing.F) {
	f.Add(encode(func(e *wire.Encoder) { appendStats(e, []Stat{{Path: "/a"}, {Path: "/b", Dir: true}}) }))
	fuzzResult(f, func(d *wire.Decoder, r *[]Stat) { *r = decodeStats(d) }, func(e *wire.Encoder, r *[]Stat) { appendStats(e, *r) })
}

func FuzzKeepAlive(f *testing.F) {
	k := KeepAliveResponse{Lease: 5e9, Term: 3, First: 4, Events: []Event{{Kind: ChildAdded, Path: "/d", Name: "n", Index: 7}}}
	f.Add(encode(func(e *wire.Encoder) { appendKeepAlive(e, &k) }))
	fuzzResult(f, decodeKeepAlive, appendKeepAlive)
}

func FuzzOpened(f *testing.F) {
	f.Add(encode((&opened{5, 2e9}).append))
	fuzzResult(f, func(d *wire.Decoder, o *opened) { o.decode(d) }, func(e *wire.Encoder, o *opened) { o.append(e) })
}

func FuzzGrant(f *testing.F) {
	f.Add(encode(func(e *wire.Encoder) { appendGrant(e, &Grant{testSequencer, 5}) }))
	fuzzResult(f, func(d *wire.Decoder, g *Grant) {
		decodeGrant(d, g)
		if g.Sequencer.Path == "" && d.Err() == nil { // a map without a sequencer
			d.Fail(ErrBadPath)
		}
	}, appendGrant)
}

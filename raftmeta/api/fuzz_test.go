package api

import (
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
)

// FuzzRequest feeds bytes to the decoder of each method. An accepted request must be equal after
// encoding and decoding it again, a rejection must be the client's fault, and no input may allocate
// much more than its own size (RA1, RA2).
func FuzzRequest(f *testing.F) {
	for i := range shapes {
		for _, g := range goldens {
			if g.shape == &shapes[i] {
				f.Add(uint8(i), wiretest.Unhex(f, g.hex))
			}
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, params []byte) {
		method := shapes[int(i)%len(shapes)].method
		err := wiretest.RoundTrip(t, params, func(b []byte) ([]byte, error) {
			r, err := decodeRequest(method, b)
			if err != nil {
				return nil, err
			}
			return wiretest.Encode(r.append), nil
		})
		if err != nil && ToRPC(err).Code == rpc.CodeInternal && err.Error() != "bytes are left" {
			t.Fatalf("internal error %v", err)
		}
	})
}

type fileAndPermission struct {
	File
	perm CachePermission
}

func FuzzFile(f *testing.F) {
	s := Stat{Path: "/a", Generation: 5, Lock: Shared, Holders: []SessionID{1, 2}, ACL: "x"}
	f.Add(wiretest.Encode(func(e *wire.Encoder) { appendStat(e, &s, []byte("d"), true, CachePermission{true, 1, 2}) }))
	wiretest.FuzzResult(f, func(d *wire.Decoder, r *fileAndPermission) { decodeStat(d, &r.File, &r.perm) },
		func(e *wire.Encoder, r *fileAndPermission) { appendStat(e, &r.Stat, r.Data, true, r.perm) })
}

func FuzzList(f *testing.F) {
	f.Add(wiretest.Encode(func(e *wire.Encoder) { appendStats(e, []Stat{{Path: "/a"}, {Path: "/b", Dir: true}}) }))
	wiretest.FuzzResult(f, func(d *wire.Decoder, r *[]Stat) { *r = decodeStats(d) }, func(e *wire.Encoder, r *[]Stat) { appendStats(e, *r) })
}

func FuzzKeepAlive(f *testing.F) {
	k := KeepAliveResponse{Lease: 5e9, Term: 3, First: 4, Events: []Event{{Kind: ChildAdded, Path: "/d", Name: "n", Index: 7}}}
	f.Add(wiretest.Encode(func(e *wire.Encoder) { appendKeepAlive(e, &k) }))
	wiretest.FuzzResult(f, decodeKeepAlive, appendKeepAlive)
}

func FuzzOpened(f *testing.F) {
	f.Add(wiretest.Encode((&opened{5, 2e9}).append))
	wiretest.FuzzResult(f, func(d *wire.Decoder, o *opened) { o.decode(d) }, func(e *wire.Encoder, o *opened) { o.append(e) })
}

func FuzzGrant(f *testing.F) {
	f.Add(wiretest.Encode(func(e *wire.Encoder) { appendGrant(e, &Grant{testSequencer, 5}) }))
	wiretest.FuzzResult(f, func(d *wire.Decoder, g *Grant) {
		decodeGrant(d, g)
		if g.Sequencer.Path == "" && d.Err() == nil { // a map without a sequencer
			d.Fail(ErrBadPath)
		}
	}, appendGrant)
}

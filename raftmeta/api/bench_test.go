package api

import (
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// benchmark measures encoding and decoding a message.
func benchmark(b *testing.B, write func(*wire.Encoder), read func(*wire.Decoder)) {
	e := wire.GetEncoder()
	defer e.Release()
	b.ReportAllocs()
	for b.Loop() {
		e.Reset()
		write(e)
		d := wire.NewDecoder(e.Bytes())
		if read(&d); d.Err() != nil {
			b.Fatal(d.Err())
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, r := range []request{
		{shape: shapeOf[MethodKeepAlive], session: 300, term: 2, acked: 9, hang: 1500 * time.Millisecond},
		{shape: shapeOf[MethodAcquire], session: 300, path: "/servers/n1", mode: Exclusive, wait: 10 * time.Second, delay: time.Second, node: true},
	} {
		b.Run(r.method, func(b *testing.B) {
			benchmark(b, r.append, func(d *wire.Decoder) {
				back := request{shape: r.shape}
				_ = back.decode(d, d.Array())
			})
		})
	}
}

func BenchmarkFile(b *testing.B) {
	f := File{Stat: Stat{Path: "/servers/n1", Instance: 1 << 20, Generation: 1 << 21, LockGeneration: 1 << 21, Bytes: 100, Lock: Exclusive, Holders: []SessionID{300}}, Data: make([]byte, 100)}
	benchmark(b, func(e *wire.Encoder) { appendStat(e, &f.Stat, f.Data, true, CachePermission{true, 2, 9}) },
		func(d *wire.Decoder) {
			var back File
			var leave CachePermission
			decodeStat(d, &back, &leave)
		})
}

func BenchmarkKeepAlive(b *testing.B) {
	k := KeepAliveResponse{Lease: 5e9, Term: 3, First: 4, Events: []Event{{Kind: ChildAdded, Path: "/d", Name: "n", Index: 7}, {Kind: CacheInvalid, Path: "/e"}}}
	benchmark(b, func(e *wire.Encoder) { appendKeepAlive(e, &k) }, func(d *wire.Decoder) {
		var back KeepAliveResponse
		decodeKeepAlive(d, &back)
	})
}

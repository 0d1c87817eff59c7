package api

import (
	"testing"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
)

// benchmark measures encoding and decoding a message.
func benchmark(b *testing.B, write func(*wire.Encoder), read func(d *wire.Decoder, n int) error) {
	e := wire.GetEncoder()
	defer e.Release()
	b.ReportAllocs()
	for b.Loop() {
		e.Reset()
		write(e)
		d := wire.NewDecoder(e.Bytes())
		if err := read(&d, d.Array()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, r := range []request{
		{shape: shapeOf[MethodPiece], stream: testStream, offset: 65536, data: make([]byte, 4096)},
		{shape: shapeOf[MethodRead], extent: testExtent, crc: 8, offset: 9, count: 10},
		{shape: shapeOf[MethodSeal], stream: testStream, length: 300, crc: 0xdeadbeef, last: true, holders: testHolders},
	} {
		b.Run(r.method, func(b *testing.B) {
			benchmark(b, r.append, func(d *wire.Decoder, n int) error {
				back := request{shape: r.shape}
				return back.decode(d, n)
			})
		})
	}
	for _, r := range []logRequest{
		{logShape: logShapeOf(MethodLogAppend), log: local.ID{1}, seq: 2, epoch: 3, start: 4096, pos: 8192, frames: make([]byte, 4096)},
		{logShape: logShapeOf(MethodLogOpen), log: local.ID{1}, server: "n1", seq: 2, epoch: 3, salt: 1 << 63},
	} {
		b.Run(r.method, func(b *testing.B) {
			benchmark(b, r.append, func(d *wire.Decoder, n int) error {
				back := logRequest{logShape: r.logShape}
				return back.decode(d, n)
			})
		})
	}
	r := gcRequest{gcShape: gcShapeOf(MethodSweepJudge), round: 7, extent: testExtent, extents: []local.ExtentID{testExtent, {Index: 1}}}
	b.Run(r.method, func(b *testing.B) {
		benchmark(b, r.append, func(d *wire.Decoder, n int) error {
			back := gcRequest{gcShape: r.gcShape}
			return back.decode(d, n)
		})
	})
}

func BenchmarkList(b *testing.B) {
	infos := make([]local.ExtentInfo, 100)
	for i := range infos {
		infos[i] = local.ExtentInfo{ID: local.ExtentID{Blob: local.ID{1}, Index: i}, Length: 1 << 20, Holders: testHolders}
	}
	benchmarkList(b, func(e *wire.Encoder) { appendInfos(e, infos) }, func(d *wire.Decoder) { decodeInfos(d) })
}

func BenchmarkHeld(b *testing.B) {
	held := make([]Held, 100)
	for i := range held {
		held[i] = Held{State: Good, Length: 1 << 20, Holders: testHolders}
	}
	benchmarkList(b, func(e *wire.Encoder) { appendHeld(e, held) }, func(d *wire.Decoder) { decodeHeld(d) })
}

func benchmarkList(b *testing.B, write func(*wire.Encoder), read func(*wire.Decoder)) {
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

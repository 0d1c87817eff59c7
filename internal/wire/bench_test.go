package wire

import (
	"bytes"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

var (
	benchKey   = []byte("com.cnn.www/index.html")
	benchValue = make([]byte, 100)
)

// encodeRow writes a row of five cells.
func encodeRow(e *Encoder) {
	e.Array(2)
	e.Bin(benchKey)
	e.Array(5)
	for i := range 5 {
		e.Array(4)
		e.Str("contents")
		e.Bin(benchKey[:8])
		e.Int(1_700_000_000_000_000 + int64(i))
		e.Bin(benchValue)
	}
}

func BenchmarkEncodeRow(b *testing.B) {
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e := GetEncoder()
			encodeRow(e)
			e.Release()
		}
	})
	b.Run("msgpack", func(b *testing.B) {
		b.ReportAllocs()
		var buf bytes.Buffer
		m := msgpack.NewEncoder(&buf)
		for b.Loop() {
			buf.Reset()
			_ = m.EncodeArrayLen(2)
			_ = m.EncodeBytes(benchKey)
			_ = m.EncodeArrayLen(5)
			for i := range 5 {
				_ = m.EncodeArrayLen(4)
				_ = m.EncodeString("contents")
				_ = m.EncodeBytes(benchKey[:8])
				_ = m.EncodeInt(1_700_000_000_000_000 + int64(i))
				_ = m.EncodeBytes(benchValue)
			}
		}
	})
}

func BenchmarkCheckRow(b *testing.B) {
	var e Encoder
	encodeRow(&e)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Check(e.Bytes(), Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeRow(b *testing.B) {
	var e Encoder
	encodeRow(&e)
	b.ReportAllocs()
	for b.Loop() {
		d := NewDecoder(e.Bytes())
		d.Array()
		d.Bytes()
		for range d.Array() {
			d.Array()
			d.Bytes()
			d.Bytes()
			d.Int()
			d.Bytes()
		}
		if d.Err() != nil {
			b.Fatal(d.Err())
		}
	}
}

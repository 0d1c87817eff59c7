package wire

import (
	"encoding/binary"
	"math"
	"testing"
)

// TestWholeFloats: a whole-number float is read as an integer, whatever its width. One with a
// fraction, or above SafeIntegerMax, is rejected.
func TestWholeFloats(t *testing.T) {
	wide := func(f float64) []byte { return binary.BigEndian.AppendUint64([]byte{0xcb}, math.Float64bits(f)) }
	narrow := func(f float32) []byte { return binary.BigEndian.AppendUint32([]byte{0xca}, math.Float32bits(f)) }
	for _, f := range []float64{0, math.Copysign(0, -1), 1, -1, 7, -33, 1 << 24, -(1 << 31), 1_795_000_000_000_000, SafeIntegerMax, -SafeIntegerMax} {
		forms := [][]byte{wide(f)}
		if float64(float32(f)) == f {
			forms = append(forms, narrow(float32(f)))
		}
		for _, b := range forms {
			d := NewDecoder(b)
			if got := d.Int(); got != int64(f) || d.Err() != nil || d.More() {
				t.Errorf("%v as %x: %d, %v", f, b, got, d.Err())
			}
			d = NewDecoder(b)
			if got := d.Uint(); f < 0 != (d.Err() != nil) || f >= 0 && got != uint64(f) {
				t.Errorf("%v as %x unsigned: %d, %v", f, b, got, d.Err())
			}
		}
	}
	for _, b := range [][]byte{
		wide(0.5), wide(-1.5), wide(1 << 53), wide(-(1 << 53)), wide(1e300), wide(math.Inf(1)), wide(math.Inf(-1)), wide(math.NaN()),
		narrow(0.5), narrow(1 << 53), narrow(float32(math.Inf(1))), narrow(float32(math.NaN())), {0xcb, 0, 0}, {0xca},
	} {
		d := NewDecoder(b)
		if got := d.Int(); got != 0 || d.Err() == nil {
			t.Errorf("%x is read as %d", b, got)
		}
		d = NewDecoder(b)
		if got := d.Uint(); got != 0 || d.Err() == nil {
			t.Errorf("%x is read as %d unsigned", b, got)
		}
	}
}

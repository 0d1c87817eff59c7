package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// walk decodes one value with typed reads, so that every read method sees every encoding.
func walk(d *Decoder, depth int) {
	switch d.Peek() {
	case KindNil:
		d.IsNil()
	case KindBool:
		d.Bool()
	case KindInt:
		c := *d
		if c.Int(); c.Err() != nil {
			d.Uint()
		} else {
			d.Int()
		}
	case KindFloat:
		d.Float()
	case KindBytes:
		d.Bytes()
	case KindStr:
		_ = d.Str()
	case KindArray:
		for range d.Array() {
			walk(d, depth+1)
		}
	case KindMap:
		for range d.Map() {
			walk(d, depth+1)
			walk(d, depth+1)
		}
	default:
		d.Skip()
	}
}

// genValue draws a tree of the types that both codecs support.
func genValue(t *rapid.T, depth int) any {
	kinds := 8
	if depth > 4 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return rapid.Float64().Draw(t, "float")
	case 4:
		return rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bin")
	case 5:
		return rapid.StringN(0, 300, -1).Draw(t, "str")
	case 6:
		a := make([]any, rapid.IntRange(0, 20).Draw(t, "array"))
		for i := range a {
			a[i] = genValue(t, depth+1)
		}
		return a
	default:
		m := map[string]any{}
		for range rapid.IntRange(0, 20).Draw(t, "map") {
			m[rapid.String().Draw(t, "key")] = genValue(t, depth+1)
		}
		return m
	}
}

func encode(e *Encoder, v any) {
	switch v := v.(type) {
	case nil:
		e.Nil()
	case bool:
		e.Bool(v)
	case int64:
		e.Int(v)
	case float64:
		e.Float(v)
	case []byte:
		e.Bin(v)
	case string:
		e.Str(v)
	case []any:
		e.Array(len(v))
		for _, x := range v {
			encode(e, x)
		}
	case map[string]any:
		e.Map(len(v))
		for k, x := range v {
			e.Str(k)
			encode(e, x)
		}
	}
}

func decode(d *Decoder) any {
	switch d.Peek() {
	case KindNil:
		d.IsNil()
		return nil
	case KindBool:
		return d.Bool()
	case KindInt:
		return d.Int()
	case KindFloat:
		return d.Float()
	case KindBytes:
		return bytes.Clone(d.Bytes())
	case KindStr:
		return d.Str()
	case KindArray:
		a := make([]any, d.Array())
		for i := range a {
			a[i] = decode(d)
		}
		return a
	default:
		m := map[string]any{}
		for range d.Map() {
			k := d.Str()
			m[k] = decode(d)
		}
		return m
	}
}

// equal compares trees. It compares integers by value, since the msgpack package chooses its own
// types.
func equal(a, b any) bool {
	switch a := a.(type) {
	case int64:
		v := reflect.ValueOf(b)
		return v.CanInt() && v.Int() == a || v.CanUint() && a >= 0 && v.Uint() == uint64(a)
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	case float64:
		b, ok := b.(float64)
		return ok && math.Float64bits(a) == math.Float64bits(b)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k := range a {
			if _, ok := b[k]; !ok || !equal(a[k], b[k]) {
				return false
			}
		}
		return true
	}
	return a == b
}

// W3, in both directions, against the msgpack package.
func TestRoundTripAgainstMsgpack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := genValue(t, 0)
		e := GetEncoder()
		defer e.Release()
		encode(e, v)
		if n, err := Check(e.Bytes(), Limits{}); err != nil || n != e.Len() {
			t.Fatalf("check own bytes: %d of %d, %v", n, e.Len(), err)
		}
		m := msgpack.NewDecoder(bytes.NewReader(e.Bytes()))
		theirs, err := m.DecodeInterface()
		if err != nil || !equal(v, theirs) {
			t.Fatalf("they read %#v, %v, want %#v", theirs, err, v)
		}
		var buf bytes.Buffer
		encoder := msgpack.NewEncoder(&buf)
		encoder.UseCompactInts(true)
		if err := encoder.Encode(v); err != nil {
			t.Fatal(err)
		}
		b := buf.Bytes()
		n, err := Check(b, Limits{})
		if err != nil || n != len(b) {
			t.Fatalf("check their bytes: %d of %d, %v", n, len(b), err)
		}
		d := NewDecoder(b)
		ours := decode(&d)
		if d.Err() != nil || d.More() || !equal(v, ours) {
			t.Fatalf("we read %#v, %v, want %#v", ours, d.Err(), v)
		}
	})
}

func TestEncoderForms(t *testing.T) {
	big := strings.Repeat("x", 1<<16)
	for _, c := range []struct {
		name string
		enc  func(e *Encoder)
		want string // hex of the first bytes
		n    int
	}{
		{"nil", func(e *Encoder) { e.Nil() }, "c0", 1},
		{"true", func(e *Encoder) { e.Bool(true) }, "c3", 1},
		{"false", func(e *Encoder) { e.Bool(false) }, "c2", 1},
		{"fixint", func(e *Encoder) { e.Int(127) }, "7f", 1},
		{"uint8", func(e *Encoder) { e.Int(128) }, "cc80", 2},
		{"uint16", func(e *Encoder) { e.Int(256) }, "cd0100", 3},
		{"uint32", func(e *Encoder) { e.Int(65536) }, "ce00010000", 5},
		{"uint64", func(e *Encoder) { e.Uint(math.MaxUint64) }, "cfffffffffffffffff", 9},
		{"negative fixint", func(e *Encoder) { e.Int(-32) }, "e0", 1},
		{"int8", func(e *Encoder) { e.Int(-33) }, "d0df", 2},
		{"int16", func(e *Encoder) { e.Int(-129) }, "d1ff7f", 3},
		{"int32", func(e *Encoder) { e.Int(-32769) }, "d2ffff7fff", 5},
		{"int64", func(e *Encoder) { e.Int(math.MinInt64) }, "d38000000000000000", 9},
		{"float", func(e *Encoder) { e.Float(1.5) }, "cb3ff8000000000000", 9},
		{"bin8", func(e *Encoder) { e.Bin([]byte("ab")) }, "c4026162", 4},
		{"bin16", func(e *Encoder) { e.Bin([]byte(big[:256])) }, "c50100", 259},
		{"bin32", func(e *Encoder) { e.Bin([]byte(big)) }, "c600010000", 65541},
		{"fixstr", func(e *Encoder) { e.Str("ab") }, "a26162", 3},
		{"str8", func(e *Encoder) { e.Str(big[:32]) }, "d920", 34},
		{"str16", func(e *Encoder) { e.Str(big[:256]) }, "da0100", 259},
		{"str32", func(e *Encoder) { e.Str(big) }, "db00010000", 65541},
		{"fixarray", func(e *Encoder) { e.Array(15) }, "9f", 1},
		{"array16", func(e *Encoder) { e.Array(16) }, "dc0010", 3},
		{"array32", func(e *Encoder) { e.Array(65536) }, "dd00010000", 5},
		{"fixmap", func(e *Encoder) { e.Map(15) }, "8f", 1},
		{"map16", func(e *Encoder) { e.Map(16) }, "de0010", 3},
		{"map32", func(e *Encoder) { e.Map(65536) }, "df00010000", 5},
		{"patched array", func(e *Encoder) { m := e.ReserveArray32(); e.Nil(); e.SetArray32(m, 1) }, "dd00000001c0", 6},
	} {
		var e Encoder
		c.enc(&e)
		want, _ := hex.DecodeString(c.want)
		if !bytes.HasPrefix(e.Bytes(), want) || e.Len() != c.n {
			t.Errorf("%s: %d bytes % x, want %d bytes % x", c.name, e.Len(), e.Bytes()[:min(9, e.Len())], c.n, want)
		}
	}
}

func TestCheckOne(t *testing.T) {
	var bad *FormatError
	for in, want := range map[string]int{"\x01": -1, "\x92\x01\x02": -1, "\x01\x02": 1, "\x92\x01\x02\x90\x90": 3, "\xc1": 0} {
		err := CheckOne([]byte(in), Limits{})
		if want < 0 && err != nil || want >= 0 && (!errors.As(err, &bad) || bad.Offset != want) {
			t.Errorf("%x: %v", in, err)
		}
	}
	if err := CheckOne([]byte("\x92\x01"), Limits{}); err != ErrIncomplete {
		t.Errorf("half an array: %v", err)
	}
}

func TestCheckRefuses(t *testing.T) {
	deep := bytes.Repeat([]byte{0x91}, 40)
	for _, c := range []struct {
		name   string
		in     []byte
		lim    Limits
		offset int // -1: ErrIncomplete
	}{
		{"empty", nil, Limits{}, -1},
		{"half a header", []byte{0xda, 1}, Limits{}, -1},
		{"half a string", []byte{0xa3, 'a', 'b'}, Limits{}, -1},
		{"half an array", []byte{0x92, 1}, Limits{}, -1},
		{"half an int", []byte{0xcf, 1}, Limits{}, -1},
		{"0xc1", []byte{0x91, 0xc1}, Limits{}, 1},
		{"depth 33", deep, Limits{}, 32},
		{"depth 5", deep, Limits{Depth: 4}, 4},
		{"array of 4 G", []byte{0xdd, 255, 255, 255, 255}, Limits{}, 0},
		{"map of 4 G", []byte{0xdf, 255, 255, 255, 255}, Limits{}, 0},
		{"bin of 4 G", []byte{0x91, 0xc6, 255, 255, 255, 255}, Limits{}, 1},
		{"ext of 4 G", []byte{0xc9, 255, 255, 255, 255, 1}, Limits{}, 0},
		{"string over limit", []byte{0x91, 0xa5, 'a'}, Limits{Bytes: 6}, 1},
		{"int over limit", []byte{0xcf}, Limits{Bytes: 8}, 0},
		{"values over limit", []byte{0x94, 1, 2}, Limits{Bytes: 4}, 0},
	} {
		_, err := Check(c.in, c.lim)
		var bad *FormatError
		switch {
		case c.offset < 0 && err != ErrIncomplete:
			t.Errorf("%s: %v, want ErrIncomplete", c.name, err)
		case c.offset >= 0 && (!errors.As(err, &bad) || bad.Offset != c.offset):
			t.Errorf("%s: %v, want an error at byte %d", c.name, err, c.offset)
		}
	}
	if n, err := Check(append(bytes.Repeat([]byte{0x91}, 32), 0x90)[1:], Limits{}); n != 32 || err != nil {
		t.Errorf("depth 32: %d, %v", n, err)
	}
	if n, err := Check([]byte{0xa5, 'a', 'b', 'c', 'd', 'e', 1}, Limits{Bytes: 6}); n != 6 || err != nil {
		t.Errorf("exactly the limit: %d, %v", n, err)
	}
}

// W2: false sizes cost nothing.
func TestHostileSizesAllocateNothing(t *testing.T) {
	for _, in := range [][]byte{
		{0xdd, 0, 255, 255, 255, 1, 2, 3},
		{0xdf, 0, 255, 255, 255, 1, 2, 3},
		{0xc6, 0, 255, 255, 255, 1, 2, 3},
		{0xc9, 0, 255, 255, 255, 1, 2, 3},
		bytes.Repeat([]byte{0x91}, 1<<20),
	} {
		got := testing.AllocsPerRun(20, func() {
			_, _ = Check(in, Limits{})
			d := NewDecoder(in)
			if d.Array(); d.Err() == nil {
				d.Skip()
			}
			d = NewDecoder(in)
			d.Map()
			d = NewDecoder(in)
			d.Bytes()
		})
		// The errors themselves, 2 to 6 of them with their texts.
		if got > 12 {
			t.Errorf("% x: %v allocations", in[:8], got)
		}
	}
}

func TestDecoderErrorSticks(t *testing.T) {
	d := NewDecoder([]byte{0x93, 1, 0xa1, 'x', 3})
	d.Array()
	if d.Int() != 1 || d.Int() != 0 || d.Err() == nil {
		t.Fatalf("string read as int: %v", d.Err())
	}
	first := d.Err()
	if d.More() || d.Peek() != KindEnd || d.Int() != 0 || d.Bytes() != nil || d.Array() != 0 || d.Err() != first {
		t.Errorf("reads after an error: %v", d.Err())
	}
	var bad *FormatError
	if !errors.As(first, &bad) || bad.Offset != 2 {
		t.Errorf("error %v, want offset 2", first)
	}
	d = NewDecoder([]byte{0x92, 1, 2})
	if d.ArrayMax(1) != 0 || d.Err() == nil {
		t.Error("count over ArrayMax accepted")
	}
	d = NewDecoder([]byte{1, 2})
	d.Int()
	d.Fail(errors.ErrUnsupported)
	if d.More() || !errors.Is(d.Err(), errors.ErrUnsupported) {
		t.Error("Fail did not stick")
	}
}

func TestDecoderNumbers(t *testing.T) {
	for in, want := range map[string]int64{
		"7f": 127, "e0": -32, "cc80": 128, "cd0100": 256, "ce00010000": 65536, "cf7fffffffffffffff": math.MaxInt64,
		"d080": -128, "d18000": -32768, "d280000000": math.MinInt32, "d38000000000000000": math.MinInt64,
		"d07f": 127, "d10001": 1, "cf0000000000000001": 1,
	} {
		b, _ := hex.DecodeString(in)
		d := NewDecoder(b)
		if got := d.Int(); got != want || d.Err() != nil || d.More() {
			t.Errorf("%s: %d, %v, want %d", in, got, d.Err(), want)
		}
		d = NewDecoder(b)
		if got := d.Uint(); (want < 0) != (d.Err() != nil) || want >= 0 && got != uint64(want) {
			t.Errorf("%s unsigned: %d, %v", in, got, d.Err())
		}
		d = NewDecoder(b)
		if got := d.Float(); got != float64(want) || d.Err() != nil {
			t.Errorf("%s as float: %v, %v", in, got, d.Err())
		}
	}
	d := NewDecoder([]byte{0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0})
	if d.Int(); d.Err() == nil {
		t.Error("2^63 read as int64")
	}
	d = NewDecoder([]byte{0xca, 0x3f, 0xc0, 0, 0})
	if got := d.Float(); got != 1.5 {
		t.Errorf("float32: %v", got)
	}
}

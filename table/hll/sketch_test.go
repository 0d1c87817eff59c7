package hll

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/testseed"
)

// splitMix is the output of SplitMix64 for n.
func splitMix(n int64) int64 {
	z := uint64(n+1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int64(z ^ z>>31)
}

// sketchOf returns the sketch of a set of testdata/Vectors.java.
func sketchOf(t testing.TB, set string) []byte {
	t.Helper()
	p := strings.Split(set, ":")
	first, err1 := strconv.ParseInt(p[1], 10, 64)
	count, err2 := strconv.ParseInt(p[2], 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatalf("set %q: %v, %v", set, err1, err2)
	}
	var s Sketch
	for i := range count {
		if n := first + i; p[0] == "mix" {
			s.Add(splitMix(n))
		} else {
			s.Add(n)
		}
	}
	return s.Append(nil)
}

// TestVectors: sketches and merges are those of Google's library, byte for byte, and estimates are near them.
func TestVectors(t *testing.T) {
	file, err := os.Open("testdata/vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines, worst := 0, 0.0
	for in := bufio.NewScanner(file); in.Scan(); lines++ {
		sets, wants, _ := strings.Cut(in.Text(), " = ")
		var s Sketch
		for set := range strings.FieldsSeq(sets) {
			if err := s.Merge(sketchOf(t, set)); err != nil {
				t.Fatal(err)
			}
		}
		want, got := strings.Fields(wants), s.Append(nil)
		sum := sha256.Sum256(got)
		if strconv.Itoa(len(got)) != want[0] || hex.EncodeToString(sum[:]) != want[1] {
			t.Errorf("%s: %d bytes %.40x, want %s %s", sets, len(got), got, want[0], want[1:])
		}
		if err := Check(got); err != nil {
			t.Errorf("%s: %v", sets, err)
		}
		estimate, err := strconv.ParseFloat(want[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		if s.normal == nil && float64(s.Estimate()) != estimate {
			t.Errorf("%s: estimate %d, want %v", sets, s.Estimate(), estimate)
		}
		worst = max(worst, math.Abs(float64(s.Estimate())-estimate)/max(estimate, 1))
	}
	t.Logf("estimates differ by at most %.3f%%", 100*worst)
	if lines < 70 || worst > 0.005 {
		t.Errorf("%d lines, estimates differ by %.3f%%", lines, 100*worst)
	}
}

// TestMergeOrder: a merge has the same bytes in any order and grouping, also of sketches that hardly become normal, and of equal indexes with
// different rho.
func TestMergeOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 1))
	for round := range 30 {
		var parts [][]byte
		for range 2 + r.IntN(6) {
			var s Sketch
			for range []int{1, 100, 3600, 5000}[r.IntN(4)] {
				v := sparseOf(r.Uint64())
				if v&rhoFlag != 0 || r.IntN(8) == 0 { // few indexes
					v = rhoFlag | uint32(r.IntN(100+round))<<rhoBits | uint32(1+r.IntN(rhoSparseMax))
				}
				s.put(v)
				s.count(uint64(r.IntN(3)))
			}
			if r.IntN(50) == 0 {
				s.sortIn()
				s.normalize()
			}
			parts = append(parts, s.Append(nil))
		}
		want := mergeRandomly(t, r, parts)
		if got := mergeRandomly(t, r, parts); !bytes.Equal(got, want) {
			t.Fatalf("round %d: %d bytes %.60x, want %d bytes %.60x", round, len(got), got, len(want), want)
		}
	}
}

// mergeRandomly merges sketches in a random order and grouping. It spoils no element of parts.
func mergeRandomly(t *testing.T, r *rand.Rand, parts [][]byte) []byte {
	parts = append([][]byte(nil), parts...)
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for len(parts) > 1 {
		var s Sketch
		n := 2 + r.IntN(len(parts)-1)
		for _, p := range parts[:n] {
			if err := s.Merge(p); err != nil {
				t.Fatal(err)
			}
		}
		parts = append(parts[n:], s.Append(nil))
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	}
	return parts[0]
}

// TestBoundary: at the length at which a sketch becomes normal, whether it does does not depend on the order, even if a larger rho' makes
// the sparse form shorter than three quarters of the registers.
func TestBoundary(t *testing.T) {
	var base []uint32
	for i := uint32(0); len(base) < sparseBytesMax-300; i++ {
		if v := 1 + i; v&extraMask != 0 {
			base = append(base, v)
		}
	}
	length := func(vs []uint32) (n int) {
		var s Sketch
		for _, v := range vs {
			s.put(v)
		}
		s.sortIn()
		last := uint32(0)
		for _, v := range s.sorted {
			n += uvarintLen(uint64(v - last))
			last = v
		}
		if s.normal != nil {
			n = sparseBytesMax
		}
		return n
	}
	// Two values whose difference has two bytes by their indexes, and one byte with the largest rho'.
	small, large := uint32(rhoFlag|100<<rhoBits|1), uint32(rhoFlag|100<<rhoBits|rhoSparseMax)
	next := uint32(rhoFlag | 102<<rhoBits | 1)
	base = append(base, small, next, rhoFlag|199<<rhoBits|1)
	for n, i := length(base), uint32(200); n < sparseBytesMax-1; n, i = n+1, i+1 { // a byte each
		base = append(base, rhoFlag|i<<rhoBits|1)
	}
	if n := length(base); n != sparseBytesMax-1 {
		t.Fatalf("%d bytes", n)
	}
	last := base[len(base)-1] + 1<<rhoBits // one byte more: normal
	orders := [][]uint32{append(base[:len(base):len(base)], last, large), append(base[:len(base):len(base)], large, last)}
	var got [2][]byte
	for i, order := range orders {
		var s Sketch
		for j, v := range order {
			if s.put(v); j >= len(base)-1 {
				s.sortIn()
			}
		}
		got[i] = s.Append(nil)
	}
	if !bytes.Equal(got[0], got[1]) || len(got[0]) < registers {
		t.Errorf("%d and %d bytes, %.40x and %.40x", len(got[0]), len(got[1]), got[0], got[1])
	}
}

// TestValues: the number of values is the sum, and stops at the largest that ZetaSketch can read.
func TestValues(t *testing.T) {
	for _, tc := range [][3]uint64{{1, 2, 3}, {math.MaxInt64, 5, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64}} {
		var s Sketch
		for _, n := range tc[:2] {
			if err := s.Merge(appendHeader(nil, n, 0, fieldSparse, 0)); err != nil {
				t.Fatal(err)
			}
		}
		if p, err := parse(s.Append(nil)); err != nil || p.values != tc[2] {
			t.Errorf("%v: %d, %v", tc, p.values, err)
		}
	}
}

// TestReset: a sketch that was normal is as a new one, and of one value as AppendOne has it.
func TestReset(t *testing.T) {
	var s Sketch
	for n := range int64(30000) {
		s.Add(n)
	}
	for _, n := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		s.Reset()
		s.Add(n)
		if got, want := AppendOne(nil, n), s.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("%d: %x, want %x", n, got, want)
		}
	}
}

// with replaces old by new in a sketch of the value 1.
func with(old, new string) string {
	s := fmt.Sprintf("%x", AppendOne(nil, 1))
	if strings.Count(s, old) != 1 {
		panic("BUG: " + old + " in " + s)
	}
	return strings.Replace(s, old, new, 1)
}

// TestBadSketches: what is no sketch, or one of another kind, is rejected by Check and Merge without memory.
func TestBadSketches(t *testing.T) {
	normal := func(change func([]byte) []byte) string {
		return hex.EncodeToString(change(append(appendHeader(nil, 1, 0, fieldNormal, registers), make([]byte, registers)...)))
	}
	for what, sketch := range map[string]string{
		"empty":                   "",
		"an integer":              "0000000000000001",
		"type":                    with("0870", "0871"),
		"version":                 with("1802", "1801"),
		"version absent":          with("1802", ""),
		"value type string":       with("2008", "200b"),
		"value type absent":       with("2008", ""),
		"precision 14":            with("180f", "180e"),
		"sparse precision 21":     with("2014", "2015"),
		"negative number":         with("70100118", "7010ffffffffffffffffff0118"),
		"number of 11 bytes":      with("70100118", "7010ffffffffffffffffffff0118"),
		"field 0":                 with("0870", "08700201ff"),
		"group":                   with("0870", "08700b0c"),
		"length beyond the end":   with("82070b", "8207ffffffff0f"),
		"inner length too small":  with("82070b", "82070a"),
		"size 0":                  with("82070b1001", "820709"),
		"size 2":                  with("82070b1001", "82070b1002"),
		"truncated sparse value":  "0870100118022008" + "82070a" + "1001180f2014" + "320296a3",
		"sparse value of 23 bits": "0870100118022008" + "82070c" + "1001180f2014" + "3204" + "96a3ae04",
		"sparse value 0":          "0870100118022008" + "820709" + "1001180f2014" + "320100",
		"index that needs rho":    "0870100118022008" + "820709" + "1001180f2014" + "320120",
		"rho 0":                   "0870100118022008" + "82070c" + "1001180f2014" + "3204" + "80808001",
		"rho 46":                  "0870100118022008" + "82070c" + "1001180f2014" + "3204" + "ae808001",
		"index twice":             "0870100218022008" + "82070d" + "1002180f2014" + "3205" + "8180800101",
		"value twice":             "0870100218022008" + "82070a" + "1002180f2014" + "32020100",
		"normal, one byte too few": normal(func(b []byte) []byte {
			return append(appendHeader(nil, 1, 0, fieldNormal, registers-1), b[len(b)-registers+1:]...)
		}),
		"register of 51": normal(func(b []byte) []byte { b[len(b)-1] = 51; return b }),
		"sparse of 32 KiB": hex.EncodeToString(append(appendHeader(nil, 1, registers, fieldSparse, registers+1),
			append([]byte{1, 1}, bytes.Repeat([]byte{1}, registers-1)...)...)),
		"normal and sparse size": normal(func(b []byte) []byte {
			return append(appendHeader(nil, 1, 1, fieldNormal, registers), b[len(b)-registers:]...)
		}),
		"too long": normal(func(b []byte) []byte { return append(append(b, 0x9a, 0x06, 0xec, 0xff, 0x01), make([]byte, 32748)...) }),
	} {
		b, err := hex.DecodeString(sketch)
		if err != nil {
			t.Fatal(err)
		}
		var s Sketch
		if _, err := AppendCanonical(nil, b); !errors.Is(err, ErrBadSketch) {
			t.Errorf("%s: canonical %v", what, err)
		}
		if err := Check(b); !errors.Is(err, ErrBadSketch) {
			t.Errorf("%s: check %v", what, err)
		}
		if err := s.Merge(b); !errors.Is(err, ErrBadSketch) {
			t.Errorf("%s: merge %v", what, err)
		}
	}
}

// TestGoodSketches: unknown fields are skipped, the order of fields is free, and the longest sketch is accepted.
func TestGoodSketches(t *testing.T) {
	want := AppendOne(nil, 1)
	for what, sketch := range map[string]string{
		"itself":         with("0870", "0870"),
		"unknown fields": with("2008", "2008"+"2a03616263"+"3d01020304"+"410102030405060708"+"c83e05"),
		"other order":    "82070b" + "320396a32e" + "2014" + "180f" + "1001" + "2008" + "1802" + "1001" + "0870",
		"int64":          with("2008", "2004"),
		"long":           with("2008", "2008"+"2ac0ff03"+strings.Repeat("00", 65472)),
	} {
		b, err := hex.DecodeString(sketch)
		if err != nil {
			t.Fatal(err)
		}
		var s Sketch
		if err := s.Merge(b); err != nil || !bytes.Equal(s.Append(nil), want) {
			t.Errorf("%s: %x, %v", what, s.Append(nil), err)
		}
		if err := Check(b); err != nil {
			t.Errorf("%s: check %v", what, err)
		}
		if got, err := AppendCanonical([]byte("x"), b); err != nil || string(got) != "x"+string(want) {
			t.Errorf("%s: canonical %x, %v", what, got, err)
		}
	}
}

// TestCheckAllocates: checking a sketch takes no memory, however long it is.
func TestCheckAllocates(t *testing.T) {
	for _, set := range []string{"mix:0:1", "mix:0:20000", "mix:0:40000"} {
		b := sketchOf(t, set)
		if n := testing.AllocsPerRun(10, func() {
			if err := Check(b); err != nil {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", set, n)
		}
	}
}

// TestEstimateIsBounded: registers that no number of values can set have the largest estimate.
func TestEstimateIsBounded(t *testing.T) {
	for rho := byte(1); rho <= rhoMax; rho++ {
		s := &Sketch{normal: bytes.Repeat([]byte{rho}, registers)}
		if n := s.Estimate(); n <= 0 {
			t.Errorf("all registers are %d: %d values", rho, n)
		}
	}
}

// TestEstimateError: the error of estimates of random sets is that of the algorithm: 0.57%, and rarely three times that.
func TestEstimateError(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 2))
	for _, n := range []int64{25000, 60000, 160000, 1000000} {
		var sum, squares float64
		const rounds = 8
		for range rounds {
			var s Sketch
			for range n {
				s.put(sparseOf(r.Uint64()))
			}
			e := float64(s.Estimate())/float64(n) - 1
			sum, squares = sum+e, squares+e*e
		}
		if bias, deviation := sum/rounds, math.Sqrt(squares/rounds); math.Abs(bias) > 0.01 || deviation > 0.013 {
			t.Errorf("%d values: bias %.4f, deviation %.4f", n, bias, deviation)
		}
	}
}

// FuzzMerge: no bytes crash Merge or make a sketch that is not one. What Check accepts, Merge does, and merging it again only counts its values again.
func FuzzMerge(f *testing.F) {
	for _, set := range []string{"mix:0:0", "mix:0:1", "mix:0:3", "seq:5:2000", "seq:5:23000"} {
		f.Add(sketchOf(f, set))
	}
	for _, s := range []string{with("70100118", "7010ffffffffffffffff7f18"), "0870100218022008" + "82070d" + "1002180f2014" + "3205" + "8180800101"} {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var once, twice Sketch
		err := once.Merge(b)
		if checked := Check(b); (checked == nil) != (err == nil) {
			t.Fatalf("merge %v, check %v", err, checked)
		}
		if err != nil {
			return
		}
		for _, part := range [][]byte{b, once.Append(nil)} {
			if err := twice.Merge(part); err != nil {
				t.Fatal(err)
			}
		}
		if n := once.Bytes() + twice.Bytes(); n > 2*400<<10 {
			t.Errorf("%d bytes of memory", n)
		}
		twice.values = once.values
		if got, want := twice.Append(nil), once.Append(nil); !bytes.Equal(got, want) || len(got) > BytesMax {
			t.Errorf("%x, then %x", want, got)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	for _, n := range []int{1, 1000, 20000, 1000000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			var s Sketch
			for i := range b.N {
				if i%n == 0 {
					s.Reset()
				}
				s.Add(int64(i))
			}
		})
	}
}

func BenchmarkAppendOne(b *testing.B) {
	b.ReportAllocs()
	var buf []byte
	for i := range b.N {
		buf = AppendOne(buf[:0], int64(i))
	}
}

// BenchmarkMerge merges a sketch into one of the same number of other values, and encodes it.
func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{1, 1000, 10000, 100000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			one, other := sketchOf(b, "mix:0:"+strconv.Itoa(n)), sketchOf(b, "mix:1000000:"+strconv.Itoa(n))
			b.ReportAllocs()
			var s Sketch
			var buf []byte
			for b.Loop() {
				s.Reset()
				if err := errors.Join(s.Merge(one), s.Merge(other)); err != nil {
					b.Fatal(err)
				}
				buf = s.Append(buf[:0])
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{1, 20000, 100000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			sketch := sketchOf(b, "mix:0:"+strconv.Itoa(n))
			b.ReportAllocs()
			for b.Loop() {
				if err := Check(sketch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

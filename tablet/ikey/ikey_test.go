package ikey

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/steledb/stele/internal/testseed"
)

// entry is the decoded form of a key, to be compared field by field.
type entry struct {
	row, fam, qual []byte
	id             uint32
	kind           Kind
	ts             int64
	seq            uint64
}

func (e entry) encode() []byte {
	k := AppendRow(nil, e.row)
	if e.kind == KindDeleteRow {
		return AppendDeleteRow(k, e.seq)
	}
	k = AppendFamily(k, string(e.fam), e.id)
	if e.kind == KindDeleteFamily {
		return AppendDeleteFamily(k, e.seq)
	}
	k = AppendColumn(k, e.qual)
	if e.kind == KindDeleteColumn {
		return AppendDeleteColumn(k, e.seq)
	}
	if e.kind == KindOperand {
		return AppendOperand(k, e.ts, e.seq)
	}
	return AppendCell(k, e.ts, e.seq)
}

// compare is the order in the package comment, written out.
func compare(a, b entry) int {
	if c := bytes.Compare(a.row, b.row); c != 0 {
		return c
	}
	bySeq := func() int { return cmpInt(b.seq, a.seq) }
	if a.kind == KindDeleteRow || b.kind == KindDeleteRow {
		return first(a.kind == KindDeleteRow, b.kind == KindDeleteRow, bySeq)
	}
	if c := bytes.Compare(a.fam, b.fam); c != 0 {
		return c
	}
	if c := cmpInt(a.id, b.id); c != 0 {
		return c
	}
	if a.kind == KindDeleteFamily || b.kind == KindDeleteFamily {
		return first(a.kind == KindDeleteFamily, b.kind == KindDeleteFamily, bySeq)
	}
	if c := bytes.Compare(a.qual, b.qual); c != 0 {
		return c
	}
	if a.kind == KindDeleteColumn || b.kind == KindDeleteColumn {
		return first(a.kind == KindDeleteColumn, b.kind == KindDeleteColumn, bySeq)
	}
	if c := cmpInt(a.kind, b.kind); c != 0 { // cells before operands, which no column has beside them
		return c
	}
	if c := cmpInt(b.ts, a.ts); c != 0 {
		return c
	}
	return bySeq()
}

func first(a, b bool, tie func() int) int {
	switch {
	case a && b:
		return tie()
	case a:
		return -1
	default:
		return 1
	}
}

func cmpInt[T Kind | uint32 | uint64 | int64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func randomEntry(r *rand.Rand) entry {
	b := func(min int) []byte {
		out := make([]byte, min+r.IntN(4))
		for i := range out {
			out[i] = []byte{0, 1, 2, 'a', 0xFE, 0xFF}[r.IntN(6)]
		}
		return out
	}
	return entry{
		row: b(1), qual: b(0), fam: []byte([]string{"a", "a-", "aa", "b.c"}[r.IntN(4)]),
		id: r.Uint32N(3), kind: Kind(1 + r.IntN(5)), ts: r.Int64N(3), seq: r.Uint64N(4),
	}
}

func TestOrderIsTheMeaning(t *testing.T) {
	seed := testseed.New(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 50_000 {
		a, b := randomEntry(r), randomEntry(r)
		got, want := bytes.Compare(a.encode(), b.encode()), compare(a, b)
		if got != want {
			t.Fatalf("compare %+v, %+v: got %d, want %d (%x, %x)", a, b, got, want, a.encode(), b.encode())
		}
	}
}

func TestSplitRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		e := randomEntry(r)
		k := e.encode()
		p, err := Split(k)
		if err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		got := entry{kind: p.Kind, row: RowKey(k[:p.Row]), seq: Seq(k)}
		want := entry{kind: e.kind, row: e.row, seq: e.seq}
		if e.kind != KindDeleteRow {
			f := k[p.Row:p.Family]
			got.fam, got.id = FamilyName(f), FamilyID(f)
			want.fam, want.id = e.fam, e.id
			if e.kind != KindDeleteFamily {
				got.qual, want.qual = Qualifier(k[p.Family:p.Column]), e.qual
			}
		}
		if e.kind == KindCell || e.kind == KindOperand {
			got.ts, want.ts = Timestamp(k), e.ts
		}
		if got.kind != want.kind || !bytes.Equal(got.row, want.row) || !bytes.Equal(got.fam, want.fam) ||
			got.id != want.id || !bytes.Equal(got.qual, want.qual) || got.ts != want.ts || got.seq != want.seq {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
}

func TestRowEndBoundsTheRow(t *testing.T) {
	rows := [][]byte{{0}, {0, 0}, {0, 1}, {1}, {1, 0}, {1, 0, 0}, {1, 1}, {0xFF}, {0xFF, 0}, {0xFF, 0xFF}}
	for i, row := range rows {
		start, end := AppendRow(nil, row), AppendRowEnd(nil, row)
		for j, other := range rows {
			k := AppendDeleteRow(AppendRow(nil, other), 3)
			inside := bytes.Compare(k, start) >= 0 && bytes.Compare(k, end) < 0
			if inside != (i == j) {
				t.Errorf("row %x: key of row %x inside: %v", row, other, inside)
			}
		}
	}
	if !slices.IsSortedFunc(rows, bytes.Compare) {
		t.Fatal("rows of the test are not in order")
	}
}

func TestGolden(t *testing.T) {
	k := AppendCell(AppendColumn(AppendFamily(AppendRow(nil, []byte("a")), "f", 2), []byte("q")), 5, 7)
	const want = "610001" + "660000000002" + "710001" + "01" + "fffffffffffffffa" + "fffffffffffffff8"
	if got := hex.EncodeToString(k); got != want {
		t.Fatalf("got %s\nwant %s", got, want)
	}
}

func TestGoldenOperand(t *testing.T) {
	k := AppendOperand(AppendColumn(AppendFamily(AppendRow(nil, []byte("a")), "f", 2), []byte("q")), 5, 7)
	const want = "610001" + "660000000002" + "710001" + "02" + "fffffffffffffffa" + "fffffffffffffff8"
	if got := hex.EncodeToString(k); got != want || !IsOperand(k, len(k)-17) || IsDeleteColumn(k, len(k)-17) {
		t.Fatalf("got %s\nwant %s", got, want)
	}
}

func FuzzSplit(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(randomEntry(r).encode())
	}
	f.Fuzz(func(t *testing.T, k []byte) {
		p, err := Split(k)
		if err != nil {
			return
		}
		row := RowKey(k[:p.Row])
		if !bytes.Equal(AppendRow(nil, row), k[:p.Row]) {
			t.Fatalf("row part %x does not round-trip", k[:p.Row])
		}
		if p.Column > p.Family && !bytes.Equal(AppendColumn(nil, Qualifier(k[p.Family:p.Column])), k[p.Family:p.Column]) {
			t.Fatalf("column part %x does not round-trip", k[p.Family:p.Column])
		}
	})
}

// RowPrefix of a cut key returns the row key, or the available prefix of it. So the result is a row
// between those before the cut and those after it.
func TestRowPrefix(t *testing.T) {
	for _, row := range []string{"a", "row", "r\x00", "\x00", "\x00\xff\x00\x01", "r\x00\x00w"} {
		key := AppendDeleteRow(AppendRow(nil, []byte(row)), 7)
		last := ""
		for n := range len(key) + 1 {
			got := string(RowPrefix(key[:n]))
			if got < last || len(got) > len(row) || row[:len(got)] != got {
				t.Fatalf("row %q cut to %d bytes: %q after %q", row, n, got, last)
			}
			last = got
		}
		if last != row {
			t.Fatalf("got %q, want %q", last, row)
		}
		if got := string(RowPrefix(AppendRowEnd(nil, []byte(row)))); got != row {
			t.Fatalf("end of row %q: %q", row, got)
		}
	}
}

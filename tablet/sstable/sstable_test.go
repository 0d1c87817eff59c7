package sstable

import (
	"bytes"
	"context"
	"fmt"
	"testing"
)

func TestSmoke(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf, Options{BlockBytes: 1024, FilterPrefixes: func(key []byte, dst []int) []int { return append(dst, len(key)) }})
	for i := range 100000 {
		if err := w.Add(fmt.Appendf(nil, "key%08d", i), fmt.Appendf(nil, "value%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.Finish(map[string][]byte{"x": []byte("y")})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", m)
	for _, o := range []OpenOptions{{}, {IndexBytesMax: -1, Cache: NewCache(1 << 20)}} {
		tb, err := Open(context.Background(), BytesSource(buf.Bytes()), o)
		if err != nil {
			t.Fatal(err)
		}
		it := tb.NewIter(IterOptions{})
		n := 0
		for ok := it.First(); ok; ok = it.Next() {
			if string(it.Key()) != fmt.Sprintf("key%08d", n) || string(it.Value()) != fmt.Sprintf("value%d", n) {
				t.Fatal(n, string(it.Key()))
			}
			n++
		}
		if n != 100000 || it.Err() != nil {
			t.Fatal(n, it.Err())
		}
		for i := range 100000 {
			i = i * 7919 % 100000
			if !it.SeekGE(fmt.Appendf(nil, "key%08d", i)) || string(it.Value()) != fmt.Sprintf("value%d", i) {
				t.Fatal(i, it.Valid(), it.Err())
			}
			if !tb.MayContain(it.Key()) {
				t.Fatal("filter")
			}
		}
		it.Close()
	}
	s, err := Verify(context.Background(), BytesSource(buf.Bytes()), VerifyOptions{}, func(err error) { t.Error(err) })
	t.Log(s, err)
}

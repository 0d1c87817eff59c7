package wire

import (
	"strings"
	"testing"
)

func TestBeginRecord(t *testing.T) {
	record := func(values ...int) []byte {
		e := GetEncoder()
		defer e.Release()
		e.Array(len(values))
		for _, v := range values {
			e.Int(int64(v))
		}
		return append([]byte(nil), e.Bytes()...)
	}
	for _, test := range []struct {
		b    []byte
		more int
		err  string // empty: none
	}{
		{record(1, 7, 8), 0, ""}, {record(1, 7, 8, 9), 1, ""},
		{record(1, 7), 0, "file: 2 values of version 1, want at least 3 of version 1"}, {record(2, 7, 8), 0, "file: 3 values of version 2"},
		{append(record(1, 7, 8), 0), 0, "file: 4 of 5 bytes are a message"}, {record(1, 7, 8)[:3], 0, "file: "}, {nil, 0, "file: "}, {[]byte{0xc0}, 0, "file: "}, {[]byte{0x93, 0xc0, 7, 8}, 0, "file: "},
	} {
		d, more, err := BeginRecord(test.b, "file", 1, 3)
		switch {
		case test.err == "" && (err != nil || more != test.more || d.Int() != 7 || d.Int() != 8 || d.Err() != nil):
			t.Errorf("%x: %d more, %v, %v", test.b, more, err, d.Err())
		case test.err != "" && (err == nil || !strings.HasPrefix(err.Error(), test.err)):
			t.Errorf("%x: %v, want %s", test.b, err, test.err)
		}
	}
}

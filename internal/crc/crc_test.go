package crc

import "testing"

func TestKnownVectors(t *testing.T) {
	// From RFC 3720, appendix B.4.
	if got := Sum(make([]byte, 32)); got != 0x8a9136aa {
		t.Errorf("32 zero bytes: got %#x", got)
	}
	if got := Sum([]byte("123456789")); got != 0xe3069283 {
		t.Errorf("check string: got %#x", got)
	}
}

func TestPartsAreOneRun(t *testing.T) {
	whole := Sum([]byte("a sealed extent"))
	if got := Sum([]byte("a sea"), nil, []byte("led extent")); got != whole {
		t.Errorf("parts: got %#x, want %#x", got, whole)
	}
	if got := Update(Sum([]byte("a sealed")), []byte(" extent")); got != whole {
		t.Errorf("update: got %#x, want %#x", got, whole)
	}
	if Sum() != 0 {
		t.Error("the checksum of nothing is not 0")
	}
}

func TestSumDoesNotAllocate(t *testing.T) {
	a, b := make([]byte, 64), make([]byte, 4096)
	if n := testing.AllocsPerRun(100, func() { Sum(a, b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

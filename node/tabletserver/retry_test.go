package tabletserver

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestFailuresAreForgotten: a failed load is remembered until the tablet is loaded, or for failedKept.
func TestFailuresAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f failures
		a, b := []byte("a"), []byte("b")
		if f.add(a) || !f.add(a) || f.add(b) || !f.has(a) || f.len() != 2 {
			t.Fatalf("%d failures", f.len())
		}
		if !f.forget(a) || f.forget(a) || f.has(a) || f.len() != 1 {
			t.Errorf("%d failures after one was forgotten", f.len())
		}
		time.Sleep(failedKept + 1)
		if f.add(a) || f.has(b) || f.len() != 1 {
			t.Errorf("%d failures after a long time", f.len())
		}
	})
}

// TestBusy: a tablet is reserved once, until it is released.
func TestBusy(t *testing.T) {
	var b Busy
	k := []byte("k")
	if !b.Reserve(k) || b.Reserve(k) || !b.has(k) || !b.Reserve([]byte("l")) {
		t.Error("a tablet is reserved twice, or another one is not")
	}
	if b.Release(k); b.has(k) || !b.Reserve(k) {
		t.Error("a released tablet is not free")
	}
}

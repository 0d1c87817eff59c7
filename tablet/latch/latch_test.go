package latch

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestLatchExcludes(t *testing.T) {
	var ls Stripes
	l := ls.Of([]byte("row"))
	var shared, exclusive atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				l.LockShared()
				shared.Add(1)
				if exclusive.Load() != 0 {
					t.Error("shared holder beside an exclusive one")
				}
				shared.Add(-1)
				l.UnlockShared()
			}
		})
		wg.Go(func() {
			for range 500 {
				l.LockExclusive()
				if exclusive.Add(1) != 1 || shared.Load() != 0 {
					t.Error("several exclusive holders")
				}
				exclusive.Add(-1)
				l.UnlockExclusive()
			}
		})
	}
	wg.Wait()
}

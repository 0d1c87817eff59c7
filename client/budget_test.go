package client

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(10)
		spend := func() (n int) {
			for b.spend() {
				n++
			}
			return n
		}
		if n := spend(); n != 100 {
			t.Errorf("%d retries at first, want 100", n)
		}
		time.Sleep(3 * time.Second)
		if n := spend(); n != 30 {
			t.Errorf("%d retries after 3 s, want 30", n)
		}
		for range 52 {
			b.credit()
		}
		if n := spend(); n != 10 {
			t.Errorf("%d retries after 52 calls that succeeded, want 10", n)
		}
		time.Sleep(time.Hour)
		if n := spend(); n != 100 {
			t.Errorf("%d retries after an hour, want 100", n)
		}
		for range 10_000 {
			b.credit()
		}
		if n := spend(); n > 101 {
			t.Errorf("%d retries after 10,000 calls that succeeded, want 100", n)
		}
	})
}

func TestRetrierPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t.Context(), Config{}.withDefaults(), []string{"a", "b"})
		defer c.Close()
		r := retrier{calls: &c.calls, started: time.Now()}
		for i, want := range []time.Duration{0, 0, 25, 50, 100, 200, 400, 800, 1600, 2000, 2000} { // milliseconds
			begin := time.Now()
			v := decision{err: ErrUnreachable, elsewhere: true}
			if !r.wait(t.Context(), &v) {
				t.Fatalf("attempt %d was rejected: %v", i, v.err)
			}
			want *= time.Millisecond
			if took := time.Since(begin); took < want/2 || took > want*3/2 {
				t.Errorf("pause %d was %v, want %v ± half of it", i, took, want)
			}
		}
		v := decision{err: ErrOverloaded, pause: time.Minute}
		if r.wait(t.Context(), &v) || v.err != ErrOverloaded || time.Since(r.started) > 15*time.Second {
			t.Errorf("after %v there was another attempt, or %v", time.Since(r.started), v.err)
		}
		begin := time.Now()
		r = retrier{calls: &c.calls, started: begin}
		v.pause = 4 * time.Second
		if took := time.Duration(0); !r.wait(t.Context(), &v) {
			t.Error("no attempt after what the node asked for")
		} else if took = time.Since(begin); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("waited %v, want 4 to 5 s", took)
		}
	})
}

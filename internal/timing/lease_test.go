package timing

import (
	"testing"
	"time"
)

// machine has the clocks of a machine.
type machine struct{ wall, running, slept time.Duration }

func (m *machine) clock() *leaseClock {
	return newLeaseClock(func() (wall, running time.Duration) { return m.wall, m.running }, func() time.Duration { return m.slept })
}

// runs lets time pass.
func (m *machine) runs(d time.Duration) { m.wall, m.running = m.wall+d, m.running+d }

// sleeps suspends the machine.
func (m *machine) sleeps(d time.Duration) { m.wall, m.slept = m.wall+d, m.slept+d }

// TestLeaseClock (I2, I4): a lease ends while the machine is suspended, whatever happens to the wall clock.
func TestLeaseClock(t *testing.T) {
	m := &machine{wall: 1000 * time.Hour, slept: 5 * time.Hour}
	c := m.clock()
	for _, step := range []struct {
		what string
		do   func()
		want time.Duration
	}{
		{"runs", func() { m.runs(time.Second) }, time.Second},
		{"is suspended", func() { m.sleeps(10 * time.Second) }, 11 * time.Second},
		{"has its clock set forward", func() { m.wall += time.Hour }, 11 * time.Second},
		{"is suspended again", func() { m.sleeps(2 * time.Second); m.runs(time.Second) }, 14 * time.Second},
		{"has its clock set back", func() { m.wall -= 3 * time.Hour }, 14 * time.Second},
		{"is suspended, and its clock is set back by most of it", func() { m.sleeps(10 * time.Second); m.wall -= 9 * time.Second }, 24 * time.Second},
		{"has its clock adjusted slowly", func() {
			for range 100 {
				m.wall += 100 * time.Microsecond
				m.runs(10 * time.Millisecond)
				c.Now()
			}
		}, 25 * time.Second},
	} {
		if step.do(); c.Now() != step.want {
			t.Errorf("after the machine %s: %v, want %v", step.what, c.Now(), step.want)
		}
	}
}

// TestAsleep: the real clocks agree, and running does not count as suspension.
func TestAsleep(t *testing.T) {
	before := asleep()
	c := LeaseClock()
	time.Sleep(20 * time.Millisecond)
	if d := asleep() - before; d < -time.Millisecond || d > time.Millisecond {
		t.Errorf("the machine was suspended for %v", d)
	}
	if now := c.Now(); now < 20*time.Millisecond {
		t.Errorf("the clock shows %v after 20ms", now)
	}
}

func BenchmarkLeaseClock(b *testing.B) {
	for name, c := range map[string]Clock{"lease": LeaseClock(), "system": SystemClock()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Now()
			}
		})
	}
}

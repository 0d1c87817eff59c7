//go:build faketime

package machine

import _ "unsafe"

//go:linkname seed runtime.simSeed
func seed(seed uint64)

//go:linkname current runtime.simCurrent
func current() int

//go:linkname enter runtime.simEnter
func enter(process int)

//go:linkname setState runtime.simSetState
func setState(process int, state uint8)

//go:linkname setClock runtime.simSetClock
func setClock(process int, wall, rate int64)

//go:linkname setLate runtime.simSetLate
func setLate(process int, oneIn uint64, most int64)

//go:linkname nanotime runtime.simNanotime
func nanotime() int64

//go:linkname counters runtime.simCounters
func counters() (jumps, switches uint64)

//go:linkname goroutines runtime.simGoroutines
func goroutines(process int) int

//go:linkname ticksOf runtime.simTicksOf
func ticksOf(process int) uint64

package pki

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// BenchmarkConn sends data like the answers of a scan: large writes, read as they arrive.
// cpu-ns/KiB is the processor time of both ends, including the kernel's. The difference between
// certificates and plain is the minimum that TLS costs a scan.
func BenchmarkConn(b *testing.B) {
	run := func(b *testing.B, from, to net.Conn) {
		const size = 128 << 10
		done := make(chan struct{})
		go func() {
			defer close(done)
			p := make([]byte, size)
			for {
				if _, err := from.Write(p); err != nil {
					return // it was closed
				}
			}
		}()
		defer func() {
			to.Close()
			from.Close()
			<-done
		}()
		buf := make([]byte, size)
		b.SetBytes(size)
		before := processorTime(b)
		for b.Loop() {
			if _, err := io.ReadFull(to, buf); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/(size>>10), "cpu-ns/KiB")
	}
	b.Run("plain", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		to, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		from, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		run(b, from, to)
	})
	b.Run("certificates", func(b *testing.B) {
		from, to, _ := overCounting(b)
		run(b, from, to)
	})
}

func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

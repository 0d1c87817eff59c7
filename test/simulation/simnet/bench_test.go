package simnet

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"
)

// BenchmarkStream measures messages in one direction, with the scheduler of one processor, as in a
// simulation. Each message of a burst arrives by its own event if the delay is random.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{200, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			client, server := benchPair(b, Link{Delay: time.Nanosecond})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			go func() {
				message := make([]byte, size)
				for range b.N {
					_, _ = client.Write(message)
					runtime.Gosched()
				}
			}()
			got := make([]byte, size)
			for range b.N {
				if _, err := io.ReadFull(server, got); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRoundTrip measures a request and its answer of 200 bytes each: two messages.
func BenchmarkRoundTrip(b *testing.B) {
	client, server := benchPair(b, Link{Delay: time.Nanosecond})
	b.ReportAllocs()
	go func() { _, _ = io.Copy(writerOnly{server}, server) }()
	message := make([]byte, 200)
	for b.Loop() {
		if _, err := client.Write(message); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, message); err != nil {
			b.Fatal(err)
		}
	}
}

type writerOnly struct{ io.Writer }

func benchPair(b *testing.B, link Link) (client, server net.Conn) {
	procs := runtime.GOMAXPROCS(1)
	b.Cleanup(func() { runtime.GOMAXPROCS(procs) })
	n := New(Config{Rand: rand.New(rand.NewPCG(1, 2)), Link: link})
	b.Cleanup(n.Close)
	l, err := n.Host("10.0.0.2").Listen(":7000")
	if err != nil {
		b.Fatal(err)
	}
	if client, err = n.Host("10.0.0.1").Dial(b.Context(), "10.0.0.2:7000"); err != nil {
		b.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	return client, server
}

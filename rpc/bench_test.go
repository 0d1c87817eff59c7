package rpc

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// serverEnv makes the test binary an echo server, so that client and server of a benchmark run in
// two processes.
const serverEnv = "STELE_RPC_BENCH_SERVER"

var benchValue = make([]byte, 1000)

// benchServer has a get that returns 1000 bytes and a put that accepts them, each inline, on
// workers, and answered from another goroutine.
func benchServer() *Server {
	s, err := NewServer(ServerConfig{})
	if err != nil {
		panic(err)
	}
	get := func(c *Call) {
		c.Params.Bytes()
		c.Reply(func(e *wire.Encoder) { e.Bin(benchValue) })
	}
	put := func(c *Call) {
		c.Params.Bytes()
		c.Params.Bytes()
		c.Reply(nil)
	}
	later := make(chan *Call, 4096)
	go func() {
		for c := range later {
			put(c)
		}
	}()
	s.Handle("get", Inline, get)
	s.Handle("put", Inline, put)
	s.Handle("get-pooled", Pooled, get)
	s.Handle("put-pooled", Pooled, put)
	s.Handle("put-async", Inline, func(c *Call) { later <- c })
	return s
}

func runBenchServer() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	s := benchServer()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	_ = s.Serve(l)
}

// cpuTime returns the CPU time that a process has used, from Linux's /proc in ticks of 10 ms; 0
// elsewhere.
func cpuTime(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

func startBenchServer(b testing.TB) (addr string, pid int) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), serverEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	buf := make([]byte, 64)
	n, err := out.Read(buf)
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(string(buf[:n])), cmd.Process.Pid
}

// BenchmarkLoopback calls a server in another process over one connection.
func BenchmarkLoopback(b *testing.B) {
	addr, pid := startBenchServer(b)
	key := []byte("row0000000000000")
	for _, op := range []string{"get", "put", "get-pooled", "put-pooled", "put-async"} {
		for _, inFlight := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", op, inFlight), func(b *testing.B) {
				c, err := Dial(context.Background(), addr, ConnConfig{})
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				encode := func(e *wire.Encoder) {
					e.Array(1)
					e.Bin(key)
				}
				decode := func(d *wire.Decoder) error { d.Bytes(); return nil }
				if op[:3] == "put" {
					encode = func(e *wire.Encoder) {
						e.Array(2)
						e.Bin(key)
						e.Bin(benchValue)
					}
					decode = nil
				}
				b.ReportAllocs()
				b.ResetTimer()
				start := time.Now()
				client, server := cpuTime(os.Getpid()), cpuTime(pid)
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for range inFlight {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if err := c.Call(context.Background(), op, encode, decode); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "ops/s")
				b.ReportMetric(float64(b.N)/float64(c.writes.Load()), "req/write")
				b.ReportMetric(float64(cpuTime(os.Getpid())-client)/float64(b.N)/1e3, "client-µs/op")
				b.ReportMetric(float64(cpuTime(pid)-server)/float64(b.N)/1e3, "server-µs/op")
			})
		}
	}
}

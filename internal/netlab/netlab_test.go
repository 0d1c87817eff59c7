package netlab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/internal/netlab"
)

func TestMain(m *testing.M) {
	switch os.Getenv("STELE_TEST_ROLE") {
	case "count": // prints its progress until it is killed
		for i := 0; ; i++ {
			fmt.Println(i)
			time.Sleep(5 * time.Millisecond)
		}
	case "orphans": // a test binary killed midway: see TestKilledTestLeavesNothing
		if netlab.Inside() {
			orphans()
		}
	}
	os.Exit(netlab.Main(m))
}

const (
	port   = 7000
	within = 300 * time.Millisecond // no answer within this time means no connection
)

// reaches reports whether packets from one host arrive at the other in time.
func reaches(t *testing.T, from, to *netlab.Host, timeout time.Duration) bool {
	t.Helper()
	var receiver net.PacketConn
	if err := to.Do(func() (err error) {
		receiver, err = net.ListenPacket("udp", to.Port(port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	sender, err := from.Dial(t.Context(), "udp", to.Port(port))
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	// Retry: an interface that has just come up may drop packets.
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		if _, err := sender.Write([]byte("?")); err != nil {
			t.Fatalf("the sender of a dropped packet gets an error: %v", err)
		}
		if err := receiver.SetReadDeadline(time.Now().Add(within / 3)); err != nil {
			t.Fatal(err)
		}
		_, _, err = receiver.ReadFrom(make([]byte, 16))
		if err == nil {
			return true
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	return false
}

// expect compares reachability between all hosts with the cuts, as text "0>1 1>0".
func expect(t *testing.T, l *netlab.Lab, cuts string) {
	t.Helper()
	all := append([]*netlab.Host{l.Here}, l.Hosts()...)
	cut := strings.Fields(cuts)
	for i, from := range all {
		for j, to := range all {
			if i == j {
				continue
			}
			want := !slices.Contains(cut, fmt.Sprintf("%d>%d", i, j))
			timeout := 10 * time.Second
			if !want {
				timeout = within / 3
			}
			if got := reaches(t, from, to, timeout); got != want {
				t.Errorf("packets from %d to %d arrive: %v, want %v (cuts: %s)", i, j, got, want, cuts)
			}
		}
	}
}

// TestCuts: NL1, NL2. Each cut affects only its direction. Host 0 is Here.
func TestCuts(t *testing.T) {
	l := netlab.New(t, 3)
	h := append([]*netlab.Host{l.Here}, l.Hosts()...)
	expect(t, l, "")
	l.Cut(h[1:2], h[2:3])
	expect(t, l, "1>2")
	l.Partition(h[1:2], h[2:4])
	expect(t, l, "1>2 2>1 1>3 3>1")
	l.Heal()
	expect(t, l, "")
	l.Partition([]*netlab.Host{h[1], h[2]}, []*netlab.Host{h[2], h[3]})
	expect(t, l, "1>3 3>1")
	l.Heal()
	l.Isolate(h[2])
	expect(t, l, "0>2 1>2 3>2 2>0 2>1 2>3")
	l.Heal()
	expect(t, l, "")
}

// echo answers every line on every connection to the host.
func echo(t *testing.T, h *netlab.Host) {
	t.Helper()
	l, err := h.Listen(port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // until either side closes
			}()
		}
	}()
}

// echoes reports whether a line is echoed over an open connection in time.
func echoes(t *testing.T, c net.Conn, timeout time.Duration) bool {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("?\n")); err != nil {
		t.Fatal(err)
	}
	_, err := bufio.NewReader(c).ReadString('\n')
	return err == nil
}

// TestConnections: NL1, NL2. Open connections stall while either direction is cut and continue
// afterwards; new ones cannot be opened meanwhile.
func TestConnections(t *testing.T) {
	l := netlab.New(t, 2)
	a, b := l.Hosts()[0], l.Hosts()[1]
	echo(t, b)
	for name, cut := range map[string]func(){
		"there":     func() { l.Cut([]*netlab.Host{a}, []*netlab.Host{b}) },
		"back":      func() { l.Cut([]*netlab.Host{b}, []*netlab.Host{a}) },
		"partition": func() { l.Isolate(b) },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := a.Dial(t.Context(), "tcp", b.Port(port))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if !echoes(t, c, 5*time.Second) {
				t.Fatal("no answer before the cut")
			}
			cut()
			if echoes(t, c, within) {
				t.Error("an answer through the cut")
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if c, err := a.Dial(ctx, "tcp", b.Port(port)); err == nil {
				c.Close()
				t.Error("a connection through the cut")
			}
			l.Heal()
			if !echoes(t, c, 20*time.Second) { // TCP retransmits with increasing backoff
				t.Error("no answer after the cut")
			}
		})
	}
}

func TestRenumber(t *testing.T) {
	l := netlab.New(t, 3)
	h := l.Hosts()
	old := h[1].Port(port)
	l.Cut(h[:1], h[2:])
	l.Renumber(h[1], h[2])
	expect(t, l, "1>3")
	l.Heal()
	expect(t, l, "")
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	echo(t, h[1])
	if c, err := h[0].Dial(ctx, "tcp", old); err == nil {
		c.Close()
		t.Error("the old address answers")
	}
	c, err := h[0].Dial(t.Context(), "tcp", h[1].Port(port))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// counter starts a process that prints numbers.
func counter(t *testing.T, h *netlab.Host) (*netlab.Process, <-chan string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STELE_TEST_ROLE=count")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = in
	p, err := h.Start(cmd)
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
		out.Close()
	}()
	return p, lines
}

func TestPauseAndKill(t *testing.T) {
	l := netlab.New(t, 1)
	p, lines := counter(t, l.Hosts()[0])
	<-lines
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	for quiet := false; !quiet; { // earlier output
		select {
		case <-lines:
		case <-time.After(200 * time.Millisecond):
			quiet = true
		}
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	<-lines
	<-lines
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for range lines {
		}
	}()
	p.Kill() // also when paused
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("ended by %v, want SIGKILL", p.Err())
	}
	p.Kill() // no-op
}

// orphans starts a process and never ends. It prints the name of its namespace.
func orphans() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STELE_TEST_ROLE=count")
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
	}
	select {}
}

// TestKilledTestLeavesNothing: NL3. When a test binary is killed, its processes end and their output
// is closed.
func TestKilledTestLeavesNothing(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "STELE_NETLAB_INSIDE=") }),
		"STELE_TEST_ROLE=orphans")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 3 {
		if !lines.Scan() {
			t.Fatal("the process prints nothing")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines.Scan() {
		}
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("a process outlives its test")
	}
	_ = cmd.Wait() // returns "killed"
}

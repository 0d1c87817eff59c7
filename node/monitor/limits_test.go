package monitor

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/security/pki"
)

// webStage is the node's HTTP server, with pages of its own, on a network in memory, in virtual time.
type webStage struct {
	t       *testing.T
	in      chan net.Conn
	done    chan struct{}
	once    sync.Once
	node    *tls.Config // of clients that are a node; nil on an open node
	nobody  *tls.Config // of those that show no certificate
	began   time.Time
	refused int
}

func (s *webStage) Accept() (net.Conn, error) {
	select {
	case c := <-s.in:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *webStage) Close() error   { s.once.Do(func() { close(s.done) }); return nil }
func (s *webStage) Addr() net.Addr { return &net.TCPAddr{} }

// slowPipe is a connection whose end here reads so many bytes a second, unless 0.
type slowPipe struct {
	net.Conn
	perSecond int
}

func (p *slowPipe) Read(b []byte) (int, error) {
	if p.perSecond == 0 {
		return p.Conn.Read(b)
	}
	time.Sleep(time.Second)
	return p.Conn.Read(b[:min(len(b), p.perSecond)])
}

// dial connects; the connection ends with the test.
func (s *webStage) dial() net.Conn { return s.connect(s.node, &slowPipe{}) }

func (s *webStage) connect(as *tls.Config, by *slowPipe) net.Conn {
	here, there := net.Pipe()
	by.Conn = here
	s.in <- there
	s.t.Cleanup(func() { here.Close() })
	if as == nil {
		return by
	}
	c := tls.Client(by, as)
	if err := c.Handshake(); err != nil {
		s.t.Error(err)
	}
	return c
}

// get asks for a page on a connection of its own, and returns that.
func (s *webStage) get(path string) net.Conn { return s.ask(s.dial(), path) }

func (s *webStage) ask(c net.Conn, path string) net.Conn {
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		s.t.Errorf("%s: %v", path, err)
	}
	return c
}

// answer reads an answer, and returns its status.
func (s *webStage) result(c net.Conn) (int, error) {
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return r.StatusCode, err
}

// ended returns how long after the stage's beginning the other side ends the connection, and what it sent.
func (s *webStage) ended(c net.Conn) (after time.Duration, got string) {
	b, _ := io.ReadAll(bufio.NewReaderSize(c, largePage)) // which reads as much as there is
	return time.Since(s.began), string(b)
}

// trickle sends what a byte a second, until the connection ends.
func trickle(c net.Conn, what string) {
	for i := range what {
		if _, err := c.Write([]byte(what[i : i+1])); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

const largePage = 8 << 20

// onWebStage runs a test against the server of an open node, and of a node with certificates.
func onWebStage(t *testing.T, test func(s *webStage)) {
	for _, secured := range []bool{false, true} {
		t.Run(map[bool]string{false: "open", true: "secured"}[secured], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &webStage{t: t, in: make(chan net.Conn), done: make(chan struct{})}
				mux := http.NewServeMux()
				mux.HandleFunc("GET /small", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
				mux.HandleFunc("GET /large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, largePage)) })
				mux.Handle("GET "+profilesPath, few(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					for end := time.Now().Add(good(time.ParseDuration(r.FormValue("seconds") + "s"))); time.Now().Before(end) && r.Context().Err() == nil; time.Sleep(time.Second) {
						_, _ = w.Write(make([]byte, 1<<10))
					}
				})))
				server, sec := &http.Server{Handler: mux}, (*certs.Transport)(nil)
				if secured {
					a := good(pki.NewAuthority("c1", time.Now()))
					key := good(pki.NewKey())
					leaf := good(a.SignNode(good(pki.NewRequest(key)), "n1", nil, time.Now()))
					trust := good(pki.NewTrust(a.Certificate()))
					credential := good(pki.NewCredential(key, leaf, trust))
					sec = certs.New(certs.Config{Log: slog.New(slog.DiscardHandler), Credential: credential, Rejected: func(string) error { return nil }})
					s.node, s.nobody = pki.NewEndpoint(credential, pki.Options{}).DialNode("n1"), pki.NewEndpoint(pki.AnonymousCredential(trust), pki.Options{}).DialNode("n1")
				}
				refused := func(_ net.Addr, err error) {
					if errors.Is(err, errCrowded) {
						s.refused++
					}
				}
				l := sec.GuardHTTP(s, server, connsMax/2, refused)
				bound(server, 0, slog.New(slog.DiscardHandler), refused)
				var wait sync.WaitGroup
				wait.Go(func() { _ = server.Serve(l) })
				t.Cleanup(func() {
					_ = server.Close()
					wait.Wait()
					time.Sleep(time.Minute) // until senders have seen that
				})
				s.began = time.Now()
				test(s)
			})
		})
	}
}

func good[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestWebSlowRequests (I11): clients that send nothing, or a request byte by byte, are disconnected, and clients that begin a body at once.
func TestWebSlowRequests(t *testing.T) {
	onWebStage(t, func(s *webStage) {
		silent, slow, body, chunked := s.dial(), s.dial(), s.dial(), s.dial()
		go trickle(slow, "GET /small HTTP/1.1\r\nHost: a\r\nX-Much: "+strings.Repeat("x", 100)+"\r\n\r\n")
		go func() {
			_, _ = io.WriteString(body, "GET /small HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
			trickle(body, strings.Repeat("x", 1000))
		}()
		go func() {
			_, _ = io.WriteString(chunked, "GET /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
			trickle(chunked, strings.Repeat("1\r\nx\r\n", 1000))
		}()
		for what, c := range map[string]net.Conn{"a body": body, "a body in chunks": chunked} {
			if after, got := s.ended(c); after > 3*time.Second || !strings.HasPrefix(got, "HTTP/1.1 413") {
				s.t.Errorf("%s: after %v came %q", what, after, got)
			}
		}
		for what, c := range map[string]net.Conn{"nothing": silent, "a header": slow} {
			if after, got := s.ended(c); after < headerTime || after > headerTime+time.Second || strings.Contains(got, "200 OK") {
				s.t.Errorf("%s: after %v came %q, and then the end", what, after, got)
			}
		}
	})
}

// TestWebIdle (I11): a connection is kept for the next request, and not for ever.
func TestWebIdle(t *testing.T) {
	onWebStage(t, func(s *webStage) {
		c := s.get("/small")
		if status, err := s.result(c); status != 200 || err != nil {
			s.t.Fatalf("%d, %v", status, err)
		}
		time.Sleep(idleTime - time.Second)
		if _, err := io.WriteString(c, "GET /small HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			s.t.Fatal(err)
		}
		if status, err := s.result(c); status != 200 || err != nil {
			s.t.Fatalf("%d, %v", status, err)
		}
		s.began = time.Now()
		if after, _ := s.ended(c); after < idleTime || after > idleTime+time.Second {
			s.t.Errorf("it ended after %v", after)
		}
	})
}

// TestWebSlowReaders (I11): answers that clients do not read, read byte by byte, or read just fast enough for each piece, are aborted. Clients that read get
// everything, and long answers are not cut.
func TestWebSlowReaders(t *testing.T) {
	onWebStage(t, func(s *webStage) {
		never := s.get("/large")
		synctest.Wait()
		var wait sync.WaitGroup
		for _, x := range []struct {
			what  string
			path  string
			bytes int // a second
			most  time.Duration
		}{
			{"a byte at a time", "/large", 1, readPause + time.Second}, {"just so fast", "/large", 8 << 10, answerTime + time.Second},
			{"a profile a byte at a time", profilesPath + "trace?seconds=600", 1, readPause + 10*time.Second},
		} {
			by := &slowPipe{}
			c := s.ask(s.connect(s.node, by), x.path)
			by.perSecond = x.bytes
			wait.Go(func() {
				if after, got := s.ended(c); after > x.most || len(got) >= largePage {
					s.t.Errorf("%s: after %v and %d bytes it has ended, want after %v at most", x.what, after, len(got), x.most)
				}
			})
		}
		long := s.get(profilesPath + "trace?seconds=500")
		wait.Go(func() {
			if status, err := s.result(long); status != 200 || err != nil {
				s.t.Errorf("a long profile: %d, %v", status, err)
			}
			if after := time.Since(s.began); after < 500*time.Second {
				s.t.Errorf("it took %v", after)
			}
		})
		if status, err := s.result(s.get("/large")); status != 200 || err != nil {
			s.t.Errorf("a large page: %d, %v", status, err)
		}
		time.Sleep(readPause + time.Second)
		if _, got := s.ended(never); len(got) >= largePage/2 {
			s.t.Errorf("who did not read for %v gets %d bytes", readPause, len(got))
		}
		wait.Wait()
		if status, _ := s.result(s.get(profilesPath + "heap?seconds=601")); status != 400 {
			s.t.Errorf("a profile of 601 s: %d", status)
		}
	})
}

// TestWebHugeHeaders (I11, I13): of a header that does not end little is taken.
func TestWebHugeHeaders(t *testing.T) {
	onWebStage(t, func(s *webStage) {
		for what, line := range map[string]string{"one line": strings.Repeat("x", 1<<10), "many lines": strings.Repeat("X-A: b\r\n", 100)} {
			c := s.dial()
			_, _ = io.WriteString(c, "GET /small HTTP/1.1\r\nHost: a\r\nX-Much: ")
			sent := 0
			heard := make(chan string)
			go func() {
				b, _ := io.ReadAll(c)
				heard <- string(b)
			}()
			for {
				n, err := io.WriteString(c, line)
				if sent += n; err != nil || sent > 10<<20 {
					break
				}
			}
			if sent > 2*headerBytesMax {
				s.t.Errorf("%s: %d bytes were taken", what, sent)
			}
			c.Close()
			if got := <-heard; s.node == nil && !strings.HasPrefix(got, "HTTP/1.1 431") {
				s.t.Errorf("%s: the answer is %q", what, got)
			}
		}
	})
}

// TestWebCrowd (I13): of thousands of silent, slow and idle connections, few remain at a time. New clients are served at once, and answers in progress are not
// disturbed. Few profiles run concurrently.
func TestWebCrowd(t *testing.T) {
	onWebStage(t, func(s *webStage) {
		var wait sync.WaitGroup
		for range profilesAtOnce {
			c := s.get(profilesPath + "trace?seconds=20")
			wait.Go(func() {
				if status, err := s.result(c); status != 200 || err != nil {
					s.t.Errorf("a profile: %d, %v", status, err)
				}
			})
		}
		synctest.Wait()
		if status, err := s.result(s.get(profilesPath + "heap")); status != 503 || err != nil {
			s.t.Errorf("one more profile: %d, %v", status, err)
		}
		most := connsMax
		if s.node != nil {
			most /= 2 // of strangers
		}
		var mu sync.Mutex
		open := 0
		for i := range 1000 {
			var c net.Conn
			if i%3 == 0 {
				c = s.ask(s.connect(s.nobody, &slowPipe{}), "/small")
				if status, err := s.result(c); status != 200 || err != nil {
					s.t.Fatalf("connection %d: %d, %v", i, status, err)
				}
			} else {
				c = s.connect(s.nobody, &slowPipe{})
			}
			mu.Lock()
			open++
			mu.Unlock()
			wait.Go(func() {
				_, _ = io.Copy(io.Discard, c)
				mu.Lock()
				open--
				mu.Unlock()
			})
			if i%3 == 1 {
				go trickle(c, "GET /small HTTP/1.1\r\nHost: a\r\n")
			}
			synctest.Wait() // so that they come one after the other to the listener as well: the oldest gives way there
		}
		synctest.Wait()
		mu.Lock()
		if open > most || open < most/2 {
			s.t.Errorf("%d connections are open, want %d at most", open, most)
		}
		mu.Unlock()
		if s.node == nil && s.refused < 1000-most {
			s.t.Errorf("of %d it was told why they end", s.refused)
		}
		if status, err := s.result(s.get("/small")); status != 200 || err != nil {
			s.t.Errorf("who comes after them: %d, %v", status, err)
		}
		time.Sleep(idleTime + time.Second)
		wait.Wait()
	})
}

// TestWebAllAnswered: where every connection has an answer under way, one more is not taken.
func TestWebAllAnswered(t *testing.T) {
	conns := newConns(3, func(net.Addr, error) {})
	pipe := func() (here, there net.Conn) {
		here, there = net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		return here, there
	}
	isOpen := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return errors.Is(err, context.DeadlineExceeded) || isTimeout(err)
	}
	var far []net.Conn
	for range 3 {
		here, there := pipe()
		far = append(far, there)
		conns.note(here, http.StateNew)
		conns.note(here, http.StateActive)
	}
	late, gone := pipe()
	conns.note(late, http.StateNew)
	if isOpen(gone) {
		t.Error("one more was taken")
	}
	conns.note(late, http.StateClosed)
	for i, c := range far {
		if !isOpen(c) {
			t.Errorf("connection %d was ended", i)
		}
	}
	if n := len(conns.mu.all); n != 3 || conns.mu.waiting.Len() != 0 {
		t.Errorf("%d count, of which %d wait", n, conns.mu.waiting.Len())
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

package raftstreams

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// port passes the connections of a listener to streams, as a node's port does, without their first byte.
func port(t *testing.T, cfg Config) (*Streams, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	feed := NewFeed(l.Addr())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			first := []byte{0}
			if _, err := io.ReadFull(c, first); err != nil || first[0] != FirstByte || !feed.Offer(c) {
				c.Close()
			}
		}
	}()
	cfg.Listener, cfg.Log = feed, slog.New(slog.DiscardHandler)
	s := New(cfg)
	t.Cleanup(func() { l.Close(); s.Close() })
	return s, l.Addr().String()
}

// caller returns streams that find every node at addr.
func caller(cluster string, epoch uint64, node, addr string) *Streams {
	return New(Config{
		Cluster: cluster, Epoch: epoch, Node: node, Log: slog.New(slog.DiscardHandler),
		Resolve: func(string) (string, bool) { return addr, addr != "" },
		Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		},
	})
}

// N4: a connection is accepted only from a node of the same cluster and Raft epoch, and only if it is for this node.
func TestGreeting(t *testing.T) {
	s, addr := port(t, Config{Cluster: "c", Epoch: 3, Node: "n1"})
	accepted := make(chan net.Conn)
	go func() {
		for {
			c, err := s.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	silent, err := net.Dial("tcp", addr) // does not delay the others
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := silent.Write([]byte{FirstByte}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cluster string
		epoch   uint64
		to      string
		want    string
	}{
		{"c", 3, "n1", ""},
		{"d", 3, "n1", "belongs to cluster d, node n1 to cluster c"},
		{"c", 3, "n7", "calls node n7, but this is node n1"},
		{"c", 2, "n1", "has epoch 2 of the lock service, node n1 epoch 3"},
	} {
		conn, err := caller(c.cluster, c.epoch, "n2", addr).Dial(c.to, time.Second)
		switch {
		case c.want == "" && err == nil:
			in := <-accepted
			if _, err := conn.Write([]byte("raft")); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 4)
			if _, err := io.ReadFull(in, got); err != nil || string(got) != "raft" {
				t.Errorf("after the greeting: %q, %v", got, err)
			}
			in.Close()
			conn.Close()
		case c.want == "" || err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := caller("c", 3, "n2", "").Dial("n1", time.Second); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("a node without an address: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, open := <-accepted; open {
		t.Error("a connection after Close")
	}
}

// In a cluster with certificates the certificate must be that of the node in the greeting.
func TestCertificateOfVoter(t *testing.T) {
	s, addr := port(t, Config{Cluster: "c", Epoch: 1, Node: "n1", RequireNode: func(_ net.Conn, id string) error {
		if id != "n2" {
			return errors.New("certificate of another node")
		}
		return nil
	}})
	proven := make(chan string, 1)
	go func() {
		if c, err := s.Accept(); err == nil {
			proven <- c.(interface{ Server() string }).Server()
		}
	}()
	if _, err := caller("c", 1, "n3", addr).Dial("n1", time.Second); err == nil || !strings.Contains(err.Error(), "certificate of another node") {
		t.Errorf("another node: %v", err)
	}
	c, err := caller("c", 1, "n2", addr).Dial("n1", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if id := <-proven; id != "n2" {
		t.Errorf("accepted from %s", id)
	}
}

// A malformed greeting is rejected, without a panic or a wait.
func TestMalformedGreetings(t *testing.T) {
	var good strings.Builder
	if err := (greeting{"c", 1, "n2", "n1"}).write(&good); err != nil {
		t.Fatal(err)
	}
	for i := range good.Len() {
		if _, err := readGreeting(strings.NewReader(good.String()[:i])); err == nil {
			t.Errorf("the first %d bytes are accepted", i)
		}
	}
	for _, bad := range []string{"\x00\x00", "\xff\xff", "\x00\x01\x90", "\x00\x02\x91\x02", "\x00\x02\xc0\xc0"} {
		if _, err := readGreeting(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if g, err := readGreeting(strings.NewReader(good.String())); err != nil || g != (greeting{"c", 1, "n2", "n1"}) {
		t.Errorf("%+v, %v", g, err)
	}
}

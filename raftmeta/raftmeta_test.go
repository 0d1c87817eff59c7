package raftmeta

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDirEnv); dir != "" {
		writeUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

// openGroup opens a group and waits until it is ready. It is closed when the test ends, and its
// directory is then verified as `stele check` does.
func openGroup(tb testing.TB, cfg Config) *Group {
	tb.Helper()
	if cfg.ID == "" {
		cfg.ID = "n1"
	}
	if cfg.OnFatal == nil {
		cfg.OnFatal = func(err error) { tb.Errorf("fatal: %v", err) }
	}
	g, err := Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := g.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
		verifyFolder(tb, cfg.Dir)
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := g.WaitReady(ctx); err != nil {
		tb.Fatal(err)
	}
	return g
}

// verifyFolder fails the test for each problem in dir.
func verifyFolder(tb testing.TB, dir string) {
	tb.Helper()
	if err := Verify(context.Background(), nil, dir, nil, func(p error) { tb.Errorf("verify: %v", p) }); err != nil {
		tb.Errorf("verify: %v", err)
	}
}

func mustSet(tb testing.TB, g *Group, path, data string, gen uint64) uint64 {
	tb.Helper()
	made, err := g.Set(context.Background(), path, []byte(data), gen)
	if err != nil {
		tb.Fatal(err)
	}
	return made
}

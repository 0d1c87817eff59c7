package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
)

// If a node has returned ErrUnavailable and no other response comes in time, a call ends with that
// error and not with the deadline's, unless it may have been executed.
func TestUnavailableRatherThanDeadline(t *testing.T) {
	for _, test := range []struct {
		method string
		do     func(ctx context.Context, c *Client) error
		unsure bool
	}{
		{api.MethodRead, func(ctx context.Context, c *Client) error { _, err := c.Table("t").Get(ctx, "r"); return err }, false},
		{api.MethodRoot, func(ctx context.Context, c *Client) error { _, err := c.Table("t").Get(ctx, "r"); return err }, false},
		{api.MethodListTables, func(ctx context.Context, c *Client) error { _, err := c.Tables().List(ctx); return err }, false},
		{api.MethodReadModifyWrite, func(ctx context.Context, c *Client) error {
			_, err := c.Table("t").Increment(ctx, "r", "f:n", 1)
			return err
		}, true},
	} {
		f := newFake(t)
		c := f.open(Config{})
		var calls atomic.Int64
		once := func() error {
			if calls.Add(1) == 1 {
				return api.ErrUnavailable
			}
			time.Sleep(time.Second)
			return nil
		}
		if test.method == api.MethodRoot {
			f.onRoot.Store(&once)
		}
		f.on(func(when moment, method string) error {
			if when == before && method == test.method {
				return once()
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		err := test.do(ctx, c)
		cancel()
		switch {
		case calls.Load() < 2:
			t.Errorf("%s: called %d times: %v", test.method, calls.Load(), err)
		case test.unsure && !errors.Is(err, ErrAmbiguous):
			t.Errorf("%s that may have been executed: %v", test.method, err)
		case !test.unsure && (!errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)):
			t.Errorf("%s: %v", test.method, err)
		}
	}
}

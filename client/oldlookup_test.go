package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
)

// C9: a call that begins while a lookup is in progress does not fail with its error. A table that
// was created meanwhile exists for the call, and so does a right that was granted.
func TestErrorOfEarlierLookup(t *testing.T) {
	for _, failure := range []error{api.ErrNoTable, &api.PermissionError{Right: "read", Table: "t"}} {
		f := newFakeCluster(newFake(t), 4)
		f.layout("t", nil, 2)
		tb := f.open(Config{RetryTimeMax: -1}).Table("t")
		asked, release := make(chan struct{}), make(chan struct{})
		first := func() error {
			f.onRoot.Store(nil)
			close(asked)
			<-release
			return failure
		}
		f.onRoot.Store(&first)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := tb.Get(ctx, "a")
			gone <- err
		}()
		<-asked // the lookup has been answered, but the client has not got the answer
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("a call that was cancelled: %v", err)
		}
		joined := tb.client.Stats().Shared
		calls := make(chan error)
		for _, row := range []string{"a", "b"} {
			go func() {
				_, err := tb.Get(t.Context(), row)
				calls <- err
			}()
		}
		for tb.client.Stats().Shared < joined+2 {
			time.Sleep(time.Millisecond)
		}
		close(release)
		for range 2 {
			if err := <-calls; err != nil {
				t.Errorf("a call that joined a lookup which ended with %q: %v", failure, err)
			}
		}
	}
}

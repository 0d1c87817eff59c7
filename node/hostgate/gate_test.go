package hostgate

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client/api"
)

// TestGate: a host whose tokens are bad waits, also one with many addresses, and no other host does;
// nor has a host all places.
func TestGate(t *testing.T) {
	limits := Limits{RequestsMax: 64, RequestsOfHost: 16, RefusalsMax: 20,
		Refusal:         func(err error) bool { return errors.Is(err, api.ErrUnauthenticated) },
		TooManyRefusals: "too many invalid tokens", TooManyRequests: "too many tokens are being verified"}
	bad := &api.IdentityError{Reason: api.IdentityBadToken}
	synctest.Test(t, func(t *testing.T) {
		g := New(limits)
		expect := func(host string, n int, with error) {
			t.Helper()
			got := 0
			for range n + 1 {
				leave, err := g.Enter(host)
				if err != nil {
					var wait *api.OverloadedError
					if !errors.As(err, &wait) || wait.RetryAfter <= 0 {
						t.Errorf("%s: %v", host, err)
					}
					break
				}
				leave(with)
				got++
			}
			if got != n {
				t.Errorf("%s: %d tokens are looked at, want %d", host, got, n)
			}
		}
		expect("10.0.0.1", limits.RefusalsMax, bad)
		expect("10.0.0.2", limits.RefusalsMax, bad)
		expect("10.0.0.1", 0, nil)
		expect("fd00::1", limits.RefusalsMax, bad)
		expect("fd00::2", 0, nil)
		expect("fd00:0:0:1::1", limits.RefusalsMax, bad)
		time.Sleep(time.Second)
		expect("10.0.0.1", limits.RefusalsMax, bad)
		var leaves []func(error)
		for host := range limits.RequestsMax / limits.RequestsOfHost {
			for range limits.RequestsOfHost {
				leave, err := g.Enter(fmt.Sprint("10.0.1.", host))
				if err != nil {
					t.Fatal(err)
				}
				leaves = append(leaves, leave)
			}
			expect(fmt.Sprint("10.0.1.", host), 0, nil)
		}
		expect("10.0.0.9", 0, nil)
		time.Sleep(time.Second) // those that are inside stay so
		expect("10.0.0.9", 0, nil)
		for _, leave := range leaves {
			leave(nil)
		}
		expect("10.0.0.9", limits.RefusalsMax, bad)
		time.Sleep(time.Second)
		for host := range hostsMax {
			leave, err := g.Enter(fmt.Sprint("host", host))
			if err != nil {
				t.Fatal(err)
			}
			leave(nil)
		}
		expect("10.0.0.9", 0, nil)
		time.Sleep(time.Second)
		expect("10.0.0.9", limits.RefusalsMax, bad)
	})
}

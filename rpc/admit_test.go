package rpc

import (
	"errors"
	"slices"
	"testing"

	"github.com/steledb/stele/internal/wire"
)

// TestAdmit: a call that is not admitted reaches no handler, in any mode. An admitted call may have
// an identity other than the peer's, and OnAnswer sees and may replace its answer.
func TestAdmit(t *testing.T) {
	asked := []string{}
	s := newBareServer(t, ServerConfig{Admit: func(method string) func(*Call) error {
		asked = append(asked, method)
		switch method {
		case "open":
			return nil
		case "closed":
			return func(*Call) error { return Errorf(CodePermissionDenied, "no") }
		}
		return func(c *Call) error {
			d := c.Params // nothing of the handler's own is read
			c.SetIdentity(d.Str())
			c.OnAnswer(func(err error) error {
				if d.Str() == "late" {
					return Errorf(CodeUnavailable, "answer was %v", err)
				}
				return nil
			})
			return nil
		}
	}})
	ran := make(chan any, 99)
	for _, mode := range []Mode{Inline, Pooled, Spawned, Waiting} {
		name := string('a' + rune(mode))
		s.Handle(name, mode, func(c *Call) {
			ran <- c.Identity()
			c.Params.Skip()
			if c.Params.Skip(); c.Params.Str() == "fail" {
				c.Fail(CodeTooLarge)
				return
			}
			c.Reply(nil)
		})
	}
	for _, name := range []string{"open", "closed"} {
		s.Handle(name, Inline, func(c *Call) {
			ran <- c.Identity()
			c.Reply(nil)
		})
	}
	if all := s.Methods(); !slices.IsSorted(all) || !slices.Contains(all, "closed") || len(all) != len(asked) {
		t.Errorf("methods are %v, Admit was called for %v", all, asked)
	}
	listen(t, s)
	conn, err := Dial(t.Context(), s.addr, ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := func(method string, params ...string) error {
		return conn.Call(t.Context(), method, func(e *wire.Encoder) {
			e.Array(len(params))
			for _, p := range params {
				e.Str(p)
			}
		}, nil)
	}
	if err := call("closed"); !errors.Is(err, CodePermissionDenied) || len(ran) != 0 {
		t.Errorf("closed: %v, %d handlers ran", err, len(ran))
	}
	if err := call("open"); err != nil || <-ran != nil {
		t.Errorf("open: %v", err)
	}
	for _, method := range []string{"a", "b", "c", "d"} {
		for range 2 { // calls are reused
			if err := call(method, "ann", "", ""); err != nil || <-ran != "ann" {
				t.Errorf("%s: %v", method, err)
			}
			if err := call(method, "bob", "late", ""); !errors.Is(err, CodeUnavailable) || err.Error() != "unavailable: answer was <nil>" || <-ran != "bob" {
				t.Errorf("%s, whose answer is replaced: %v", method, err)
			}
			if err := call(method, "ann", "", "fail"); !errors.Is(err, CodeTooLarge) || <-ran != "ann" {
				t.Errorf("%s that fails: %v", method, err)
			}
			if err := call(method, "ann", "late", "fail"); !errors.Is(err, CodeUnavailable) || <-ran != "ann" {
				t.Errorf("%s that fails, whose answer is replaced: %v", method, err)
			}
			if err := call("open"); err != nil || <-ran != nil {
				t.Errorf("open after %s: %v", method, err)
			}
		}
	}
}

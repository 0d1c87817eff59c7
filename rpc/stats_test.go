package rpc

import (
	"errors"
	"maps"
	"testing"
	"time"
)

// TestErrorsByCode: errors are counted by the names of their codes, which are few whatever a handler
// or another server answers.
func TestErrorsByCode(t *testing.T) {
	var m methodStats
	if got := m.errorCounts(); got != nil {
		t.Errorf("counts before the first error: %v", got)
	}
	for _, e := range []*Error{
		nil, nil, AsError(CodeOverloaded), AsError(CodeOverloaded), AsError(errors.New("a bug")), AsError(CodePermissionDenied),
		{Code: 0}, {Code: 99}, {Code: 1 << 31},
	} {
		m.done(time.Millisecond, e)
	}
	want := map[string]uint64{"overloaded": 2, "internal": 1, "permission_denied": 1, OtherCode: 3}
	if got := m.errorCounts(); !maps.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
	for c := range codeNames {
		if c.String() == OtherCode {
			t.Errorf("code %d is named as the codes without a name are counted", uint32(c))
		}
	}
}

// TestErrorsOfCalls: each way in which a call can fail is counted once, under its code.
func TestErrorsOfCalls(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.dial(t, ConnConfig{})
	for range 3 {
		_ = c.Call(bg, "fail", nil, nil)
	}
	_ = c.Call(bg, "panic", nil, nil)
	got := map[string]map[string]uint64{}
	for _, m := range s.Stats().Methods {
		if m.Errors != nil {
			got[m.Method] = m.Errors
		}
	}
	want := map[string]map[string]uint64{"panic": {"internal": 1}, "fail": {OtherCode: 3}} // no API names code 100 here
	if !maps.EqualFunc(got, want, maps.Equal) {
		t.Errorf("counts %v, want %v", got, want)
	}
}

package client

import (
	"errors"
	"reflect"
	"testing"
)

// at returns a position.
func at(start, end string, next uint64) changePosition {
	return changePosition{ChangePosition: ChangePosition{Start: []byte(start), End: []byte(end), Next: next}}
}

// TestTokens (CS1): a token within a result continues behind its change, also between changes with the same sequence number, which the tablets of
// a merge have for different rows; tokens of parts join to one of all.
func TestTokens(t *testing.T) {
	c := &Changes{id: 7, positions: []changePosition{at("", "m", 31), at("m", "", 50)}, last: 0, before: 10,
		returned: []Change{{Row: []byte("b"), Seq: 12}, {Row: []byte("c"), Seq: 12}, {Row: []byte("a"), Seq: 30}}}
	want := map[int][]changePosition{
		0: {at("", "m", 10), at("m", "", 50)},
		1: {at("", "b", 13), at("b", "m", 12), at("m", "", 50)},
		2: {at("", "m", 13), at("m", "", 50)},
		3: {at("", "m", 31), at("m", "", 50)},
	}
	for n, positions := range want {
		got := &Changes{}
		if err := got.resume(c.TokenAfter(n)); err != nil || got.id != 7 || !same(got.positions, positions) {
			t.Errorf("after %d changes: %+v, %v", n, got.positions, err)
		}
	}
	parts := c.Tokens()
	whole, err := JoinChangeTokens(parts[1], parts[0])
	got := &Changes{}
	if err = errors.Join(err, got.resume(whole)); err != nil || !same(got.positions, []changePosition{at("", "m", 31), at("m", "", 50)}) {
		t.Errorf("joined: %+v, %v", got.positions, err)
	}
	low, high := &Changes{id: 7, positions: []changePosition{at("a", "m", 31)}}, &Changes{id: 7, positions: []changePosition{at("l", "z", 50)}}
	whole, err = JoinChangeTokens(high.Token(), low.Token())
	if err = errors.Join(err, got.resume(whole)); err != nil || !same(got.positions, []changePosition{at("a", "l", 31), at("l", "z", 50)}) {
		t.Errorf("overlapping ranges joined: %+v, %v", got.positions, err)
	}
	for _, bad := range []Changes{{since: -1, positions: low.positions}, {positions: []changePosition{at("a", "m", 1<<63)}}, {positions: []changePosition{at("m", "a", 5)}},
		{positions: []changePosition{at("a", "m", 5), at("l", "z", 5)}}} {
		if err := got.resume(bad.Token()); !errors.Is(err, ErrBadToken) {
			t.Errorf("%+v: %v", bad.positions, err)
		}
	}
	other := &Changes{id: 8, positions: c.positions}
	for _, tokens := range [][]string{nil, {""}, {parts[0], other.Token()}, {parts[0][1:]},
		{(&Changes{id: 7, since: 5, positions: []changePosition{at("", "m", 0)}}).Token(), parts[1]}} {
		if _, err := JoinChangeTokens(tokens...); !errors.Is(err, ErrBadToken) {
			t.Errorf("%q: %v", tokens, err)
		}
	}
}

// same compares positions, for which no key and an empty one are the same.
func same(a, b []changePosition) bool {
	text := func(all []changePosition) (out [][3]any) {
		for _, p := range all {
			out = append(out, [3]any{string(p.Start), string(p.End), p.Next})
		}
		return out
	}
	return reflect.DeepEqual(text(a), text(b))
}

package faults

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/steledb/stele/raftmeta/api"
)

// TestModel tests the checker of registers: the last operation of each history is accepted as it
// is, and rejected with the other answer.
func TestModel(t *testing.T) {
	set := func(value string, gen uint64, old string) call {
		return call{Kind: "set", Path: "/f", Value: value, Gen: gen, Old: old}
	}
	get, del := call{Kind: "get", Path: "/f"}, call{Kind: "delete", Path: "/f", Gen: 7, Old: "a"}
	unknown, none := answer{Unknown: true}, answer{}
	at := func(value string, gen uint64) answer { return answer{Value: value, Gen: gen} }
	refused := func(gen uint64) answer { return answer{Refused: true, Gen: gen} }
	type done struct {
		call
		answer
	}
	made := done{set("a", 0, ""), at("", 7)}
	doubt := done{set("b", 7, "a"), unknown}
	for name, test := range map[string]struct {
		before       []done
		last         call
		right, wrong answer
	}{
		"stale get":                {[]done{made, {set("b", 7, "a"), at("", 9)}}, get, at("b", 9), at("a", 7)},
		"lost set":                 {[]done{made}, get, at("a", 7), none},
		"deleted":                  {[]done{made, {del, none}}, get, none, at("a", 7)},
		"set of an old generation": {[]done{made, {set("b", 7, "a"), at("", 9)}}, set("c", 7, "a"), refused(9), at("", 11)},
		"generation goes back":     {[]done{made}, set("b", 7, "a"), at("", 9), at("", 6)},
		"set of a file that is":    {[]done{made}, set("b", 0, ""), refused(7), at("", 9)},
		"delete of none":           {nil, call{Kind: "delete", Path: "/f", Gen: api.AnyGeneration}, refused(0), none},
		"unknown, made":            {[]done{made, doubt, {get, at("b", 9)}}, get, at("b", 9), at("a", 7)},
		"unknown, not made yet":    {[]done{made, doubt, {get, at("a", 7)}}, get, at("b", 9), at("b", 5)},
		"unknown, then changed":    {[]done{made, doubt, {set("c", 7, "a"), at("", 9)}}, get, at("c", 9), at("b", 10)},
		"unknown, then refused":    {[]done{made, doubt, {set("c", 7, "a"), refused(9)}}, get, at("b", 9), at("b", 10)},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(last answer) bool {
				var history []porcupine.Operation
				for i, d := range append(test.before, done{test.last, last}) {
					op := porcupine.Operation{Input: d.call, Output: d.answer, Call: int64(2 * i), Return: int64(2*i + 1)}
					if d.Unknown {
						op.Return = 1000
					}
					history = append(history, op)
				}
				ok := porcupine.CheckOperations(registers, history)
				if !ok && porcupine.CheckOperations(registers, withoutUnseen(history)) {
					t.Errorf("%+v is accepted without unseen writes", last)
				}
				return ok
			}
			if !check(test.right) {
				t.Errorf("%+v is rejected", test.right)
			}
			if check(test.wrong) {
				t.Errorf("%+v is accepted", test.wrong)
			}
		})
	}
}

// TestOverlaps tests the checker of holds.
func TestOverlaps(t *testing.T) {
	a := span{hold: hold{Lock: "/l", Session: 1, Gen: 5}, from: 10, to: 20}
	for name, test := range map[string]struct {
		change func(b *span)
		broken int
	}{
		"after":                {func(*span) {}, 0},
		"during":               {func(b *span) { b.from = 15 }, 1},
		"of an old generation": {func(b *span) { b.Gen = 5 }, 1},
		"another lock":         {func(b *span) { b.Lock, b.from = "/other", 15 }, 0},
		"the same session":     {func(b *span) { b.Session, b.from = 1, 15 }, 0},
		"never believed in":    {func(b *span) { b.from, b.to = 15, 15 }, 0},
	} {
		b := span{hold: hold{Lock: "/l", Session: 2, Gen: 6}, from: 21, to: 30}
		test.change(&b)
		if got := overlaps([]*span{&b, &a}); len(got) != test.broken {
			t.Errorf("%s: %q, want %d", name, got, test.broken)
		}
	}
	shared := func(s span) *span { s.Shared = true; return &s }
	b := span{hold: hold{Lock: "/l", Session: 2, Gen: 5}, from: 12, to: 30}
	if got := overlaps([]*span{shared(a), shared(b)}); len(got) != 0 {
		t.Errorf("shared: %q", got)
	}
	if got := overlaps([]*span{shared(a), &b}); len(got) != 2 {
		t.Errorf("shared and exclusive: %q", got)
	}
}

package node_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// slowRead returns a read whose pattern has 2n instructions to match with the value of the row slow.
func slowRead(t *testing.T, n int) func(*wire.Encoder) {
	t.Helper()
	var filter wire.Encoder
	pattern := append(append([]byte(".*"), bytes.Repeat([]byte("(?:x?)"), n)...), 'y')
	table.AppendFilter(&filter, table.ValueRegex(pattern))
	return (&api.ReadRequest{Table: "t", Row: []byte("slow"), Filter: filter.Bytes()}).Append
}

// TestFilterTurns: while one user's slow patterns wait for their turns, another user's patterns get turns in between, also those
// of a check-and-mutate. When the connection of the slow ones is closed, their work ends.
func TestFilterTurns(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	if err := admin.Table("t").Apply(ctx, client.NewRowMutation("slow").Set("f:q", bytes.Repeat([]byte("x"), 120<<10))); err != nil {
		t.Fatal(err)
	}
	ann, bob := f.user(admin, "ann"), f.user(admin, "bob")
	for _, name := range []string{"ann", "bob"} {
		if err := admin.Grants().Add(ctx, client.Grant{Principal: name, Table: "t", Rights: "read,write"}); err != nil {
			t.Fatal(err)
		}
	}
	const many = 100 // a second of CPU each
	slow, answered := f.dialAs(0, ann), make(chan error, many)
	for range many {
		if err := slow.Go(ctx, api.MethodRead, slowRead(t, 400), func(_ *wire.Decoder, err error) { answered <- err }); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "reads wait for their turns", f.nodes[0].TurnsAwaited)
	other := f.dialAs(0, bob)
	if e := answerOf(t, other, api.MethodRead, slowRead(t, 20)); e != nil {
		t.Errorf("a read of another user: %v", e)
	}
	var filter wire.Encoder
	table.AppendFilter(&filter, table.ValueRegex(".*a?b?y"))
	check := &api.CheckAndMutateRequest{Table: "t", Row: []byte("r1"), Predicate: filter.Bytes(), False: []table.Mutation{table.Set("f", []byte("q"), 2, nil)}}
	if e := answerOf(t, other, api.MethodCheckAndMutate, check.Append); e != nil {
		t.Errorf("a check-and-mutate of another user: %v", e)
	}
	if !f.nodes[0].TurnsAwaited() || len(answered) > many/2 {
		t.Fatalf("nothing waits for its turn any more, %d reads are answered", len(answered))
	}
	left, began := many-len(answered), time.Now()
	slow.Close()
	eventually(t, "no work for filters is left", func() bool { return !f.nodes[0].TurnsAwaited() })
	t.Logf("the work of %d reads ended %v after their connection", left, time.Since(began).Round(time.Millisecond))
	if e := answerOf(t, other, api.MethodRead, slowRead(t, 20)); e != nil {
		t.Errorf("a read afterwards: %v", e)
	}
}

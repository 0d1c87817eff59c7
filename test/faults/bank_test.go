package faults

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// An account is a row with two amounts in different locality groups, whose sum is accountTotal at
// any time, and with the number of the last transfer by compare-and-set.

func accountKey(i int) string { return fmt.Sprintf("%02x-account", i*255/accounts) }

func amount(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// number returns the number in a column, 0 if there is none.
func number(row *table.Row, column string) int64 {
	if c, ok := client.Latest(row, column); ok && len(c.Value) == 8 {
		return int64(binary.BigEndian.Uint64(c.Value))
	}
	return 0
}

func account(i int, x, y int64, transfer int) *client.RowMutation {
	return client.NewRowMutation(accountKey(i)).Set("a:x", amount(x)).Set("b:y", amount(y)).Set("a:transfer", []byte(strconv.Itoa(transfer)))
}

// balance reads an account and checks it. ok is false if it is unknown.
func (u *user) balance(key string, row *table.Row) (x, y int64, transfer int, ok bool) {
	x, y = number(row, "a:x"), number(row, "b:y")
	c, there := client.Latest(row, "a:transfer")
	transfer, err := strconv.Atoi(string(c.Value))
	if !there || err != nil || x+y != accountTotal {
		u.bad("account %s has %d and %d, and transfer %q: want the sum %d", key, x, y, c.Value, accountTotal)
		return 0, 0, 0, false
	}
	return x, y, transfer, true
}

// transfer moves amounts within accounts, by two increments in one request or by compare-and-set.
func (u *user) transfer(r *rand.Rand) {
	for ; u.ctx.Err() == nil; u.pause(r) {
		i, d := r.IntN(accounts), r.Int64N(100)-50
		ctx, cancel := u.timeout(r)
		if r.IntN(2) == 0 {
			_, err := u.db.Table(bankTable).ReadModifyWrite(ctx, accountKey(i), client.IncrementRule("a:x", d), client.IncrementRule("b:y", -d))
			u.result("transfer by increments", err)
		} else {
			u.transferSet(ctx, i, d)
		}
		cancel()
	}
}

func (u *user) transferSet(ctx context.Context, i int, d int64) {
	key := accountKey(i)
	row, err := u.db.Table(bankTable).Get(ctx, key)
	if u.result("account", err); err != nil {
		return
	}
	x, y, n, ok := u.balance(key, row)
	if !ok {
		return
	}
	op := u.begin(rowCall{Kind: "transfer", Row: key, N: int64(n + 1)})
	holds := table.Chain{table.FamilyRegex("a"), table.QualifierRegex("transfer"), table.ValueRegex(regexp.QuoteMeta(strconv.Itoa(n)))}
	matched, err := u.db.Table(bankTable).CheckAndMutate(ctx, key, holds, account(i, x-d, y+d, n+1), nil)
	got := u.result("transfer", err)
	got.Matched = matched
	u.end(op, got)
}

// audit reads all accounts repeatedly.
func (u *user) audit(r *rand.Rand) {
	for ; u.ctx.Err() == nil; u.pause(r) {
		ctx, cancel := context.WithTimeout(u.ctx, 10*time.Second)
		s := u.db.Table(bankTable).Scan(ctx, client.BatchRows(1+r.IntN(accounts)))
		n := 0
		for ; s.Next(); n++ {
			key := string(s.Row().Key)
			if n >= accounts || key != accountKey(n) {
				u.bad("audit: account %d is %q", n, key)
			}
			u.balance(key, s.Row())
		}
		if u.result("audit", s.Err()); s.Err() == nil && n != accounts {
			u.bad("audit: %d accounts, want %d", n, accounts)
		}
		_ = s.Close() // Err is known
		cancel()
	}
}

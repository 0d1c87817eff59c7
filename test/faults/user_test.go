package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// Tables that users share. Each has families a and b in different locality groups.
const (
	rowsTable  = "rows"  // rows of eras, for the model of rows
	countTable = "count" // counters that last for the whole run
	bankTable  = "bank"  // accounts
	listTable  = "list"  // the linked list
)

var userTables = []string{rowsTable, countTable, bankTable, listTable}

// userFamilies are the families of each table.
var userFamilies = []string{"a:versions=1", "b:versions=1,group=second"}

const (
	userEnv      = "FAULTS_USER"
	rowGroups    = 6 // prefixes of rows: their eras are adjacent
	counters     = 12
	accounts     = 8
	accountTotal = 2000
	scanRows     = 30
)

// userConfig configures a user process, as JSON in userEnv. The process ends with its standard
// input.
type userConfig struct {
	Number     int
	Seed       uint64
	Servers    []string
	Credential string // a file
	History    string // an existing file
	// ListWidth is the number of chains that the process writes at a time.
	ListWidth int
	// ListRows is the minimum number of list rows to write.
	ListRows int
	// Pace bounds the pause after each operation.
	Pace time.Duration
	// ListPause is the pause after each round of the list.
	ListPause time.Duration
	// Farewell bounds the closing of the list.
	Farewell time.Duration
	// Tables are the tables to use; empty means all.
	Tables []string
	// Watch is the number of workers that only read counters.
	Watch int
}

// user is a process that reads and changes rows.
type user struct {
	userConfig
	recorder
	db     *client.Client
	ctx    context.Context
	number atomic.Int64 // of operations, and values

	counts struct {
		sync.Mutex
		of map[string]int
	}
}

func runUser() int {
	u := &user{}
	if err := json.Unmarshal([]byte(os.Getenv(userEnv)), &u.userConfig); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var err error
	if u.file, err = os.OpenFile(u.History, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	credential, err := pki.ReadCredential(u.Credential)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	u.ctx, u.counts.of = ctx, map[string]int{}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // blocks until standard input is closed
		cancel()
	}()
	for u.db == nil && ctx.Err() == nil {
		cfg := client.Config{Credential: credential, DialTimeout: time.Second, RetryTimeMax: 20 * time.Second, BatchRows: 200}
		if u.db, err = client.Open(ctx, strings.Join(u.Servers, ","), cfg); err != nil {
			u.db = nil
			pause(ctx, 100*time.Millisecond)
		}
	}
	if u.db == nil {
		return 0
	}
	u.work()
	_ = u.db.Close() // always nil
	u.put(userEntry{At: now(), Tell: u.counts.of})
	return 0
}

// work runs all workers until the context ends.
func (u *user) work() {
	var workers sync.WaitGroup
	for i, w := range []struct {
		table string
		work  func(*rand.Rand)
	}{
		{rowsTable, u.useRows}, {rowsTable, u.useRows}, {rowsTable, u.useRows}, {rowsTable, u.scanRows},
		{countTable, u.count}, {bankTable, u.transfer}, {bankTable, u.audit}, {listTable, u.writeList},
	} {
		if len(u.Tables) == 0 || slices.Contains(u.Tables, w.table) {
			workers.Go(func() { w.work(rand.New(rand.NewPCG(u.Seed, uint64(u.Number)<<32|uint64(i)))) })
		}
	}
	for i := range u.Watch {
		workers.Go(func() { u.watch(rand.New(rand.NewPCG(u.Seed, uint64(u.Number)<<32|uint64(1000+i)))) })
	}
	workers.Wait()
}

func (u *user) tally(what string) {
	u.counts.Lock()
	defer u.counts.Unlock()
	u.counts.of[what]++
}

func (u *user) bad(format string, args ...any) {
	u.put(userEntry{At: now(), Bad: fmt.Sprintf(format, args...)})
}

func (u *user) pause(r *rand.Rand) { pause(u.ctx, time.Duration(r.Int64N(int64(u.Pace)))) }

// timeout bounds one operation. Some timeouts are so short that operations fail during a fault.
func (u *user) timeout(r *rand.Rand) (context.Context, context.CancelFunc) {
	return context.WithTimeout(u.ctx, 500*time.Millisecond+time.Duration(r.Int64N(int64(5*time.Second))))
}

// result returns what an error means. An error that does not mean that the outcome is unknown means
// that nothing was changed.
func (u *user) result(kind string, err error) rowAnswer {
	if err == nil {
		u.tally(kind)
		return rowAnswer{}
	}
	_, what := outcomeOf(err)
	if errors.Is(err, context.Canceled) {
		what = "canceled"
	}
	for _, wrong := range []error{client.ErrCorrupt, client.ErrNoTable, client.ErrNoFamily, client.ErrNotNumber, client.ErrRowTooLarge, client.ErrBadFilter} {
		if errors.Is(err, wrong) {
			u.bad("%s: %v", kind, err)
		}
	}
	u.tally(kind + " " + what)
	if what == "failed" {
		u.tally(fmt.Sprintf("%.120q", err))
	}
	got := rowAnswer{Error: err.Error()}
	got.Unknown = errors.Is(err, client.ErrAmbiguous)
	got.Void = !got.Unknown
	return got
}

// begin records a call in the history.
func (u *user) begin(c rowCall) (op int64) {
	op = u.number.Add(1)
	u.put(userEntry{At: now(), Op: op, Call: &c})
	return op
}

func (u *user) end(op int64, got rowAnswer) { u.put(userEntry{At: now(), Op: op, Got: &got}) }

// rowKey returns the key of a row of an era.
func rowKey(group int, era int64) string { return fmt.Sprintf("%d/%08d", group, era) }

// row returns a row of the current or the previous era, and sometimes an old one.
func (u *user) row(r *rand.Rand) string {
	era := now()/int64(eraLength) - r.Int64N(2)
	return rowKey(r.IntN(rowGroups), era)
}

func (u *user) oldRow(r *rand.Rand) string {
	return rowKey(r.IntN(rowGroups), now()/int64(eraLength)-r.Int64N(40))
}

func (u *user) value() string { return fmt.Sprintf("%d.%d", u.Number, u.number.Add(1)) }

// useRows makes operations that the model covers.
func (u *user) useRows(r *rand.Rand) {
	for ; u.ctx.Err() == nil; u.pause(r) {
		ctx, cancel := u.timeout(r)
		switch n := r.IntN(20); {
		case n < 5:
			u.putRow(ctx, u.row(r))
		case n < 7:
			u.putRows(ctx, r)
		case n < 8:
			u.deleteRow(ctx, u.row(r))
		case n < 11:
			u.increment(ctx, rowsTable, u.row(r), "incr")
		case n < 15:
			u.compareAndSet(ctx, r, u.row(r))
		case n < 18:
			u.getRow(ctx, u.row(r))
		default:
			u.getRow(ctx, u.oldRow(r))
		}
		cancel()
	}
}

// filled returns a mutation that writes a value to both families of a row.
func filled(row, value string) *client.RowMutation {
	return client.NewRowMutation(row).Set("a:v", []byte(value)).Set("b:v", []byte(value))
}

func (u *user) putRow(ctx context.Context, row string) {
	c := rowCall{Kind: "put", Row: row, Value: u.value()}
	op, stamp := u.begin(c), int64(0)
	err := u.db.Table(rowsTable).Apply(ctx, filled(row, c.Value), client.ReturnTimestamp(&stamp))
	got := u.result("put", err)
	got.Stamp = stamp
	u.end(op, got)
}

// putRows writes rows of all groups in one call; each is a separate operation.
func (u *user) putRows(ctx context.Context, r *rand.Rand) {
	var ms []*client.RowMutation
	var ops []int64
	for g := range rowGroups {
		c := rowCall{Kind: "put", Row: rowKey(g, now()/int64(eraLength)), Value: u.value()}
		if r.IntN(2) == 0 {
			ops = append(ops, u.begin(c))
			ms = append(ms, filled(c.Row, c.Value))
		}
	}
	err := u.db.Table(rowsTable).ApplyAll(ctx, ms)
	var each *client.BatchError
	errors.As(err, &each)
	for i, op := range ops {
		one := err
		if each != nil {
			one = each.Errs[i]
		}
		u.end(op, u.result("put in a batch", one))
	}
}

func (u *user) deleteRow(ctx context.Context, row string) {
	op := u.begin(rowCall{Kind: "delete", Row: row})
	u.end(op, u.result("delete", u.db.Table(rowsTable).Apply(ctx, client.NewRowMutation(row).DeleteRow())))
}

// increment adds one to a counter. kind selects the check of the result.
func (u *user) increment(ctx context.Context, tableName, row, kind string) {
	op := u.begin(rowCall{Kind: kind, Row: row})
	n, err := u.db.Table(tableName).Increment(ctx, row, "b:n", 1)
	got := u.result(kind, err)
	got.N = n
	u.end(op, got)
}

// compareAndSet writes a value if the row still has the one that was read.
func (u *user) compareAndSet(ctx context.Context, r *rand.Rand, row string) {
	old, ok := u.getRow(ctx, row)
	if !ok || old == "" {
		return
	}
	if r.IntN(4) == 0 {
		old = "none"
	}
	c := rowCall{Kind: "cas", Row: row, Old: old, Value: u.value()}
	op := u.begin(c)
	holds := table.Chain{table.FamilyRegex("a"), table.QualifierRegex("v"), table.ValueRegex(regexp.QuoteMeta(old))}
	matched, err := u.db.Table(rowsTable).CheckAndMutate(ctx, row, holds, filled(row, c.Value), nil)
	got := u.result("cas", err)
	got.Matched = matched
	u.end(op, got)
}

func (u *user) getRow(ctx context.Context, row string) (value string, ok bool) {
	op := u.begin(rowCall{Kind: "get", Row: row})
	found, err := u.db.Table(rowsTable).Get(ctx, row)
	got := u.result("get", err)
	if err == nil {
		got.Value, got.N = u.contents(row, found)
	}
	u.end(op, got)
	return got.Value, err == nil
}

// contents returns the contents of a row. Cells written together must be present together (I3).
func (u *user) contents(key string, row *table.Row) (value string, n int64) {
	a, inA := client.Latest(row, "a:v")
	b, inB := client.Latest(row, "b:v")
	if inA != inB || !bytes.Equal(a.Value, b.Value) {
		u.bad("row %s has %q in one family and %q in the other", key, a.Value, b.Value)
	}
	if inA && a.Timestamp != b.Timestamp {
		u.bad("row %s: one mutation has timestamps %d and %d", key, a.Timestamp, b.Timestamp)
	}
	return string(a.Value), number(row, "b:n")
}

// scanRows scans rows.
func (u *user) scanRows(r *rand.Rand) {
	for ; u.ctx.Err() == nil; u.pause(r) {
		ctx, cancel := context.WithTimeout(u.ctx, 10*time.Second)
		c := rowCall{Kind: "scan", Row: u.oldRow(r), N: scanRows}
		op := u.begin(c)
		got := u.scan(ctx, c.Row, client.Start(c.Row), client.Limit(scanRows), client.BatchRows(1+r.IntN(12)))
		u.end(op, got)
		cancel()
	}
}

func (u *user) scan(ctx context.Context, from string, opts ...client.ScanOption) (got rowAnswer) {
	s := u.db.Table(rowsTable).Scan(ctx, opts...)
	defer s.Close()
	var rows []rowSeen
	last := ""
	for s.Next() {
		key := string(s.Row().Key)
		if key < from || key <= last {
			u.bad("scan from %q: row %q comes after %q", from, key, last)
		}
		last = key
		value, n := u.contents(key, s.Row())
		rows = append(rows, rowSeen{key, value, n})
	}
	got = u.result("scan", s.Err())
	got.Void = false // rows before an error are valid
	got.Whole = s.Err() == nil && len(rows) < scanRows
	got.Rows = rows
	return got
}

// count increments counters that all users share.
func (u *user) count(r *rand.Rand) {
	for ; u.ctx.Err() == nil; u.pause(r) {
		ctx, cancel := u.timeout(r)
		u.increment(ctx, countTable, counterKey(r.IntN(counters)), "count")
		cancel()
	}
}

// watch reads counters. A client that never writes does not notice that a server rejects writes.
func (u *user) watch(r *rand.Rand) {
	for ; u.ctx.Err() == nil; u.pause(r) {
		ctx, cancel := context.WithTimeout(u.ctx, 20*time.Second)
		key := counterKey(r.IntN(counters))
		op := u.begin(rowCall{Kind: "watch", Row: key})
		row, err := u.db.Table(countTable).Get(ctx, key)
		got := u.result("watch", err)
		got.N = number(row, "b:n")
		u.end(op, got)
		cancel()
	}
}

// counterKey returns the key of a counter: they are spread over the table.
func counterKey(i int) string {
	h := fnv.New32a()
	fmt.Fprint(h, i)
	return fmt.Sprintf("%08x-%d", h.Sum32(), i)
}

// summary formats the counts of all users.
func summary(counts map[string]int) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, " %s %d,", k, counts[k])
	}
	return b.String()
}

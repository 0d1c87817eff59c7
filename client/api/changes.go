package api

import (
	"bytes"
	"errors"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Bounds of read_changes.
const (
	// ChangesBytes is the default of bytes, and ChangesBytesMax its maximum.
	ChangesBytes    = 1 << 20
	ChangesBytesMax = 4 << 20
	// ChangesWaitMax is the maximum of wait_ms.
	ChangesWaitMax = 30 * time.Second
)

// ReadChangesRequest holds the parameters of read_changes:
//
//	[table, options?]    options: start, end, next, since, bytes, change_bytes, wait_ms, clears
type ReadChangesRequest struct {
	TableOptions
	Table string
	// Start and End are the rows: Start < row <= End, an empty one meaning no bound.
	Start, End []byte
	// Next is the position from an earlier result; 0 means by Since.
	Next uint64
	// Since is the time in µs of the first change; 0 means the changes after the call.
	Since int64
	// Bytes bounds the result; 0 means ChangesBytes.
	Bytes int64
	// ChangeBytes rejects a larger change with an *RowTooLargeError; 0 means no bound.
	ChangeBytes int64
	// Wait is how long the call waits for a change.
	Wait time.Duration
	// Clears adds the deletions of ranges of rows.
	Clears bool
}

// Append encodes the parameters.
func (r *ReadChangesRequest) Append(e *wire.Encoder) {
	n := r.TableOptions.count() + present(r.Start) + present(r.End)
	numbers := [...]struct {
		key   string
		value int64
	}{{"next", int64(r.Next)}, {"since", r.Since}, {"bytes", r.Bytes}, {"change_bytes", r.ChangeBytes}, {"wait_ms", r.Wait.Milliseconds()}}
	for _, x := range numbers {
		if x.value > 0 {
			n++
		}
	}
	if r.Clears {
		n++
	}
	e.Array(1 + min(n, 1))
	e.Str(r.Table)
	r.TableOptions.append(e, n)
	if r.Clears {
		e.Str("clears")
		e.Bool(true)
	}
	appendBytes(e, "start", r.Start)
	appendBytes(e, "end", r.End)
	for _, x := range numbers {
		if x.value > 0 {
			e.Str(x.key)
			e.Int(x.value)
		}
	}
}

// Decode decodes the n parameters in d. A nil lim means the defaults.
func (r *ReadChangesRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodReadChanges, n, 1, 2); err != nil {
		return err
	}
	*r = ReadChangesRequest{Table: d.Str()}
	if err := r.TableOptions.decode(d, n > 1, r); err != nil {
		return err
	}
	return within("row key bytes", max(len(r.Start), len(r.End)), limitsOf(lim).RowKeyBytes)
}

func (r *ReadChangesRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "start":
		r.Start = optionalBytes(d)
	case "end":
		r.End = optionalBytes(d)
	case "next":
		r.Next = uint64(countOption(d, "next"))
	case "since":
		r.Since = int64(countOption(d, "since"))
	case "bytes":
		r.Bytes = int64(countOption(d, "bytes"))
	case "change_bytes":
		r.ChangeBytes = int64(countOption(d, "change_bytes"))
	case "wait_ms":
		r.Wait = millisOption(d, "wait_ms", ChangesWaitMax)
	case "clears":
		r.Clears = d.Bool()
	default:
		return r.TableOptions.option(key, d)
	}
	return true
}

// Change is one row mutation of a change stream, or a clear.
type Change struct {
	Row []byte
	// Seq increases with each change of the row.
	Seq uint64
	// Time is when the mutation was committed, in µs. Cells with a server timestamp have it.
	Time      int64
	Mutations []table.Mutation
	// FamilyIDs are the ids of the families of Mutations, 0 for the deletion of a row. Nodes of earlier versions return none.
	FamilyIDs []uint32
	// Cleared is the range of a clear, which deletes all of its rows and has neither row nor mutations; otherwise nil.
	Cleared *table.RowRange
}

// ChangesResult is the result of read_changes:
//
//	[end, next, watermark, [[row, seq, time, [mutation…], [family id…]]…], families]
//
// A clear is [nil, seq, time, [], [], start, end].
type ChangesResult struct {
	// End is the last row that the result is about, which is below that of the request if another tablet has the rest; empty means
	// no bound. The rest is to be read from the position of the request.
	End []byte
	// Next is the position after the result.
	Next uint64
	// Watermark is a time in µs: changes of these rows with a lower time are all returned. 0 if none is known.
	Watermark int64
	Changes   []Change
	// Families is the version of the table's families: it increases whenever one is added or dropped.
	Families uint64
	// MemoryMax bounds the memory of what Decode decodes, besides the result's own bytes; 0 means no bound.
	MemoryMax int64
}

// Memory of a decoded change without its mutations, and of a mutation, in bytes.
const (
	changeMemory   = 96
	mutationMemory = 104
)

// Append encodes the result with n changes in place of its own.
func (r *ChangesResult) Append(e *wire.Encoder, n int, change func(i int, c *Change)) {
	e.Array(5)
	e.Bin(r.End)
	e.Uint(r.Next)
	e.Int(r.Watermark)
	e.Array(n)
	var c Change
	for i := range n {
		change(i, &c)
		c.append(e)
	}
	e.Uint(r.Families)
}

func (c *Change) append(e *wire.Encoder) {
	if c.Cleared != nil {
		e.Array(7)
		e.Nil()
	} else {
		e.Array(5)
		e.Bin(c.Row)
	}
	e.Uint(c.Seq)
	e.Int(c.Time)
	table.AppendMutations(e, c.Mutations)
	appendFamilyIDs(e, c.FamilyIDs)
	if c.Cleared != nil {
		e.Bin(c.Cleared.Start)
		e.Bin(c.Cleared.End)
	}
}

func appendFamilyIDs(e *wire.Encoder, ids []uint32) {
	e.Array(len(ids))
	for _, id := range ids {
		e.Uint(uint64(id))
	}
}

// decodeFamilyIDs decodes the ids of the families of n mutations, or none.
func decodeFamilyIDs(d *wire.Decoder, n int) (ids []uint32, err error) {
	have := d.ArrayMax(n)
	if d.Err() == nil && have != 0 && have != n {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "a change has %d mutations and %d ids of families", n, have)
	}
	for range have {
		id := d.Uint()
		if id >= 1<<32 {
			return nil, rpc.Errorf(rpc.CodeBadRequest, "the id %d of a family is over 32 bits", id)
		}
		ids = append(ids, uint32(id))
	}
	return ids, d.Err()
}

// internedFamilies is the number of family names that a result shares.
const internedFamilies = 64

// Decode decodes a result, whose values alias d's bytes.
func (r *ChangesResult) Decode(d *wire.Decoder) error {
	n := d.Array()
	*r = ChangesResult{End: bytes.Clone(d.Bytes()), Next: d.Uint(), Watermark: d.Int(), MemoryMax: r.MemoryMax}
	in, memory := table.NewInterner(internedFamilies), int64(0)
	for range d.ArrayMax(ChangesBytesMax) {
		if d.Err() != nil {
			break
		}
		fields := d.Array()
		c := Change{Row: optionalBytes(d), Seq: d.Uint(), Time: d.Int()}
		ahead := *d
		mutations := ahead.Array()
		if d.Err() == nil && ahead.Err() == nil && (mutations == 0) != (fields == clearValues) {
			return malformed("a change of %d values without mutations, or a clear with them", fields)
		}
		if memory += changeMemory + mutationMemory*int64(mutations); r.MemoryMax > 0 && memory > r.MemoryMax {
			return malformed("changes with more than %d bytes of memory", r.MemoryMax)
		}
		if err := c.decodeRest(d, fields, in); err != nil {
			return err
		}
		r.Changes = append(r.Changes, c)
	}
	if n > 4 {
		r.Families = d.Uint()
	}
	for range n - 5 {
		d.Skip()
	}
	return d.Err()
}

// clearValues is the number of values of a clear.
const clearValues = 7

// decodeRest decodes what follows the time of a change.
func (c *Change) decodeRest(d *wire.Decoder, fields int, in *table.Interner) (err error) {
	if c.Mutations, err = table.DecodeMutations(d, nil, in, nil); err != nil {
		return err
	}
	if fields > 4 {
		if c.FamilyIDs, err = decodeFamilyIDs(d, len(c.Mutations)); err != nil {
			return err
		}
	}
	if fields == clearValues {
		c.Cleared = &table.RowRange{Start: d.Bytes(), End: d.Bytes()}
		return d.Err()
	}
	for range fields - 5 {
		d.Skip()
	}
	return d.Err()
}

// Errors of replications.
var (
	// ErrNoReplication means that there is no replication with that name.
	ErrNoReplication = errors.New("no such replication")
	// ErrReplicationExists means that a replication with that name already exists.
	ErrReplicationExists = errors.New("replication exists")
)

// Bounds of replications.
const (
	// ReplicationsMax is the number of replications of a cluster.
	ReplicationsMax = 20
	// ReplicationTablesMax is the number of tables of a replication.
	ReplicationTablesMax = 100
	// ReplicationAddrsMax is the number of addresses of a source.
	ReplicationAddrsMax = 100
	// ReplicationSecretMax bounds the credential of a replication, in bytes.
	ReplicationSecretMax = 64 << 10
)

// States of tables of replications: the values of ReplicationTable.State.
const (
	ReplicationCopying   = "copying"   // the rows of the source are copied
	ReplicationFollowing = "following" // its changes are made
	ReplicationPaused    = "paused"
	ReplicationFailed    = "failed" // the last attempt failed; others follow
)

// MethodFollow makes a change of a table that follows another one. It is for nodes.
const MethodFollow = "row.follow"

// FollowRequest holds the parameters of row.follow:
//
//	[table, replication, row, seq, time, [mutation…], [family id…], [copy, index, last] or nil, options?]
//
// The result is a Followed, an integer.
type FollowRequest struct {
	TableOptions
	Table, Replication string
	Change             Change
	// Part is set if the change is a part of a row that is copied in several changes.
	Part *RowPart

	names names
}

// RowPart is the place of a change in the copy of a row. Until the last part is made, the row's position is that of an incomplete copy.
type RowPart struct {
	Copy  uint64 // distinguishes the copy from all others; not 0
	Index uint64 // 0 for the first part, which deletes the row
	Last  bool
}

// Followed is the result of row.follow.
type Followed int64

// The results of row.follow.
const (
	// FollowedBefore means that the row has the change, or a later state.
	FollowedBefore Followed = iota
	// FollowedNow means that the change was made.
	FollowedNow
	// FollowedIncomplete means that the change was not made, since the row is that of an incomplete copy, or of another one. It must be copied.
	FollowedIncomplete
)

// Append encodes the parameters.
func (r *FollowRequest) Append(e *wire.Encoder) {
	n := r.TableOptions.count()
	e.Array(8 + min(n, 1))
	e.Str(r.Table)
	e.Str(r.Replication)
	e.Bin(r.Change.Row)
	e.Uint(r.Change.Seq)
	e.Int(r.Change.Time)
	table.AppendMutations(e, r.Change.Mutations)
	appendFamilyIDs(e, r.Change.FamilyIDs)
	if r.Part == nil {
		e.Nil()
	} else {
		e.Array(3)
		e.Uint(r.Part.Copy)
		e.Uint(r.Part.Index)
		e.Bool(r.Part.Last)
	}
	r.TableOptions.append(e, n)
}

// Decode decodes the n parameters in d. A nil lim means the defaults.
func (r *FollowRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodFollow, n, 8, 9); err != nil {
		return err
	}
	r.Table, r.Replication = r.names.table(d), d.Str()
	r.Change.Row, r.Change.Seq, r.Change.Time = d.Bytes(), d.Uint(), d.Int()
	if err := checkRow(d, r.Change.Row, lim); err != nil {
		return err
	}
	var err error
	if r.Change.Mutations, err = table.DecodeMutations(d, nil, r.names.families(), lim); err != nil {
		return err
	}
	if r.Change.FamilyIDs, err = decodeFamilyIDs(d, len(r.Change.Mutations)); err != nil {
		return err
	}
	if r.Part = nil; !d.IsNil() {
		if d.Array() != 3 {
			return rpc.Errorf(rpc.CodeBadRequest, "%s: a part has three values", MethodFollow)
		}
		r.Part = &RowPart{Copy: d.Uint(), Index: d.Uint(), Last: d.Bool()}
	}
	return r.TableOptions.decode(d, n > 8, r)
}

func (r *FollowRequest) option(key []byte, d *wire.Decoder) bool {
	return r.TableOptions.option(key, d)
}

// CreateReplicationRequest holds the parameters of create_replication:
//
//	[name, [address…], [table…], options?]    options: secret, rate
type CreateReplicationRequest struct {
	Options
	Name   string
	Addrs  []string // of nodes of the source
	Tables []string
	// Secret is the credential for the source: a certificate with its key, or an access token. Empty for an open cluster.
	Secret []byte
	// Rate bounds the bytes of changes and rows per second; 0 means no bound.
	Rate int64
}

// Append encodes the parameters.
func (r *CreateReplicationRequest) Append(e *wire.Encoder) {
	n := r.Options.count() + present(r.Secret)
	if r.Rate > 0 {
		n++
	}
	e.Array(3 + min(n, 1))
	e.Str(r.Name)
	for _, texts := range [][]string{r.Addrs, r.Tables} {
		e.Array(len(texts))
		for _, text := range texts {
			e.Str(text)
		}
	}
	r.Options.append(e, n)
	appendBytes(e, "secret", r.Secret)
	if r.Rate > 0 {
		e.Str("rate")
		e.Int(r.Rate)
	}
}

// Decode decodes the n parameters in d.
func (r *CreateReplicationRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodCreateReplication, n, 3, 4); err != nil {
		return err
	}
	*r = CreateReplicationRequest{Name: d.Str()}
	for _, list := range []struct {
		to   *[]string
		what string
		max  int64
	}{{&r.Addrs, "addresses", ReplicationAddrsMax}, {&r.Tables, "tables of a replication", ReplicationTablesMax}} {
		if err := decodeList(d, list.what, list.max, func() error {
			*list.to = append(*list.to, d.Str())
			return nil
		}); err != nil {
			return err
		}
	}
	if err := r.Options.decode(d, n > 3, r); err != nil {
		return err
	}
	if len(r.Addrs) == 0 || len(r.Tables) == 0 {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: addresses and tables are required", MethodCreateReplication)
	}
	return within("bytes of a credential", len(r.Secret), ReplicationSecretMax)
}

func (r *CreateReplicationRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "secret":
		r.Secret = append([]byte(nil), optionalBytes(d)...)
	case "rate":
		r.Rate = countOption(d, "rate")
	default:
		return false
	}
	return true
}

// ReplicationTable is the state of a table of a replication.
type ReplicationTable struct {
	Name  string `json:"name"`
	State string `json:"state"` // ReplicationCopying and the others
	// LagMS is the age of the last time up to which all changes of the source are made, in ms by the clock of the master's node; -1 if it is
	// not known.
	LagMS   int64  `json:"lag_ms"`
	Changes int64  `json:"changes"` // that were made since the master's node took over the replication
	Rows    int64  `json:"rows"`    // that were copied since then
	Error   string `json:"error"`   // of the last attempt
}

func (t *ReplicationTable) fields() fields {
	return fields{{"name", &t.Name}, {"state", &t.State}, {"lag_ms", &t.LagMS}, {"changes", &t.Changes}, {"rows", &t.Rows}, {"error", &t.Error}}
}

// ReplicationInfo describes a replication.
type ReplicationInfo struct {
	Name   string             `json:"name"`
	Addrs  []string           `json:"addrs"`
	By     string             `json:"by"` // the user who created it; empty on an open cluster
	Paused bool               `json:"paused"`
	Rate   int64              `json:"rate"`
	Tables []ReplicationTable `json:"tables"`
}

func (r *ReplicationInfo) fields() fields {
	return fields{
		{"name", &r.Name}, {"addrs", &texts{&r.Addrs, "addresses", ReplicationAddrsMax}}, {"by", &r.By}, {"paused", &r.Paused}, {"rate", &r.Rate},
		{"tables", &list[ReplicationTable]{all: &r.Tables, fields: (*ReplicationTable).fields, what: "tables", max: ReplicationTablesMax}},
	}
}

// Replications is the result of list_replications.
type Replications struct{ Replications []ReplicationInfo }

func (r *Replications) fields() fields {
	return fields{{"replications", &list[ReplicationInfo]{all: &r.Replications, fields: (*ReplicationInfo).fields, what: "replications", max: ReplicationsMax}}}
}

// Append encodes the result.
func (r *Replications) Append(e *wire.Encoder) { r.fields().append(e) }

// Decode decodes the result.
func (r *Replications) Decode(d *wire.Decoder) error {
	*r = Replications{}
	return r.fields().decode(d)
}

// ReplicationSynced is the result of sync_replication.
type ReplicationSynced struct {
	// ReadOnly is why the source's table was read-only before: the table has all changes of the source then. Empty if it was not.
	ReadOnly string
}

func (r *ReplicationSynced) fields() fields { return fields{{"read_only", &r.ReadOnly}} }

// Append encodes the result.
func (r *ReplicationSynced) Append(e *wire.Encoder) { r.fields().append(e) }

// Decode decodes the result.
func (r *ReplicationSynced) Decode(d *wire.Decoder) error {
	*r = ReplicationSynced{}
	return r.fields().decode(d)
}

package api

import (
	"bytes"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// decodeMap calls each for every key of a map. each reads the value and returns true, or returns
// false for an unknown key, whose value is skipped.
func decodeMap(d *wire.Decoder, each func(key string) bool) error {
	for range d.Map() {
		key := d.Bytes()
		if len(key) > nameBytesMax || !each(string(key)) {
			d.Skip()
		}
		if d.Err() != nil {
			break
		}
	}
	return d.Err()
}

// decodeList decodes an array of at most limit elements by calling one for each.
func decodeList(d *wire.Decoder, what string, limit int64, one func() error) error {
	n := d.Array()
	if err := within(what, n, limit); err != nil {
		return err
	}
	for i := range n {
		if err := one(); err != nil {
			return &table.ElementError{What: what, Index: i, Err: err}
		}
	}
	return d.Err()
}

// setErr sets err, unless it is nil, as the decoder's error.
func setErr(d *wire.Decoder, err error) {
	if err != nil {
		d.Fail(err)
	}
}

// AppendFamilySpec encodes a family as a map of name, gc, group, block_bytes, compression, bloom,
// in_memory and aggregate. Unset fields are omitted.
func AppendFamilySpec(e *wire.Encoder, f *table.FamilySpec) {
	n := 1
	for _, set := range []bool{f.GC != nil, f.Group != "", f.BlockBytes != 0, f.Compression != 0, f.Bloom != 0, f.InMemory != nil, f.Aggregate != nil} {
		if set {
			n++
		}
	}
	e.Map(n)
	appendText := func(key, value string, set bool) {
		if set {
			e.Str(key)
			e.Str(value)
		}
	}
	appendText("name", f.Name, true)
	if f.GC != nil {
		e.Str("gc")
		table.AppendGCPolicy(e, f.GC)
	}
	appendText("group", f.Group, f.Group != "")
	appendCount(e, "block_bytes", int64(f.BlockBytes))
	appendText("compression", f.Compression.String(), f.Compression != 0)
	appendText("bloom", f.Bloom.String(), f.Bloom != 0)
	if f.InMemory != nil {
		e.Str("in_memory")
		e.Bool(*f.InMemory)
	}
	if f.Aggregate != nil {
		e.Str("aggregate")
		e.Str(f.Aggregate.String())
	}
}

// DecodeFamilySpec decodes what AppendFamilySpec writes. Unknown keys are errors, like unknown
// options. Errors: table.ErrBadSpec, table.ErrBadGCPolicy, table.ErrBadEncoding.
func DecodeFamilySpec(d *wire.Decoder) (f table.FamilySpec, err error) {
	for range d.Map() {
		switch key := d.Bytes(); string(key) {
		case "name":
			f.Name = d.Str()
		case "gc":
			var gc table.GCPolicy
			if gc, err = table.DecodeGCPolicy(d); err != nil {
				return f, err
			}
			f.GC = &gc
		case "group":
			f.Group = d.Str()
		case "block_bytes":
			if f.BlockBytes = int(min(d.Int(), table.MaxBlockBytes+1)); f.BlockBytes < 1 {
				f.BlockBytes = -1 // not 0, which means unset; rejected later
			}
		case "compression":
			f.Compression, err = named(d, table.CompressionNone, table.CompressionS2, table.CompressionZstd, table.CompressionTwoPass)
		case "bloom":
			f.Bloom, err = named(d, table.BloomNone, table.BloomRow, table.BloomRowCol)
		case "in_memory":
			on := d.Bool()
			f.InMemory = &on
		case "aggregate":
			var a table.Aggregate
			if a, err = named(d, table.AggregateNone, table.AggregateSum, table.AggregateMin, table.AggregateMax, table.AggregateHLL); err == nil {
				f.Aggregate = &a
			}
		case "id": // present in the families of describe_table
			d.Skip()
		default:
			err = &table.SpecError{Text: f.Name, Option: string(key[:min(len(key), nameBytesMax)]), Reason: "no such key"}
		}
		if d.Err() != nil {
			return f, d.Err()
		}
		if err != nil {
			return f, err
		}
	}
	return f, d.Err()
}

// named decodes a name and returns the value that it denotes.
func named[T interface{ String() string }](d *wire.Decoder, values ...T) (zero T, err error) {
	name := d.Bytes()
	for _, v := range values {
		if v.String() == string(name) {
			return v, nil
		}
	}
	return zero, &table.SpecError{Text: string(name[:min(len(name), nameBytesMax)]), Reason: "unknown name"}
}

// CreateTableRequest holds the parameters of create_table:
//
//	[name, {"families": [family…], "groups": [group…], "split_at": [row…], "granularity": text,
//	 "deletion_protection": bool}, options?]
//
// The result is the table's schema.
type CreateTableRequest struct {
	Options
	Name     string
	Families []table.FamilySpec
	Groups   []table.LocalityGroup
	// SplitAt holds the end rows of the initial tablets, except the last.
	SplitAt [][]byte
	// Granularity is that of the table's timestamps.
	Granularity table.Granularity
	// Protected means that the table cannot be dropped.
	Protected bool
	// ChangeRetention, unless it is 0, is how long the table's changes are kept for readers of its change stream.
	ChangeRetention time.Duration
}

// Append encodes the parameters.
func (r *CreateTableRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	e.Array(2 + min(n, 1))
	e.Str(r.Name)
	keys := 2 + min(len(r.SplitAt), 1)
	if r.Granularity != 0 {
		keys++
	}
	if r.Protected {
		keys++
	}
	if r.ChangeRetention != 0 {
		keys++
	}
	e.Map(keys)
	e.Str("families")
	e.Array(len(r.Families))
	for i := range r.Families {
		AppendFamilySpec(e, &r.Families[i])
	}
	e.Str("groups")
	e.Array(len(r.Groups))
	for i := range r.Groups {
		table.AppendGroup(e, &r.Groups[i])
	}
	if len(r.SplitAt) > 0 {
		e.Str("split_at")
		e.Array(len(r.SplitAt))
		for _, row := range r.SplitAt {
			e.Bin(row)
		}
	}
	if r.Granularity != 0 {
		e.Str("granularity")
		e.Str(r.Granularity.String())
	}
	if r.Protected {
		e.Str("deletion_protection")
		e.Bool(true)
	}
	if r.ChangeRetention != 0 {
		e.Str("change_stream")
		e.Int(r.ChangeRetention.Microseconds())
	}
	r.Options.append(e, n)
}

// Decode decodes the n parameters in d.
func (r *CreateTableRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodCreateTable, n, 2, 3); err != nil {
		return err
	}
	*r = CreateTableRequest{Name: d.Str()}
	familiesMax := defaultLimits.Families
	for range d.Map() {
		var err error
		switch key := d.Bytes(); string(key) {
		case "families":
			err = decodeList(d, "families", familiesMax, func() error {
				f, err := DecodeFamilySpec(d)
				r.Families = append(r.Families, f)
				return err
			})
		case "groups":
			err = decodeList(d, "groups", familiesMax+1, func() error {
				g, err := table.DecodeGroup(d)
				r.Groups = append(r.Groups, g)
				return err
			})
		case "split_at":
			err = decodeList(d, "split rows", SplitAtMax, func() error {
				r.SplitAt = append(r.SplitAt, bytes.Clone(d.Bytes()))
				return d.Err()
			})
		case "granularity":
			if name := d.Bytes(); d.Err() == nil {
				r.Granularity, err = table.ParseGranularity(string(name))
			}
		case "deletion_protection":
			r.Protected = d.Bool()
		case "change_stream":
			r.ChangeRetention = table.DecodeChangeRetention(d)
		default:
			err = &table.SpecError{Text: r.Name, Option: string(key[:min(len(key), nameBytesMax)]), Reason: "no such key"}
		}
		if err != nil {
			return err
		}
	}
	return r.Options.decode(d, n > 2, nil)
}

// Schema returns the requested schema, with the given table id. Errors: those of table.Schema.Apply
// and SetGroup.
func (r *CreateTableRequest) Schema(id uint64) (s *table.Schema, err error) {
	s = table.NewSchema(r.Name, id)
	s.Granularity, s.Protected, s.ChangeRetention = r.Granularity, r.Protected, r.ChangeRetention
	for i := range r.Groups {
		if s, err = s.SetGroup(r.Groups[i]); err != nil {
			return nil, err
		}
	}
	if s, err = s.Apply(r.Families...); err != nil {
		return nil, err
	}
	return s, s.Validate(nil)
}

// SetFamilyRequest holds the parameters of set_family:
//
//	[table, family, options?]
//
// The result is the table's schema.
type SetFamilyRequest struct {
	Options
	Table  string
	Family table.FamilySpec
}

// Append encodes the parameters.
func (r *SetFamilyRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	e.Array(2 + min(n, 1))
	e.Str(r.Table)
	AppendFamilySpec(e, &r.Family)
	r.Options.append(e, n)
}

// Decode decodes the n parameters in d.
func (r *SetFamilyRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodSetFamily, n, 2, 3); err != nil {
		return err
	}
	var err error
	r.Table = d.Str()
	if r.Family, err = DecodeFamilySpec(d); err != nil {
		return err
	}
	return r.Options.decode(d, n > 2, nil)
}

// NamesRequest holds the parameters of methods that take only names: none for ping, list_tables,
// status, list_nodes, raft_status, unserved_tablets and list_dropped_tables; a table for describe_table, drop_table,
// compact_table and root; a table and a family for drop_family; a node's id or name for drain_node
// and remove_node:
//
//	[name…, options?]    options of compact_table: major, of drain_node: undrain,
//	                     of remove_node: force, of drop_table: now
type NamesRequest struct {
	Options
	Names   []string
	Major   bool // compact_table: a major compaction, not only of the memtables
	Undrain bool // drain_node: end the drain
	Force   bool // remove_node: even if the node is alive
	Now     bool // drop_table: the table is not kept
	Making  bool // delete_backup: only one that is being made
}

// A flag is a boolean option.
type flag struct {
	key   string
	value *bool
}

// flag returns the flag that is specific to the method, or nil if it has none.
func (r *NamesRequest) flag(method string) *flag {
	switch method {
	case MethodCompactTable:
		return &flag{"major", &r.Major}
	case MethodDrainNode:
		return &flag{"undrain", &r.Undrain}
	case MethodRemoveNode:
		return &flag{"force", &r.Force}
	case MethodDropTable:
		return &flag{"now", &r.Now}
	case MethodDeleteBackup:
		return &flag{"making", &r.Making}
	}
	return nil
}

// Append encodes the parameters.
func (r *NamesRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	var set []flag
	for _, f := range []flag{{"major", &r.Major}, {"undrain", &r.Undrain}, {"force", &r.Force}, {"now", &r.Now}, {"making", &r.Making}} {
		if *f.value {
			set = append(set, f)
		}
	}
	n += len(set)
	e.Array(len(r.Names) + min(n, 1))
	for _, name := range r.Names {
		e.Str(name)
	}
	r.Options.append(e, n)
	for _, f := range set {
		e.Str(f.key)
		e.Bool(*f.value)
	}
}

// Decode decodes the n parameters in d of a method that takes want names.
func (r *NamesRequest) Decode(d *wire.Decoder, n int, method string, want int) error {
	if err := params(method, n, want, want+1); err != nil {
		return err
	}
	*r = NamesRequest{}
	for range want {
		r.Names = append(r.Names, d.Str())
	}
	if own := r.flag(method); own != nil {
		return r.Options.decode(d, n > want, own)
	}
	return r.Options.decode(d, n > want, nil)
}

func (f *flag) option(key []byte, d *wire.Decoder) bool {
	if string(key) != f.key {
		return false
	}
	*f.value = d.Bool()
	return true
}

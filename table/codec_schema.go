package table

import (
	"slices"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// AppendGCPolicy encodes a policy as its text.
func AppendGCPolicy(e *wire.Encoder, p *GCPolicy) { e.Str(p.String()) }

// DecodeGCPolicy decodes a policy. Errors: ErrBadEncoding, which wraps ErrBadGCPolicy or ErrLimit.
func DecodeGCPolicy(d *wire.Decoder) (GCPolicy, error) {
	p, err := decodeGC(d)
	return p, finish(d, err)
}

func decodeGC(d *wire.Decoder) (GCPolicy, error) {
	// A policy within the limits is shorter: 64 rules of about 20 bytes.
	const most = 8 << 10
	text := d.Bytes()
	if err := checkLimit("gc policy bytes", len(text), most); err != nil {
		return GCPolicy{}, decodeError(d, "gc policy", err)
	}
	if d.Err() != nil {
		return GCPolicy{}, decodeError(d, "gc policy", nil)
	}
	p, err := ParseGCPolicy(string(text))
	return p, decodeError(d, "gc policy", err)
}

// AppendFamily encodes a family as a map with the keys name, id, and, if they are not the defaults,
// gc, group, aggregate and source.
func AppendFamily(e *wire.Encoder, f *Family) {
	n := 2
	if f.GC.Kind != GCNone {
		n++
	}
	if f.Group != "" {
		n++
	}
	if f.Aggregate != AggregateNone {
		n++
	}
	if f.Source != 0 {
		n++
	}
	e.Map(n)
	e.Str("name")
	e.Str(f.Name)
	e.Str("id")
	e.Uint(uint64(f.ID))
	if f.GC.Kind != GCNone {
		e.Str("gc")
		AppendGCPolicy(e, &f.GC)
	}
	if f.Group != "" {
		e.Str("group")
		e.Str(f.Group)
	}
	if f.Aggregate != AggregateNone {
		e.Str("aggregate")
		e.Str(f.Aggregate.String())
	}
	if f.Source != 0 {
		e.Str("source")
		e.Uint(uint64(f.Source))
	}
}

func decodeFamily(d *wire.Decoder) (Family, error) {
	var f Family
	err := decodeMap(d, func(key string) (err error) {
		switch key {
		case "name":
			f.Name = d.Str()
		case "id":
			f.ID, err = decodeID(d)
		case "source":
			f.Source, err = decodeID(d)
		case "gc":
			f.GC, err = decodeGC(d)
		case "group":
			f.Group = d.Str()
		case "aggregate":
			if name := d.Bytes(); d.Err() == nil {
				f.Aggregate, err = ParseAggregate(string(name))
			}
		default:
			d.Skip()
		}
		return err
	})
	return f, decodeError(d, "family", err)
}

// decodeID decodes the id of a family.
func decodeID(d *wire.Decoder) (uint32, error) {
	id := d.Uint()
	if id >= 1<<32 {
		return 0, errForm("%d is over 32 bits", id)
	}
	return uint32(id), nil
}

// decodeMap calls each for every key of a map. each must read the value.
func decodeMap(d *wire.Decoder, each func(key string) error) error {
	for range d.Map() {
		b := d.Bytes()
		if len(b) > 64 {
			b = b[:64] // longer than any known key
		}
		key := string(b)
		if err := decodeError(d, key, each(key)); err != nil {
			return err
		}
	}
	return nil
}

// AppendGroup encodes a locality group as a map with the keys name and, if they are not zero,
// block_bytes, compression, bloom and in_memory.
func AppendGroup(e *wire.Encoder, g *LocalityGroup) {
	n := 1
	for _, given := range []bool{g.BlockBytes != 0, g.Compression != 0, g.Bloom != 0, g.InMemory} {
		if given {
			n++
		}
	}
	e.Map(n)
	e.Str("name")
	e.Str(g.Name)
	if g.BlockBytes != 0 {
		e.Str("block_bytes")
		e.Int(int64(g.BlockBytes))
	}
	if g.Compression != 0 {
		e.Str("compression")
		e.Str(g.Compression.String())
	}
	if g.Bloom != 0 {
		e.Str("bloom")
		e.Str(g.Bloom.String())
	}
	if g.InMemory {
		e.Str("in_memory")
		e.Bool(true)
	}
}

// DecodeGroup decodes a locality group and ignores unknown keys. It does not validate the group.
// Errors: ErrBadEncoding.
func DecodeGroup(d *wire.Decoder) (LocalityGroup, error) {
	g, err := decodeGroup(d)
	return g, finish(d, err)
}

func decodeGroup(d *wire.Decoder) (LocalityGroup, error) {
	var g LocalityGroup
	err := decodeMap(d, func(key string) error {
		switch key {
		case "name":
			g.Name = d.Str()
		case "block_bytes":
			g.BlockBytes = int(d.Int())
		case "compression":
			i := slices.Index(compressionNames[:], string(d.Bytes()))
			if i < 0 {
				return errForm("unknown name")
			}
			g.Compression = Compression(i)
		case "bloom":
			i := slices.Index(bloomNames[:], string(d.Bytes()))
			if i < 0 {
				return errForm("unknown name")
			}
			g.Bloom = BloomMode(i)
		case "in_memory":
			g.InMemory = d.Bool()
		default:
			d.Skip()
		}
		return nil
	})
	return g, decodeError(d, "group", err)
}

// schemaFormat is the latest format of encoded schemas. A schema has the format that its readers must know; 1 is not
// written. Format 2 has the granularity, 3 the deletion protection, 4 aggregate families, 5 the change stream, 6 what the table
// follows, 7 views: a server that did not know them would serve requests by a view from the whole table. Format 8 has families of
// AggregateHLL. Format 9 is of a read-only table.
const schemaFormat = 9

// AppendSchema encodes a schema as a map with the keys name, id, next_family_id, families, groups and, if they are
// not the defaults, format, granularity, deletion_protection, change_stream, the retention in µs, follows, views, and read_only.
func AppendSchema(e *wire.Encoder, s *Schema) {
	format, keys := int64(1), 5
	if s.Granularity != GranularityMicros {
		format, keys = 2, keys+1
	}
	if s.Protected {
		format, keys = 3, keys+1
	}
	if s.hasAggregates() {
		format = 4
	}
	if s.ChangeRetention > 0 {
		format, keys = 5, keys+1
	}
	if s.Follows != "" {
		format, keys = 6, keys+1
	}
	if len(s.Views) > 0 {
		format, keys = 7, keys+1
	}
	if s.hasAggregate(AggregateHLL) {
		format = 8
	}
	if s.ReadOnly != "" {
		format, keys = 9, keys+1
	}
	if format > 1 {
		e.Map(keys + 1)
		e.Str("format")
		e.Int(format)
	} else {
		e.Map(keys)
	}
	if s.Granularity != GranularityMicros {
		e.Str("granularity")
		e.Str(s.Granularity.String())
	}
	if s.Protected {
		e.Str("deletion_protection")
		e.Bool(true)
	}
	if s.ChangeRetention > 0 {
		e.Str("change_stream")
		e.Int(s.ChangeRetention.Microseconds())
	}
	if s.Follows != "" {
		e.Str("follows")
		e.Str(s.Follows)
	}
	if len(s.Views) > 0 {
		e.Str("views")
		e.Array(len(s.Views))
		for i := range s.Views {
			appendView(e, &s.Views[i])
		}
	}
	if s.ReadOnly != "" {
		e.Str("read_only")
		e.Str(s.ReadOnly)
	}
	e.Str("name")
	e.Str(s.Name)
	e.Str("id")
	e.Uint(s.ID)
	e.Str("next_family_id")
	e.Uint(uint64(s.NextFamilyID))
	e.Str("families")
	e.Array(len(s.Families))
	for i := range s.Families {
		AppendFamily(e, &s.Families[i])
	}
	e.Str("groups")
	e.Array(len(s.Groups))
	for i := range s.Groups {
		AppendGroup(e, &s.Groups[i])
	}
}

// DecodeSchema decodes a schema, ignores unknown keys, and validates the schema against lim; nil
// means the defaults. It rejects later formats. Errors: ErrBadEncoding, which wraps those of
// Schema.Validate.
func DecodeSchema(d *wire.Decoder, lim *Limits) (*Schema, error) {
	s, err := decodeSchema(d, lim.orDefault())
	if err := finish(d, err); err != nil {
		return nil, err
	}
	return s, nil
}

func decodeSchema(d *wire.Decoder, l *Limits) (*Schema, error) {
	s := &Schema{}
	err := decodeMap(d, func(key string) (err error) {
		switch key {
		case "format":
			if format := d.Int(); format > schemaFormat {
				return errForm("format %d is of a later version", format)
			}
		case "granularity":
			s.Granularity, err = decodeGranularity(d)
		case "deletion_protection":
			s.Protected = d.Bool()
		case "read_only":
			s.ReadOnly = d.Str()
		case "change_stream":
			s.ChangeRetention = DecodeChangeRetention(d)
		case "follows":
			s.Follows = d.Str()
		case "views":
			s.Views, err = decodeList(d, "views of a table", ViewsMax, decodeView)
		case "name":
			s.Name = d.Str()
		case "id":
			s.ID = d.Uint()
		case "next_family_id":
			s.NextFamilyID, err = decodeID(d)
		case "families":
			s.Families, err = decodeList(d, "families in a table", l.Families, decodeFamily)
		case "groups":
			s.Groups, err = decodeList(d, "locality groups in a table", l.Families+1, decodeGroup)
		default:
			d.Skip()
		}
		return err
	})
	if err == nil && d.Err() == nil {
		err = s.Validate(l)
	}
	return s, decodeError(d, "schema", err)
}

// DecodeChangeRetention decodes the retention of a change stream, in µs. One that is too long becomes ChangeRetentionMax and 1 µs, which
// Schema.Validate rejects.
func DecodeChangeRetention(d *wire.Decoder) time.Duration {
	micros := d.Int()
	if micros < 0 || micros > ChangeRetentionMax.Microseconds() {
		micros = ChangeRetentionMax.Microseconds() + 1
	}
	return time.Duration(micros) * time.Microsecond
}

func decodeGranularity(d *wire.Decoder) (Granularity, error) {
	name := d.Bytes()
	if d.Err() != nil {
		return 0, d.Err()
	}
	return ParseGranularity(string(name))
}

// decodeList decodes an array of at most limit elements.
func decodeList[T any](d *wire.Decoder, what string, limit int64, one func(*wire.Decoder) (T, error)) ([]T, error) {
	n, err := count(d, what, limit)
	if err != nil {
		return nil, err
	}
	list := make([]T, 0, n)
	for i := range n {
		v, err := one(d)
		if err != nil {
			return nil, decodeError(d, indexed("element", i), err)
		}
		list = append(list, v)
	}
	return list, nil
}

package api

import (
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// ChangesMax is the number of changes in one alter_table.
const ChangesMax = 1000

// AlterTableRequest holds the parameters of alter_table:
//
//	[table, [{"set"|"add"|"change": family} | {"drop": name} | {"protect": bool} | {"change_stream": µs} | {"read_only": [reason, if?]} | {"add_view"|"change_view"|"drop_view": change}…], options?]
//
// The result is the table's schema.
type AlterTableRequest struct {
	Options
	Table   string
	Changes []table.Change
}

// Append encodes the parameters.
func (r *AlterTableRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	e.Array(2 + min(n, 1))
	e.Str(r.Table)
	e.Array(len(r.Changes))
	for i := range r.Changes {
		c := &r.Changes[i]
		e.Map(1)
		e.Str(c.Op.String())
		switch c.Op {
		case table.ChangeProtect:
			e.Bool(c.Protect)
		case table.ChangeReadOnly:
			appendReadOnly(e, &c.ReadOnly)
		case table.ChangeStream:
			e.Int(c.Retention.Microseconds())
		case table.ChangeDrop:
			e.Str(c.Family.Name)
		case table.ChangeAddView, table.ChangeView, table.ChangeDropView:
			table.AppendViewChange(e, c.View)
		default:
			AppendFamilySpec(e, &c.Family)
		}
	}
	r.Options.append(e, n)
}

// Decode decodes the n parameters in d.
func (r *AlterTableRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodAlterTable, n, 2, 3); err != nil {
		return err
	}
	*r = AlterTableRequest{Table: d.Str()}
	if err := decodeList(d, "changes", ChangesMax, func() error {
		c, err := decodeChange(d)
		r.Changes = append(r.Changes, c)
		return err
	}); err != nil {
		return err
	}
	return r.Options.decode(d, n > 2, nil)
}

// decodeChange decodes a map with one key.
func decodeChange(d *wire.Decoder) (c table.Change, err error) {
	if n := d.Map(); n != 1 && d.Err() == nil {
		return c, &table.SpecError{Text: "change", Reason: "must have one key"}
	}
	key := d.Bytes()
	op, ok := table.ParseChangeOp(string(key))
	if !ok && d.Err() == nil {
		return c, &table.SpecError{Text: "change", Option: string(key[:min(len(key), nameBytesMax)]), Reason: "no such key"}
	}
	switch c.Op = op; op {
	case table.ChangeProtect:
		c.Protect = d.Bool()
	case table.ChangeReadOnly:
		decodeReadOnly(d, &c.ReadOnly)
	case table.ChangeStream:
		c.Retention = table.DecodeChangeRetention(d)
	case table.ChangeDrop:
		c.Family.Name = d.Str()
	case table.ChangeAddView, table.ChangeView, table.ChangeDropView:
		var v table.ViewChange
		v, err = table.DecodeViewChange(d)
		c.View = &v
	default:
		c.Family, err = DecodeFamilySpec(d)
	}
	if err == nil {
		err = d.Err()
	}
	return c, err
}

func appendReadOnly(e *wire.Encoder, c *table.ReadOnlyChange) {
	if c.If == nil {
		e.Array(1)
		e.Str(c.Reason)
		return
	}
	e.Array(2)
	e.Str(c.Reason)
	e.Str(*c.If)
}

func decodeReadOnly(d *wire.Decoder, c *table.ReadOnlyChange) {
	n := d.Array()
	if d.Err() == nil && (n < 1 || n > 2) {
		d.Fail(&table.SpecError{Text: "change", Option: table.ChangeReadOnly.String(), Reason: "must have one or two values"})
		return
	}
	if c.Reason = d.Str(); n > 1 {
		before := d.Str()
		c.If = &before
	}
}

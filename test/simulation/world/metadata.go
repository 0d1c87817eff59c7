package world

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/test/simulation/judge"
	"github.com/steledb/stele/test/simulation/workload"
)

// metadataTimeout bounds a read of METADATA.
const metadataTimeout = 3 * time.Second

// watchMetadata reads METADATA about each second, while there are faults too, and checks it whenever
// two reads agree: then it was in that state between them (SW3).
func (w inspector) watchMetadata(ctx context.Context, load *workload.Workload) {
	var c *client.Client
	for i := int(w.cfg.Seed); ctx.Err() == nil; sleepIn(ctx, w.between(500*time.Millisecond, 1500*time.Millisecond)) {
		if c == nil {
			once, cancel := context.WithTimeout(ctx, metadataTimeout)
			c, _ = cluster{w.World}.Open(once, i, nil) // retried
			cancel()
		}
		if c == nil {
			i++
			continue
		}
		if rows, tables := w.readTwice(ctx, c); rows != nil {
			w.count("reads of METADATA")
			w.violated(judge.Check(rows, tables, load.History().Now()))
		}
	}
	if c != nil {
		_ = c.Close() // always nil
	}
}

// readTwice returns the rows of METADATA of tables that exist, and their schemas, if two reads agree.
// The rows of a table that is created or dropped meanwhile are left out: they are written one by one. The row of its last tablet
// completes a table.
func (w inspector) readTwice(ctx context.Context, c *client.Client) ([]*table.Row, []*table.Schema) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	before, err := c.Tables().List(ctx)
	if err != nil {
		return nil, nil
	}
	first, err := workload.ReadMetadata(ctx, c)
	if err != nil {
		return nil, nil
	}
	second, err := workload.ReadMetadata(ctx, c)
	if err != nil || fingerprint(first) != fingerprint(second) {
		return nil, nil
	}
	after, err := c.Tables().List(ctx)
	if err != nil {
		return nil, nil
	}
	for _, r := range second {
		if id, end, err := metadata.ParseKey(r.Key); err == nil && len(end) == 0 {
			w.complete[id] = true
		}
	}
	existed := func(s *table.Schema) bool {
		return w.complete[s.ID] && slices.ContainsFunc(before, func(o *table.Schema) bool { return o.ID == s.ID })
	}
	tables := slices.DeleteFunc(after, func(s *table.Schema) bool { return !existed(s) })
	return slices.DeleteFunc(second, func(r *table.Row) bool {
		id, _, err := metadata.ParseKey(r.Key)
		return err == nil && id != metadata.TableID && !slices.ContainsFunc(tables, func(s *table.Schema) bool { return s.ID == id })
	}), tables
}

// fingerprint returns a text that is different for different rows.
func fingerprint(rows []*table.Row) string {
	var b []byte
	for _, r := range rows {
		b = fmt.Appendf(b, "%q", r.Key)
		for i := range r.Cells {
			c := &r.Cells[i]
			b = fmt.Appendf(b, " %s %q %d %q", c.Family, c.Qualifier, c.Timestamp, c.Value)
		}
	}
	return string(b)
}

// violated records violations.
func (w inspector) violated(all []judge.Violation) {
	for _, v := range all {
		_, _ = fmt.Fprintln(w.cfg.Text, v)
		w.fail("SW3 METADATA: %s", v.Text)
	}
}

// settleMax is how long servers may take to finish splits and merges once no client asks for any.
const settleMax = 30 * time.Second

// judgeTablets checks METADATA against the tables that exist and what servers serve, when nothing
// changes any more (SW3).
func (w inspector) judgeTablets(load *workload.Workload) {
	var bad []judge.Violation
	end := time.Now().Add(settleMax)
	for {
		err := w.ask(end, func(ctx context.Context, c *client.Client) (err error) {
			bad, err = w.checkTablets(ctx, c, load.History().Now())
			return err
		})
		if err == nil && len(bad) == 0 {
			return
		}
		if time.Now().After(end) {
			w.violated(bad)
			if err != nil {
				w.fail("SW3 METADATA: it cannot be read: %v", err)
			}
			return
		}
		time.Sleep(time.Second)
	}
}

func (w inspector) checkTablets(ctx context.Context, c *client.Client, at int64) ([]judge.Violation, error) {
	rows, err := workload.ReadMetadata(ctx, c)
	if err != nil {
		return nil, err
	}
	tables, err := c.Tables().List(ctx)
	if err != nil {
		return nil, err
	}
	bad := judge.Check(rows, tables, at)
	for _, schema := range tables {
		info, err := c.Tables().Describe(ctx, schema.Name)
		if err != nil {
			return nil, err
		}
		bad = append(bad, judge.CheckServed(schema.Name, judge.ServedOf(info.Tablets), at)...)
	}
	return bad, nil
}

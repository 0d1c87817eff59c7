package faults

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/tablet"
)

// checkWhole checks METADATA and the block store (FW5, FW7).
func (r *wholeRun) checkWhole() {
	r.t.Helper()
	start := time.Now()
	for what, check := range map[string]func(context.Context) error{
		"tablets": r.joined, "replicas": func(ctx context.Context) error {
			if err := verifyAll(ctx, r.db); err != nil {
				return err
			}
			return r.short(ctx, r.lib, r.db)
		},
	} {
		last := ""
		if err := await(restoreTime, func() error {
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
			defer cancel()
			err := check(ctx)
			if err != nil && err.Error() != last {
				last = err.Error()
				r.t.Logf("          %5.1f s: %s: %v", time.Since(start).Seconds(), what, err)
			}
			return err
		}); err != nil {
			r.t.Errorf("%s are not whole after %v: %v", what, restoreTime, err)
			r.diagnose()
		}
	}
	r.t.Logf("tablets and replicas are whole after %v", time.Since(start).Round(100*time.Millisecond))
	if out, err := r.stele("--addr", r.nodes[0].address(), "blob", "fsck", "--deep"); err != nil {
		r.t.Errorf("blob fsck: %v: %s", err, tail(out, 10))
	}
}

// stele runs a command of the program.
func (c *cluster) stele(args ...string) (string, error) {
	cmd := exec.Command(c.program, append(args, "--credential", c.keys.file)...)
	cmd.Env = []string{"HOME=" + c.dir}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// checkFolders runs the program's check of the data directories of all nodes, which are stopped.
func (r *wholeRun) checkFolders() {
	r.t.Helper()
	for _, n := range r.nodes {
		if out, err := r.stele(append([]string{"check"}, n.folders()...)...); err != nil {
			r.t.Errorf("check %v: %v: %s", n, err, tail(out, 10))
		}
	}
}

// joined returns an error unless the tablets of each table are contiguous, in METADATA and on the
// servers, and none waits for a log or a server.
func (r *wholeRun) joined(ctx context.Context) error {
	rows := map[uint64][]metadata.Row{}
	s := r.db.Table(metadata.Name).Scan(ctx, client.Filter(metadata.Rows()))
	defer s.Close()
	for s.Next() {
		row, err := metadata.Decode(s.Row())
		if err != nil {
			return err
		}
		rows[row.Table] = append(rows[row.Table], *row)
	}
	if err := s.Err(); err != nil {
		return err
	}
	for id, all := range rows {
		end := []byte(nil)
		if id == metadata.TableID { // the root tablet precedes them, and is not in METADATA
			end = metadata.RootEnd()
		}
		for i := range all {
			row := &all[i]
			m, err := tablet.DecodeMeta(row.Meta)
			if err != nil {
				return err
			}
			switch {
			case row.Server == "":
				return fmt.Errorf("tablet %d of table %d is on no server", m.ID, id)
			case len(row.Recoveries) > 0:
				return fmt.Errorf("tablet %d of table %d waits for logs of %v", m.ID, id, row.Recoveries)
			case string(m.Start) > string(end):
				return fmt.Errorf("tablet %d of table %d starts at %q, the one before ends at %q", m.ID, id, m.Start, end)
			case len(row.End) == 0 && i != len(all)-1:
				return fmt.Errorf("tablet %d of table %d has no end and is not the last", m.ID, id)
			}
			end = row.End
		}
		if len(end) != 0 {
			return fmt.Errorf("table %d ends at %q", id, end)
		}
	}
	return r.served(ctx)
}

// served returns an error unless the tablets that servers have of each table are contiguous.
func (r *wholeRun) served(ctx context.Context) error {
	tables, err := r.db.Tables().List(ctx)
	if err != nil {
		return err
	}
	if len(tables) != len(userTables)+1 {
		return fmt.Errorf("there are %d tables, want %d", len(tables), len(userTables)+1)
	}
	for _, schema := range tables {
		info, err := r.db.Tables().Describe(ctx, schema.Name)
		if err != nil {
			return err
		}
		slices.SortFunc(info.Tablets, func(a, b client.TabletInfo) int { return strings.Compare(string(a.Start), string(b.Start)) })
		end := []byte(nil)
		for i, t := range info.Tablets {
			if string(t.Start) != string(end) || i > 0 && len(end) == 0 {
				return fmt.Errorf("tablet %d of %s is served from %q, the one before to %q", t.ID, schema.Name, t.Start, end)
			}
			end = t.End
		}
		if len(info.Tablets) == 0 || len(end) != 0 {
			return fmt.Errorf("%d tablets of %s are served up to %q", len(info.Tablets), schema.Name, end)
		}
	}
	return nil
}

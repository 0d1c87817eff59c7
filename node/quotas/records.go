package quotas

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"strconv"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/quota"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// records is the quotas and the owners of tables that the lock service stores, a file each.
type records struct {
	log     *slog.Logger
	catalog *namespace.Catalog
	meta    *namespace.Access
	damaged loglimit.ByReason // files
}

// get returns the quota in a file, and its generation; nil if there is none.
func (rs *records) get(ctx context.Context, file string) (*quota.Record, uint64, error) {
	f, err := rs.meta.Get(ctx, file)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	r, err := quota.Decode(f.Data)
	return r, f.Generation, err
}

// edit replaces the quota in a file, nil if there is none, by what edit returns. An empty quota is removed. If the quota is changed
// meanwhile, it is edited again.
func (rs *records) edit(ctx context.Context, file string, edit func(old *quota.Record) (*quota.Record, error)) error {
	for {
		old, gen, err := rs.get(ctx, file)
		if err != nil {
			return err
		}
		next, err := edit(old)
		if err != nil {
			return err
		}
		switch {
		case !next.Empty():
			_, err = rs.catalog.Set(ctx, file, next.Encode(), gen)
		case gen != 0:
			err = rs.catalog.Remove(ctx, file, gen)
		}
		if !errors.Is(err, metaapi.ErrGeneration) {
			return err
		}
	}
}

// each calls do for the quotas in a directory, and stops at its error. Unreadable quotas are skipped.
func (rs *records) each(ctx context.Context, dir string, do func(name string, r *quota.Record) error) error {
	names, err := rs.catalog.List(ctx, dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := rs.meta.Current().Get(ctx, path.Join(dir, name))
		if errors.Is(err, metaapi.ErrNotFound) { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		r, err := quota.Decode(f.Data)
		if err != nil {
			rs.damaged.WarnError(rs.log, "quota skipped: its file is damaged", err, "file", f.Path)
			continue
		}
		if err := do(name, r); err != nil {
			return err
		}
	}
	return nil
}

// findTable returns the file of the table with an id, without a name if there is no such table. It had name once, and may have another one now: names
// are those of all tables, read if needed.
func (rs *records) findTable(ctx context.Context, id uint64, name string, names *map[uint64]string) (tableFile, error) {
	if gen, err := rs.generation(ctx, id, name); err != nil || gen > 0 {
		return tableFile{name, gen}, err
	}
	if *names == nil {
		var err error
		if *names, err = rs.meta.Tables(ctx); err != nil {
			return tableFile{}, err
		}
	}
	name = (*names)[id]
	if name == "" {
		return tableFile{}, nil
	}
	gen, err := rs.generation(ctx, id, name)
	return tableFile{name, gen}, err
}

// generation returns the generation of the file with that name, and caches it, if it is of the table with an id; otherwise 0.
func (rs *records) generation(ctx context.Context, id uint64, name string) (uint64, error) {
	s := rs.meta.Current()
	if table.IsDropped(name) { // the name has the id
		f, err := s.Get(ctx, namespace.TablePath(name))
		if errors.Is(err, metaapi.ErrNotFound) {
			return 0, nil
		}
		return f.Generation, err
	}
	schema, gen, err := namespace.ReadSchema(ctx, s, name)
	if errors.Is(err, api.ErrNoTable) || err == nil && schema.ID != id {
		return 0, nil
	}
	return gen, err
}

// nextEpoch makes all nodes reread the quotas. It creates the file if there is none.
func (rs *records) nextEpoch(ctx context.Context) (uint64, error) {
	for {
		f, err := rs.meta.Get(ctx, quota.EpochFile)
		if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
			return 0, err
		}
		made, err := rs.catalog.Set(ctx, quota.EpochFile, namespace.EpochBytes(f.Generation), f.Generation)
		if !errors.Is(err, metaapi.ErrGeneration) {
			return made, err
		}
	}
}

// remove removes a quota or an owner.
func (rs *records) remove(ctx context.Context, file string) (found bool, err error) {
	err = rs.catalog.Remove(ctx, file, metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		_, err = rs.nextEpoch(ctx)
	}
	return true, err
}

// setOwner stores the owner of a table; empty means none.
func (rs *records) setOwner(ctx context.Context, tableID uint64, user string) error {
	if user != "" {
		_, err := rs.catalog.Set(ctx, quota.OwnerFile(tableID), quota.EncodeOwner(user), metaapi.AnyGeneration)
		return err
	}
	err := rs.catalog.Remove(ctx, quota.OwnerFile(tableID), metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil
	}
	return err
}

// owners returns the owners of tables by id.
func (rs *records) owners(ctx context.Context) (map[uint64]string, error) {
	names, err := rs.catalog.List(ctx, quota.OwnersDir)
	if err != nil {
		return nil, err
	}
	all := map[uint64]string{}
	for _, name := range names {
		f, err := rs.meta.Current().Get(ctx, path.Join(quota.OwnersDir, name))
		if errors.Is(err, metaapi.ErrNotFound) { // dropped meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		owner, err := quota.DecodeOwner(f.Data)
		id, bad := strconv.ParseUint(name, 10, 64)
		if err = errors.Join(err, bad); err != nil {
			rs.damaged.WarnError(rs.log, "owner of a table skipped: its file is damaged", err, "file", f.Path)
			continue
		}
		all[id] = owner
	}
	return all, nil
}

// forgetOwner removes the ownership of a removed user's tables.
func (rs *records) forgetOwner(ctx context.Context, user string) (found bool, err error) {
	all, err := rs.owners(ctx)
	for id, owner := range all {
		if owner == user {
			found, err = true, errors.Join(err, rs.setOwner(ctx, id, ""))
		}
	}
	return found, err
}

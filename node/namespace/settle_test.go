package namespace

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metaapi "github.com/steledb/stele/raftmeta/api"
)

// TestSettle: a write of unknown outcome is repeated until it is known what came of it,
// and its generation is that of the write that counts.
func TestSettle(t *testing.T) {
	c, ctx := newCatalog(t)
	unknown := func(do func()) func(context.Context, bool) error {
		return func(_ context.Context, again bool) error {
			if !again {
				do()
				return metaapi.ErrOutcomeUnknown
			}
			return metaapi.ErrGeneration
		}
	}
	if err := Settle(ctx, unknown(func() {})); !errors.Is(err, metaapi.ErrGeneration) {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	err := Settle(ended, func(context.Context, bool) error { cancel(); return metaapi.ErrOutcomeUnknown })
	if !errors.Is(err, metaapi.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	gen, err := c.Set(ctx, "/x", []byte("1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set(ctx, "/x", []byte("1"), 0); !errors.Is(err, metaapi.ErrGeneration) {
		t.Errorf("a first try that came too late: %v", err)
	}
	if err := c.Remove(ctx, "/x", gen); err != nil {
		t.Error(err)
	}
	if err := c.Remove(ctx, "/x", gen); !errors.Is(err, metaapi.ErrNotFound) {
		t.Errorf("a first try that came too late: %v", err)
	}
}

// forgetful is a lock service whose first change of a file is made, and its answer lost.
type forgetful struct {
	Files
	lost bool
}

func (f *forgetful) lose(err error) error {
	if f.lost || err != nil {
		return err
	}
	f.lost = true
	return metaapi.ErrOutcomeUnknown
}

func (f *forgetful) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	made, err := f.Files.SetGuarded(ctx, path, data, gen, o)
	return made, f.lose(err)
}

func (f *forgetful) DeleteGuarded(ctx context.Context, path string, gen uint64, o metaapi.SetOptions) error {
	return f.lose(f.Files.DeleteGuarded(ctx, path, gen, o))
}

// overwritten is a forgetful lock service in which another change follows the lost one.
type overwritten struct{ forgetful }

func (o *overwritten) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, opts metaapi.SetOptions) (uint64, error) {
	made, err := o.forgetful.SetGuarded(ctx, path, data, gen, opts)
	if errors.Is(err, metaapi.ErrOutcomeUnknown) {
		if _, other := o.Files.Set(ctx, path, []byte("other"), metaapi.AnyGeneration); other != nil {
			return 0, other
		}
	}
	return made, err
}

func (o *overwritten) DeleteGuarded(ctx context.Context, path string, gen uint64, opts metaapi.SetOptions) error {
	err := o.forgetful.DeleteGuarded(ctx, path, gen, opts)
	if errors.Is(err, metaapi.ErrOutcomeUnknown) {
		if _, other := o.Files.Set(ctx, path, []byte("other"), metaapi.AnyGeneration); other != nil {
			return other
		}
	}
	return err
}

// deleted is a forgetful lock service in which the file of the lost write is deleted at once.
type deleted struct{ forgetful }

func (d *deleted) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, opts metaapi.SetOptions) (uint64, error) {
	made, err := d.forgetful.SetGuarded(ctx, path, data, gen, opts)
	if errors.Is(err, metaapi.ErrOutcomeUnknown) {
		if other := d.Files.Delete(ctx, path, metaapi.AnyGeneration); other != nil {
			return 0, other
		}
	}
	return made, err
}

// TestSettleDeleted: a file whose creation got no answer and that was deleted then is not created again. The creation may have succeeded.
func TestSettleDeleted(t *testing.T) {
	c, ctx := newCatalog(t)
	if _, err := (&Catalog{Meta: &deleted{forgetful{Files: c.Meta}}}).Set(ctx, "/d/x", []byte("1"), 0); !errors.Is(err, metaapi.ErrOutcomeUnknown) {
		t.Errorf("created again: %v", err)
	}
	if _, err := c.Meta.Get(ctx, "/d/x"); !errors.Is(err, metaapi.ErrNotFound) {
		t.Errorf("the deleted file: %v", err)
	}
}

// TestSettleLostAnswers: a write whose answer was lost is done, once, and returns the generation that it has made.
func TestSettleLostAnswers(t *testing.T) {
	c, ctx := newCatalog(t)
	gen, err := (&Catalog{Meta: &forgetful{Files: c.Meta}}).Set(ctx, "/x", []byte("1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := c.Meta.Get(ctx, "/x"); err != nil || f.Generation != gen || string(f.Data) != "1" {
		t.Errorf("the file has %q at generation %d, %v; want generation %d", f.Data, f.Generation, err, gen)
	}
	if err := (&Catalog{Meta: &forgetful{Files: c.Meta}}).Remove(ctx, "/x", gen); err != nil {
		t.Errorf("remove: %v", err)
	}
	if _, err := c.Meta.Get(ctx, "/x"); !errors.Is(err, metaapi.ErrNotFound) {
		t.Errorf("after the removal: %v", err)
	}
}

// TestSettleOvertaken: if another change follows one whose answer was lost, the outcome of the first one is unknown: a caller that
// took it for not made would make it again, on what the other change has made. It is an ErrGeneration too: an edit of the
// file is made again on what it has now.
func TestSettleOvertaken(t *testing.T) {
	c, ctx := newCatalog(t)
	overtaken := func() *Catalog { return &Catalog{Meta: &overwritten{forgetful{Files: c.Meta}}} }
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, metaapi.ErrOutcomeUnknown) || !errors.Is(err, metaapi.ErrGeneration) {
			t.Errorf("%s: %v, want %v and %v", what, err, metaapi.ErrOutcomeUnknown, metaapi.ErrGeneration)
		}
		if f, err := c.Meta.Get(ctx, "/x"); err != nil || string(f.Data) != "other" {
			t.Errorf("%s: the file has %q, %v; want what the other change wrote", what, f.Data, err)
		}
	}
	_, err := overtaken().Set(ctx, "/x", []byte("1"), 0)
	check("a creation", err)
	f, err := c.Meta.Get(ctx, "/x")
	if err != nil {
		t.Fatal(err)
	}
	_, err = overtaken().Set(ctx, "/x", []byte("2"), f.Generation)
	check("a write", err)
	if f, err = c.Meta.Get(ctx, "/x"); err != nil {
		t.Fatal(err)
	}
	check("a removal", overtaken().Remove(ctx, "/x", f.Generation))
}

// repeating is a lock service whose client repeats the first deletion, which was made: its error is that of the second attempt too.
type repeating struct{ forgetful }

func (r *repeating) DeleteGuarded(ctx context.Context, path string, gen uint64, o metaapi.SetOptions) error {
	if r.lost {
		return r.Files.DeleteGuarded(ctx, path, gen, o)
	}
	r.lost = true
	if err := r.Files.DeleteGuarded(ctx, path, gen, o); err != nil {
		return err
	}
	return fmt.Errorf("%w; then: %w", metaapi.ErrOutcomeUnknown, r.Files.DeleteGuarded(ctx, path, gen, o))
}

// TestSettleRepeatedRemove: the removal of a file at any generation, which the client repeats after the answer was lost, is done.
func TestSettleRepeatedRemove(t *testing.T) {
	c, ctx := newCatalog(t)
	if _, err := c.Set(ctx, "/x", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if err := (&Catalog{Meta: &repeating{forgetful{Files: c.Meta}}}).Remove(ctx, "/x", metaapi.AnyGeneration); err != nil {
		t.Errorf("remove: %v", err)
	}
	if _, err := c.Meta.Get(ctx, "/x"); !errors.Is(err, metaapi.ErrNotFound) {
		t.Errorf("after the removal: %v", err)
	}
}

// delayed is a lock service that does not get the first requests. Their callers do not know that.
type delayed struct {
	Files
	requests []func(ctx context.Context) error
}

func (d *delayed) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	if d.requests == nil {
		d.requests = append(d.requests, func(ctx context.Context) error {
			_, err := d.Files.SetGuarded(ctx, path, data, gen, o)
			return err
		})
		return 0, metaapi.ErrOutcomeUnknown
	}
	return d.Files.SetGuarded(ctx, path, data, gen, o)
}

func (d *delayed) DeleteGuarded(ctx context.Context, path string, gen uint64, o metaapi.SetOptions) error {
	if d.requests == nil {
		d.requests = append(d.requests, func(ctx context.Context) error { return d.Files.DeleteGuarded(ctx, path, gen, o) })
		return metaapi.ErrOutcomeUnknown
	}
	return d.Files.DeleteGuarded(ctx, path, gen, o)
}

// TestLateCreation: the first attempt to create a file, which arrives after the file was created by a later one and deleted, does not
// bring the file back.
func TestLateCreation(t *testing.T) {
	c, ctx := newCatalog(t)
	for range 2 { // in the second round the directory has lost a file before
		files := &delayed{Files: c.Meta}
		if _, err := (&Catalog{Meta: files}).Set(ctx, "/d/x", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		if err := c.Remove(ctx, "/d/x", metaapi.AnyGeneration); err != nil {
			t.Fatal(err)
		}
		if err := files.requests[0](ctx); !errors.Is(err, metaapi.ErrGeneration) {
			t.Errorf("the late attempt: %v", err)
		}
		if _, err := c.Meta.Get(ctx, "/d/x"); !errors.Is(err, metaapi.ErrNotFound) {
			t.Errorf("the deleted file: %v", err)
		}
	}
	if _, err := c.Set(ctx, "/d/x", []byte("2"), 0); err != nil {
		t.Errorf("created again: %v", err)
	}
}

// TestLateRemoval: the first attempt to delete a file, which arrives after a later one deleted it and it was created again, does not
// delete the new file.
func TestLateRemoval(t *testing.T) {
	c, ctx := newCatalog(t)
	if _, err := c.Set(ctx, "/d/x", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	files := &delayed{Files: c.Meta}
	if err := (&Catalog{Meta: files}).Remove(ctx, "/d/x", metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set(ctx, "/d/x", []byte("2"), 0); err != nil {
		t.Fatal(err)
	}
	if err := files.requests[0](ctx); !errors.Is(err, metaapi.ErrGeneration) {
		t.Errorf("the late attempt: %v", err)
	}
	if f, err := c.Meta.Get(ctx, "/d/x"); err != nil || string(f.Data) != "2" {
		t.Errorf("the new file: %q, %v", f.Data, err)
	}
}

// owned records the owners of the files that are written.
type owned struct {
	Files
	owners []string
}

func (o *owned) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, opts metaapi.SetOptions) (uint64, error) {
	o.owners = append(o.owners, opts.Owner)
	return o.Files.SetGuarded(ctx, path, data, gen, opts)
}

// TestSetForOwner: a file that is written for a user is charged to the user.
func TestSetForOwner(t *testing.T) {
	c, ctx := newCatalog(t)
	files := &owned{Files: c.Meta}
	gen, err := (&Catalog{Meta: files}).SetFor(ctx, "ann", "/x", []byte("1"), 0)
	if err != nil || len(files.owners) != 1 || files.owners[0] != "ann" {
		t.Errorf("owners %q, %v; want ann", files.owners, err)
	}
	if f, err := c.Meta.Get(ctx, "/x"); err != nil || f.Generation != gen {
		t.Errorf("the file is at generation %d, %v; want %d", f.Generation, err, gen)
	}
}

package blobs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/roots"
)

// wantOverloaded fails the test unless err is an OverloadedError with these values.
func wantOverloaded(t *testing.T, err error, says ...string) {
	t.Helper()
	var e *api.OverloadedError
	if !errors.As(err, &e) || e.RetryAfter == 0 {
		t.Fatalf("got %v, want overloaded", err)
	}
	for _, s := range says {
		if !strings.Contains(e.Reason, s) {
			t.Errorf("the refusal %q does not say %q", e.Reason, s)
		}
	}
}

// TestUploadsOfOneUser: a user leaves as many uploads to others as the user has.
func TestUploadsOfOneUser(t *testing.T) {
	store, err := blobfs.Open(blobfs.Config{Folders: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var us uploads
	us.start()
	defer us.close()
	open := func(owner string) (id uint64, err error) {
		u, err := us.open(t.Context(), store, roots.StoredFile{Name: "b"}, owner)
		return u.Upload, err
	}
	fill := func(owner string) (n int, last uint64, err error) {
		for {
			id, err := open(owner)
			if err != nil {
				return n, last, err
			}
			n, last = n+1, id
		}
	}
	n, id, err := fill("ann")
	if wantOverloaded(t, err, "user ann has 8 uploads", "abort one"); n != 8 {
		t.Errorf("ann has %d", n)
	}
	n, _, err = fill("bob")
	if wantOverloaded(t, err, "user bob has 4 uploads"); n != 4 {
		t.Errorf("bob has %d", n)
	}
	if _, err := open("cid"); err != nil {
		t.Errorf("a third user: %v", err)
	}
	if _, _, err := us.use(t.Context(), id, "bob"); err != api.ErrUploadExpired {
		t.Errorf("bob works on an upload of ann: %v", err)
	}
	n, _, err = fill("") // a node
	if wantOverloaded(t, err, "16 of 16 uploads"); n != 3 {
		t.Errorf("a node has %d", n)
	}
	if open, refused := us.stats(); open != 16 || refused != 3 {
		t.Errorf("%d are open, %d were refused", open, refused)
	}
}

// TestSealedUploads: sealed uploads keep no user from another one; the oldest
// of the user with the most is forgotten.
func TestSealedUploads(t *testing.T) {
	var us uploads
	now := time.Now()
	add := func(owner string) uint64 {
		t.Helper()
		u := &upload{busy: make(chan struct{}, 1), owner: owner, sealed: true}
		id, err := us.add(u)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Millisecond)
		u.used = now
		return id
	}
	bob := add("bob")
	first := add("ann")
	for range sealedMax - 2 {
		add("ann")
	}
	add("cid")
	if len(us.mu.open) != sealedMax || us.mu.open[first] != nil || us.mu.open[bob] == nil {
		t.Errorf("%d are kept, the oldest of ann: %v, that of bob: %v", len(us.mu.open), us.mu.open[first], us.mu.open[bob])
	}
}

// Abandoned uploads end, and only those.
func TestIdleUploads(t *testing.T) {
	store, err := blobfs.Open(blobfs.Config{Folders: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var us uploads
	us.start()
	defer us.close()
	a, err := us.open(t.Context(), store, roots.StoredFile{Name: "a"}, "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := us.open(t.Context(), store, roots.StoredFile{Name: "b"}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, release, err := us.use(t.Context(), b.Upload, "")
	if err != nil {
		t.Fatal(err)
	}
	us.endThose(func(*upload) bool { return true })
	release()
	if _, _, err := us.use(t.Context(), a.Upload, ""); err != api.ErrUploadExpired {
		t.Errorf("an idle upload: %v", err)
	}
	if _, release, err = us.use(t.Context(), b.Upload, ""); err != nil {
		t.Fatalf("one that is worked on: %v", err)
	}
	release()
}

// TestNumbersOfUploads: an id that clients get, and send again, is never larger than a language without integers can hold.
func TestNumbersOfUploads(t *testing.T) {
	var us uploads
	us.mu.open = map[uint64]*upload{}
	for range 1000 {
		u := &upload{busy: make(chan struct{}, 1)}
		id, err := us.add(u)
		if err != nil || id == 0 || id > wire.SafeIntegerMax {
			t.Fatalf("upload %d, %v", id, err)
		}
		us.end(id)
	}
}
